"""`kafkalog dump` prints what Kafka's own DumpLogSegments prints of the same files, character for character."""

from __future__ import annotations

import os
import random
import re
import struct
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import builder
import mutants
import pytest
import reference
import strategies
from conformance.jars import class_path, java
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import KafkalogError

pytestmark = [pytest.mark.broker, pytest.mark.slow]

N_GENERATED = 60
N_MUTANTS = int(os.environ.get("KAFKALOG_MUTANTS_N", "30"))
SEED = 4310
_DRIVER = Path(__file__).with_name("Dumps.java")

LOG_MODES = (
    {},
    {"deep_iteration": True},
    {"print_data_log": True},
    {"print_data_log": True, "skip_record_metadata": True},
    {"deep_iteration": True, "skip_record_metadata": True},
    {"print_data_log": True, "max_bytes": 300},
    {"key_decoder": "org.apache.kafka.tools.api.IntegerDecoder"},
    {"value_decoder": "org.apache.kafka.tools.api.LongDecoder"},
)
INDEX_MODES = ({}, {"index_sanity_check": True}, {"verify_index_only": True})
MODES = {
    ".log": LOG_MODES,
    ".index": (*INDEX_MODES, {"max_message_size": 200}),
    ".timeindex": INDEX_MODES,
    ".txnindex": ({},),
    ".snapshot": ({},),
}


class Run(NamedTuple):
    """One run of Kafka's tool, and what came of it."""

    paths: list[Path]
    options: dict[str, Any]
    out: str
    err: str
    thrown: str


def arguments(paths, options):
    """The command line of Kafka's tool."""
    words = ["--files", ",".join(map(str, paths))]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}" + ("-class" if name.endswith("decoder") else "")
        words += [option] if value is True else [option, str(value)]
    return words


# --- what is dumped ---------------------------------------------------------------------------------------------------


def generated():
    """Segments of every magic and codec: base offset, bytes, and whether they are undamaged."""
    found = []

    @seed(SEED)
    @settings(
        max_examples=N_GENERATED,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def collect(data):
        segment = data.draw(strategies.segments(max_batches=5, as_brokers_write=True))
        is_damaged = data.draw(st.booleans())
        content = data.draw(strategies.damaged(segment)).data if is_damaged else segment.data
        found.append((segment.base_offset, content, not is_damaged))

    collect()
    return found


def varied():
    """What chance would seldom bring."""
    big = [
        builder.record_v2(n, n, b"%d" % n, b"value %d, " % n * 40, [(b"h\xc3\xa9", b"\xff"), (b"", None)])
        for n in range(300)
    ]
    for codec in range(5):
        batch = builder.batch_v2(
            big, base_offset=5, codec=codec, base_sequence=2**31 - 7, producer_id=3, max_timestamp=299
        )
        yield 5, batch, True
    for magic, codec in ((0, 1), (1, 2), (1, 3), (0, 3)):
        inner = [builder.message(n + 9 * (magic == 0), b"k", b"v" * n, magic=magic, timestamp=n) for n in range(50)]
        plain = builder.message(70, None, b"\xed\xa0\x80\xc0", magic=magic)
        yield 9, builder.wrapper(inner, offset=58, magic=magic, codec=codec, log_append_time=magic == 1) + plain, True
    # compaction: offsets missing within batches and between them, an empty batch, a horizon
    holes = builder.batch_v2(
        [builder.record_v2(n, -n, b"k", None) for n in (1, 4, 8)], last_offset_delta=11, max_timestamp=-1
    )
    empty = builder.batch_v2([], base_offset=40, last_offset_delta=3, base_timestamp=-1)
    horizon = builder.batch_v2(
        [builder.record_v2(0, -99)], base_offset=50, delete_horizon=True, base_timestamp=77, max_timestamp=-22
    )
    yield 0, holes + empty + horizon, True
    for kind in (0, 1):
        yield 0, builder.control_batch(kind, producer_id=7, producer_epoch=2, coordinator_epoch=kind), True
        yield 0, builder.control_batch(kind, value=b"\0\0"), False
    voter, uuid = b"\0\0\0\1", bytes(range(16))
    end_point = b"\x0bCONTROLLER\x0alocalhost\x23\x84\0"
    raft = {
        2: [
            b"\0\0" + voter + b"\2" + voter + b"\0\3" + voter + b"\0" + voter + b"\0\0",
            b"\0\1" + voter + b"\2" + voter + b"\0\1\0",
        ],
        3: [b"\0\0" + bytes(7) + b"\x09\0", b"\0\3" + b"\xff" * 8 + b"\1\0\2ab"],
        4: [b"\0\0\0"],
        5: [b"\0\0\0\1\0"],
        6: [b"\0\0\2" + voter + uuid + b"\2" + end_point + b"\0\0\0\1\0" + b"\0\0", b"\0\0\1\0", b"\0\0\2" + voter],
        9: [b"x"],
    }
    for kind, values in raft.items():
        for value in values:
            yield 0, builder.control_batch(kind, value=value), False
    yield 0, builder.control_batch(0, key=b"\0\0\0"), False
    for tail in (b"", bytes(17), bytes(18), bytes(500), b"\x7f" * 40, holes[:-1]):
        yield 0, holes + tail, False
    yield (
        0,
        b"".join(builder.batch_v2([builder.record_v2(value=b"v")], base_offset=n, crc=9) for n in (3, 3, 1, 0)),
        False,
    )


def entries_of(data, base_offset):
    """Entries of right indexes: one a batch, as far as the size fields lead."""
    offsets, times = [], []
    for start, _ in builder.batch_positions(data):
        if len(data) - start < 61:
            break
        last, timestamp = struct.unpack_from(">q", data, start)[0], struct.unpack_from(">q", data, start + 18)[0]
        if data[start + 16] >= 2:
            last += struct.unpack_from(">i", data, start + 23)[0]
            timestamp = struct.unpack_from(">q", data, start + 35)[0]
        relative = builder.wrap32(last - base_offset)
        offsets.append(struct.pack(">ii", relative, start))
        times.append(struct.pack(">qi", timestamp, relative))
    return offsets, times


def is_mixed(data, batch):
    """Whether messages in a wrapper are, or may be, of another format."""
    is_wrapper = batch.magic < 2 and data[batch.position + 17] & 7
    has_none = any(record.timestamp_type == reference.NO_TIMESTAMP_TYPE for record in batch.records)
    return is_wrapper and (batch.magic == 0 or has_none)


def write_partition(folder, base_offset, data, chance, *, is_healthy):
    """A segment and what lies beside it, right or odd; a file `healthy.log` and so on marks what is undamaged."""
    folder.mkdir()
    stem = folder / f"{base_offset:020d}"
    offsets, times = entries_of(data, base_offset)
    oddity = chance.randrange(8)
    if oddity == 0:
        offsets.append(bytes(80))
        times.append(bytes(120))
    elif oddity == 1:
        offsets.append(b"abc")
        times.append(b"xyz")
    elif oddity == 2:
        chance.shuffle(offsets)
        chance.shuffle(times)
    elif oddity == 3 and offsets:
        offsets[-1] = struct.pack(">ii", chance.randrange(-3, 400), chance.randrange(-5, len(data) + 40))
        times[-1] = struct.pack(">qi", chance.choice([0, -1, 1_700_000_000_000]), chance.randrange(400))
    elif oddity == 4:
        offsets.clear()
    aborted = struct.pack(">hqqqq", 0, 1, 2, 3, 4)
    producers = struct.pack(">qhiqiqiq", 7, 1, 2**31 - 1, 9, chance.choice([0, 3, -4]), 123, 4, chance.choice([-1, 5]))
    producers += struct.pack(">qhiqiqiq", -8, 1, -1, -1, 0, -1, -1, -1)
    body = struct.pack(">i", 2) + producers
    crc = builder.crc32c(body) ^ (oddity == 5)
    files = {
        ".log": data,
        ".index": b"".join(offsets),
        ".timeindex": b"".join(times),
        ".txnindex": chance.choice(
            [b"", aborted * 2 + b"torn", struct.pack(">h", 255) + aborted[2:], aborted + b"\1" + aborted[1:]]
        ),
        ".snapshot": struct.pack(">hI", 2 if oddity == 6 else 1, crc) + body,
    }
    for suffix, content in files.items():
        stem.with_suffix(suffix).write_bytes(content)
        is_right = is_healthy and (suffix == ".log" or (suffix in (".index", ".timeindex") and oddity > 3))
        # messages of v0 have no timestamp: no broker writes them in a wrapper of v1, nor those of v1 in one of v0
        if is_right and suffix == ".timeindex":
            is_right = not any(is_mixed(data, batch) for batch in reference.read_segment(data).batches)
        if is_right:
            (folder / f"healthy{suffix}").touch()
    return [stem.with_suffix(suffix) for suffix in files]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What Kafka's tool printed of everything, all in one JVM."""
    program = java()
    jars = class_path(program)
    root = tmp_path_factory.mktemp("dumps")
    chance = random.Random(SEED)
    tasks = []
    logs = []
    changed = [(0, data, False) for data in mutants.segments(SEED, N_MUTANTS)]
    for number, (base_offset, data, is_healthy) in enumerate([*varied(), *generated(), *changed]):
        for path in write_partition(root / str(number), base_offset, data, chance, is_healthy=is_healthy):
            tasks += [([path], mode) for mode in MODES[path.suffix]]
            if path.suffix == ".log":
                logs.append(path)
    assert len(logs) > 80
    tasks.append((logs[:5], {"deep_iteration": True}))
    written = root / "out"
    written.mkdir()
    lines = ["\t".join([str(written / str(n)), *arguments(*task)]) for n, task in enumerate(tasks)]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    command = [program, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", quiet, "-cp", jars, str(_DRIVER)]
    subprocess.run(command, input="\n".join(lines), text=True, encoding="utf-8", check=True, timeout=240)
    found = []
    for number, (paths, options) in enumerate(tasks):
        texts = [(written / f"{number}.{kind}").read_bytes().decode() for kind in ("out", "err", "thrown")]
        found.append(Run(paths, options, *texts))
    return found


# --- what comes of it -------------------------------------------------------------------------------------------------


def ours(run):
    """Our text, our lists, and whether an error came behind them."""
    dump = kafkalog.dump(run.paths, **run.options)
    text = b""
    failed = False
    try:
        for chunk in dump.chunks():
            text += chunk
    except KafkalogError:
        failed = True
    except ValueError:
        # a decoder that needs more bytes
        failed = True
        assert any(name.endswith("decoder") for name in run.options)
    return text.decode(), "".join(f"{line}\n" for line in dump.mismatches()), failed


def is_unused(path):
    """Whether an index is preallocated, and no more."""
    return path.suffix == ".index" and not any(path.read_bytes())


@pytest.mark.parametrize("suffix", MODES)
def test_text_and_lists_are_those_of_kafkas_tool(runs, suffix):
    """Of undamaged files all lines are the tool's; of others those up to the damage, where the tool may read on."""
    outcomes = Counter()
    for run in runs:
        if run.paths[0].suffix != suffix or len(run.paths) > 1:
            continue
        if "OutOfMemoryError" in run.thrown:
            # it makes room for a message before it sees that the message is cut off; what then depends on the heap
            continue
        if run.thrown.startswith("java.util.NoSuchElementException") and is_unused(run.paths[0]):
            # nothing is wrong with an index of a log without a batch
            assert ours(run) == (run.out, "", False)
            continue
        text, lists, failed = ours(run)
        about = f"{run.paths[0]} {run.options}: {run.thrown}"
        is_healthy = (run.paths[0].parent / f"healthy{suffix}").exists()
        if is_healthy or suffix in (".log", ".snapshot"):
            assert not is_healthy or failed == bool(run.thrown), about
            printed = run.out
            if not is_healthy:
                # damage may make any negative number of a sequence or a size; kafkalog shows -1
                text, printed = (re.sub(r"(?<=e: )-\d+", "-1", lines) for lines in (text, printed))
            assert printed.startswith(text) if failed else text == printed, about
            if not failed and suffix != ".snapshot":
                assert (lists, run.thrown) == (run.err, ""), about
        else:
            assert run.out.startswith(text) or text.startswith(run.out), about
        outcomes[is_healthy, failed] += 1
    assert outcomes[True, False] > 20 or suffix in (".txnindex", ".snapshot")
    assert outcomes[False, True] > 5 or suffix == ".snapshot"


@pytest.mark.parametrize(
    "words",
    [
        'LeaderChange: {"version":0,',
        '"voterDirectoryId"',
        "SnapshotHeader {",
        "SnapshotFooter {",
        "KRaftVersion {",
        'KRaftVoters {"version":0,"voters":[{"voterId":1,',
        '"endpoints":[{"name":"CONTROLLER"',
        "controlType: UNKNOWN(9)",
        "endTxnMarker: COMMIT",
        "deleteHorizonMs: OptionalLong[77]",
        "count: 0 ",
        "isvalid: false",
        "compresscodec: zstd",
        "magic: 0 compresscodec: lz4",
        "LogAppendTime: ",
        " invalid bytes at the end of ",
        "headerKeys: [hé,]",
        "\ufffd\ufffd",
    ],
)
def test_what_was_dumped_holds_every_kind_of_line(runs, words):
    assert any(words in run.out for run in runs)


def test_a_snapshot_that_the_tool_cannot_read_is_damage(runs):
    complaints = 0
    for run in runs:
        if run.paths[0].suffix == ".snapshot":
            dump = kafkalog.dump(run.paths)
            list(dump)
            assert bool(dump.n_damage) == bool(run.err)
            complaints += bool(run.err)
    assert complaints > 5


def test_several_files_are_dumped_one_behind_the_other(runs):
    (run,) = (run for run in runs if len(run.paths) > 1)
    text, lists, failed = ours(run)
    assert not failed
    assert text == run.out
    # the tool lists files in the order of a hash table
    assert sorted(lists.splitlines()) == sorted(run.err.splitlines())


def test_the_command_prints_the_same_bytes(runs, capfdbinary):
    from kafkalog.cli import main
    from kafkalog.cli.text import escape_controls

    run = next(run for run in runs if run.options == {"print_data_log": True} and not run.thrown and run.err)
    main(["dump", "--print-data-log", os.fspath(run.paths[0])])
    printed = capfdbinary.readouterr()
    assert printed.out == escape_controls(run.out.encode())
    assert printed.err.decode().startswith(run.err)
