"""Of batches that somebody changed, kafkalog reads what Kafka's own classes read.

`KAFKALOG_MUTANTS_SEED` chooses others, and `KAFKALOG_MUTANTS_N` how many.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conformance.jars import KAFKA_VERSION, OLD_KAFKA_VERSION
from conformance.kafka import run_java
from mutants import segments

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PACKAGES = {
    OLD_KAFKA_VERSION: "org.apache.kafka.common.record",
    KAFKA_VERSION: "org.apache.kafka.common.record.internal",
}
SEED = int(os.environ.get("KAFKALOG_MUTANTS_SEED", "20261123"))
N = int(os.environ.get("KAFKALOG_MUTANTS_N", "600"))
RULES = {
    # the reader stops in silence where a size leads beyond the end; whether that is a torn tail, what follows tells
    "size_exceeds_file",
    # which take for granted that offsets rise; no checksum covers them
    "offset_order",
    "offset_outside_segment",
    "header_inconsistent",
    # behind the header of a batch of no records
    "record_trailing_bytes",
    # 3 and more are read as 2 are
    "bad_magic",
}
"""Where kafkalog finds damage, and Kafka's reader none."""
# its zstd is older, and it does not look whether bytes are left behind the stream; kafkalog goes by 4.3.1
OLD_RULES = {OLD_KAFKA_VERSION: {"codec_stream"}}
OLD_ZSTD = "Failed to decompress record stream"

FAR = 2**32
"""An offset so far beyond the others of a mutant that a lone batch behind damage is not believed to have it."""

UNREADABLE = "\ufffd"
"""What stands in a header's name for bytes that are no UTF-8: Java counts them in another way."""

Row = tuple[int, int, str, str, str]


@dataclass
class Batch:
    """What Kafka makes of a batch: its records, and why it has no more of them."""

    start: int
    stop: int
    rows: list[Row] = field(default_factory=list)
    problem: str = ""
    n_wrong_inside: int = 0
    """Messages in a wrapper whose own checksum is wrong: the wrapper's is right, and kafkalog goes by that one."""


@dataclass
class Log:
    """What Kafka makes of a segment: batches, and why there is no next one."""

    batches: list[Batch] = field(default_factory=list)
    problem: str = ""


def by_kafka(version, paths, folder):
    source = (Path(__file__).parent / "Mutants.java").read_text().replace("RECORD.", PACKAGES[version] + ".")
    (folder / "Mutants.java").write_text(source)
    logs, log = [], Log()
    for line in run_java(folder / "Mutants.java", version=version, given=paths, said="off").splitlines():
        kind, *words = line.split("\t")
        if kind == "batch":
            start = log.batches[-1].stop if log.batches else 0
            log.batches.append(Batch(start, start + int(words[0])))
        elif kind == "record":
            valid, offset, timestamp, key, value, headers = words
            log.batches[-1].rows.append((int(offset), int(timestamp), key, value, headers))
            log.batches[-1].n_wrong_inside += valid == "false"
        elif kind == "bad":
            log.batches[-1].problem = words[0]
        else:
            log.problem = words[0]
            logs.append(log)
            log = Log()
    return logs


def summed(data):
    return "-" if data is None else f"{len(data)}:{zlib.crc32(data)}"


def ours(path):
    """Records of all that is not damaged, and what is."""
    columns = ["offset", "timestamp", "key", "value", "headers"]
    scan = kafkalog.scan(path, columns=columns, include_control=True, on_corruption="skip", threads=1)
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        table = scan.to_table()
    table = table.set_column(1, "timestamp", table["timestamp"].cast("int64"))
    for offset, timestamp, key, value, headers in zip(*(table[name].to_pylist() for name in columns), strict=True):
        said = "".join(
            f"{'?' if UNREADABLE in one['key'] else summed(one['key'].encode())}={summed(one['value'])} "
            for one in headers
        )
        rows.append((offset, -1 if timestamp is None else timestamp, summed(key), summed(value), said))
    return rows, [finding for finding in scan.findings if finding.damage]


@pytest.mark.parametrize("version", [*PACKAGES])
def test_batches_that_were_changed_are_read_as_kafka_reads_them(version, tmp_path):
    paths = []
    for number, data in enumerate(segments(SEED, N)):
        paths.append(tmp_path / f"t-{number}" / f"{0:020d}.log")
        paths[-1].parent.mkdir()
        paths[-1].write_bytes(data)
    logs = by_kafka(version, paths, tmp_path)
    assert len(logs) == N
    seen = Counter()
    for path, log in zip(paths, logs, strict=True):
        differences = [*compared(path, log, seen, rules=RULES | OLD_RULES.get(version, set()))]
        assert not differences, f"{path}, seed {SEED}: {differences}"
    # nothing of what was to be compared was left out
    assert seen["read"] > 3 * N
    assert seen["refused"] > N // 3
    assert seen["wrong checksum inside"] > N // 50


def compared(path, log, seen, rules):
    """What kafkalog reads and Kafka does not, or the other way round."""
    rows, findings = ours(path)
    data = path.read_bytes()
    theirs = []
    for batch in log.batches:
        here = {str(one.reason) for one in findings if overlap(one, batch)}
        if "OutOfMemoryError" in batch.problem:
            return  # it makes room for a message before it sees that the message is cut off
        if OLD_ZSTD in batch.problem and rules != RULES:
            return
        if batch.problem:
            seen["refused"] += 1
            # a consumer opens the stream of a compressed batch of no records, and gets nothing out of it either way
            is_of_none = data[batch.start + 16] == 2 and not any(data[batch.start + 57 : batch.start + 61])
            if not here and not is_of_none:
                yield f"at {batch.start} Kafka refuses: {batch.problem}"
        elif not here:
            theirs += batch.rows
        elif here == {"crc_mismatch"} and int.from_bytes(data[batch.start : batch.start + 8]) > FAR:
            continue  # right after a damaged header, nothing tells that such an offset is not damage, too
        elif not here <= rules and not batch.n_wrong_inside:
            yield f"at {batch.start} kafkalog finds {here}, and Kafka {len(batch.rows)} records"
    seen["read"] += len(theirs)
    seen["wrong checksum inside"] += any(batch.n_wrong_inside and not batch.problem for batch in log.batches)
    is_whole = not log.problem and log.batches and log.batches[-1].stop == len(data)
    if rows != theirs if is_whole else rows[: len(theirs)] != theirs:
        yield f"kafkalog reads {rows}, and Kafka {theirs}"
    verified = {one.position for one in kafkalog.verify(path, deep=True).findings if one.damage}
    if not {one.position for one in findings} <= verified:
        yield f"verify finds nothing at {findings}"


def overlap(finding, batch):
    start = finding.position or 0
    return start < batch.stop and batch.start < start + max(finding.length or 1, 1)
