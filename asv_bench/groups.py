"""Groups out of 1 GiB of `__consumer_offsets`, in CRC passes over the same bytes: a table in Markdown.

    python asv_bench/groups.py > asv_bench/GROUPS.md

The CRC pass reads every batch and compares its checksum, and decodes nothing. All sides take turns in one run, and the
least CPU seconds of each count.
"""

from __future__ import annotations

import platform
import sys

import peers
from benchmarks.groups import KEY, N_COMMITS, N_GROUPS, N_PARTITIONS, make_log, sides
from side_by_side import _cpu_model, _table, say

import kafkalog

ROUNDS = 9


def main() -> int:
    rows = []
    size = 0
    for n_groups in N_GROUPS:
        say(f"{n_groups} groups: writing the log, unless it is there")
        log_dir = make_log(n_groups)
        size = sum(segment.size_in_bytes for segment in kafkalog.open_log_dir(log_dir)[KEY].segments)
        say(f"{ROUNDS} rounds")
        best = peers.compare(sides(log_dir, n_groups), ROUNDS)
        crc = best["CRC pass"]
        passes = (best[side] / crc for side in ("table", "objects", "decoding"))
        rows.append([f"{n_groups:,}", f"{crc:.2f} s", *(f"{one:.2f}" for one in passes)])
    print("# Groups out of `__consumer_offsets`\n\n    python asv_bench/groups.py\n")
    print(f"- {_cpu_model()}, {platform.system()}, Python {platform.python_version()}; files in the page cache")
    print(f"- {size / 2**20:,.0f} MiB: {N_COMMITS:,} commits of {N_PARTITIONS} partitions each, a batch a commit")
    print("- in passes that read the batches and check their checksums; one thread; `table` is whole groups with")
    print("  their lags in Arrow, `objects` the same in Python, `decoding` a scan of the columns that both need")
    print(f"- the least CPU seconds of {ROUNDS} rounds in which all sides take turns; aim: 4 passes at most\n")
    print("\n".join(_table(["groups", "CRC pass", "`table`", "`objects`", "`decoding`"], rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
