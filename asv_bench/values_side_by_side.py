"""Typed values, compared with other decoders of the same bytes: a table in Markdown.

    python asv_bench/values_side_by_side.py > asv_bench/VALUES.md

All sides take turns, and the least CPU time of each counts. arrow-avro needs cargo, which builds it once.
"""

from __future__ import annotations

import json
import platform
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.values import SCHEMA, Avro, Json, N, Protobuf
from peers.programs import ProgramUnavailableError
from peers.rust import require_rust
from side_by_side import _cpu_model, _table, say

ROUNDS = 25
FIELDS = len(SCHEMA["fields"])


def main() -> int:
    avro, protobuf, text = Avro(), Protobuf(), Json()
    for one in (avro, protobuf, text):
        one.setup()
    sides: dict[str, dict[str, Callable[[], float]]] = {
        "Avro": {
            "all fields": _timed(avro.time_all_fields),
            "one field": _timed(avro.time_one_field),
            "a loop of fastavro": _timed(avro.time_fastavro_loop),
        },
        "Protobuf": {
            "all fields": _timed(protobuf.time_all_fields),
            "one field": _timed(protobuf.time_one_field),
            "a loop of protobuf (upb)": _timed(protobuf.time_protobuf_loop),
        },
        "JSON": {
            "all fields": _timed(text.time_all_fields),
            "types, learned before": _timed(text.time_learn),
            "pyarrow.json": _timed(text.time_pyarrow_reader),
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            sides["Avro"]["arrow-avro 60.1 (Rust), frames included"] = _arrow_avro(avro, Path(folder))
        except ProgramUnavailableError as error:
            say(f"without arrow-avro: {error}")
        best = {(kind, name): float("inf") for kind, some in sides.items() for name in some}
        for number in range(ROUNDS):
            say(f"round {number + 1} of {ROUNDS}")
            for kind, some in sides.items():
                for name, side in some.items():
                    best[kind, name] = min(best[kind, name], side())
    rows = [
        [kind, name, f"{seconds / N * 1e9:.0f}", f"{seconds / best[kind, 'all fields']:.2f}"]
        for (kind, name), seconds in best.items()
    ]
    print("# Typed values, compared with other decoders\n\n    python asv_bench/values_side_by_side.py\n")
    print(f"- {_cpu_model()}, {platform.system()}, Python {platform.python_version()}; one thread")
    print(f"- {N:,} values of {FIELDS} fields (JSON: {FIELDS - 1}) in memory, to Arrow; see `benchmarks/values.py`")
    print(f"- the least CPU time of {ROUNDS} rounds in which all sides take turns\n")
    print("\n".join(_table(["format", "side", "nanoseconds a value", "times all fields"], rows)))
    return 0


def _timed(work: Callable[[], None]) -> Callable[[], float]:
    def side() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return side


def _arrow_avro(avro: Avro, folder: Path) -> Callable[[], float]:
    program = require_rust(Path(__file__).parent / "peers" / "arrow_avro", "avro-peer")
    values = folder / "values"
    parts = [json.dumps(SCHEMA).encode(), *(b"\0\0\0\0\7" + value for value in avro.values)]
    values.write_bytes(b"".join(struct.pack("<I", len(part)) + part for part in parts))

    def side() -> float:
        return int(subprocess.run([program, values, "2"], check=True, capture_output=True).stdout) / 1e9

    return side


if __name__ == "__main__":
    sys.exit(main())
