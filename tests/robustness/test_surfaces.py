"""Hostile files under every public function: whatever a partition and its log dir hold, nothing but a `KafkalogError`.

`KAFKALOG_FUZZ_SEED` and `KAFKALOG_FUZZ_N` choose other partitions and more of them, `KAFKALOG_FUZZ_FIRST` begins at
another number.
"""

import contextlib
import io
import json
import os
import shutil
import time
import traceback
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from damaged_partitions import damaged
from effort import fuzz_inputs, thinned

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import FunctionWarning, KafkalogError, Limits, Reason
from kafkalog.log.tail import LogTail
from kafkalog.operations.trace_lookup import trace_offset, trace_timestamp
from kafkalog.scanning.planning import plan
from kafkalog.scanning.tasks import read_task
from kafkalog.system_topics.list_producers import list_producers

LIMITS = Limits(max_decompressed_bytes=4 * 2**20, max_open_transactions=1000)
OFFSETS = (0, 1, 17, 100, 333, 10**6, 2**31, 2**63 - 1)
TIMESTAMPS = (0, 1, 1_763_600_000_000, 2**62)
MODES = ("raise", "stop", "skip")
EXTRA = ("leader_epoch", "producer_id", "producer_epoch", "sequence", "is_transactional", "is_control", "compression")
EXTRA += ("batch_base_offset", "batch_position", "segment")
COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", *EXTRA)


class BugError(Exception):
    """A command ended as only a bug or a wrong command line may."""


def opened(path):
    return kafkalog.open(path, limits=LIMITS)


def partitions(root):
    """What can be opened of a log dir; what is raised here is seen by the calls that open it, too."""
    found = []
    with contextlib.suppress(Exception):
        log_dir = opened(root)
        for key in log_dir:
            with contextlib.suppress(Exception):
                found.append(log_dir[key])
    return found


def segments(root):
    found = []
    for partition in partitions(root):
        with contextlib.suppress(Exception):
            found += partition.segments
    return found


def command(*arguments):
    """A command line in this process."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape", write_through=True)
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments] + ["-v"])
    if code not in (0, 1, 3, 4, 5, 6, 7):
        raise BugError(f"exit code {code}\n{err.getvalue()}")


def _copy(root, out):
    target = out / "copy"
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(root, target, symlinks=True))


def _drained(iterator):
    for _ in iterator:
        pass


def _reading(root, mode, threads):
    options = {"on_corruption": mode, "threads": threads, "limits": LIMITS}
    read = partial(kafkalog.read_table, root, **options)
    yield partial(lambda **more: read(**more).validate(full=True), columns=COLUMNS)
    yield partial(read, include_deleted=True, isolation_level="read_committed")
    conditions = [("timestamp", ">", 5), ("key", "is not null", None)]
    some = {"columns": ["offset", "value"], "start_offset": 17, "end_offset": 333, "filters": conditions}
    yield partial(read, **some, include_control=True, check_crcs=False)
    yield partial(read, filters=[("value", "contains", b"1")])
    yield partial(read, start_timestamp=10**12)
    yield partial(kafkalog.read_numpy, root, **options)
    scan = partial(kafkalog.scan, root, **options)
    yield lambda: scan().count_rows()
    yield lambda: str(scan(start_timestamp=10**12).explain(analyze=True))
    yield lambda: scan().head(3)
    yield lambda: kafkalog.batches(root, on_corruption=mode, limits=LIMITS).to_table()


def _read_planned(root, **options):
    for task in plan(root, task_bytes=10_000, limits=LIMITS, **options).tasks:
        _drained(read_task(task, limits=LIMITS))


def _followed(root, **options):
    ends = LogTail(lambda: opened(root), lambda key: True, limits=LIMITS, **options)
    ends.ends(), ends.starts(), ends.ends()


def _tasks(root, mode):
    for level in ("read_uncommitted", "read_committed"):
        yield partial(_read_planned, root, isolation_level=level, on_corruption=mode)
        yield partial(_followed, root, isolation_level=level, on_corruption="raise" if mode == "raise" else "skip")


def _looked_at(root):
    found = opened(root)
    _ = found.findings, found.topics, found.is_live, found.properties, repr(found)
    for key in found:
        with contextlib.suppress(KafkalogError):
            repr(found[key])


def _properties(root):
    yield partial(_looked_at, root)
    names = ["log_start_offset", "high_watermark", "log_end_offset", "leader_epochs", "epoch_cache", "topic_id"]
    names += ["last_stable_offset", "size_in_bytes", "findings", "segments"]
    for partition in partitions(root):
        yield from (partial(getattr, partition, name) for name in names)
        yield partial(repr, partition)
        for epoch in (-1, 0, 3, 2**31 - 1):
            yield partial(partition.end_offset_for_epoch, epoch)
            yield partial(partition.truncation_for, epoch, 100)
        yield partition.aborted_transactions
        yield partial(partition.find_timestamps, list(TIMESTAMPS))
        for timestamp in (*TIMESTAMPS, "earliest", "latest", "max-timestamp"):
            yield partial(partition.offset_for_timestamp, timestamp)
            yield partial(lambda *of: trace_timestamp(*of).as_dict(), partition, timestamp)
        for offset in OFFSETS:
            yield partial(lambda *of: trace_offset(*of).as_dict(), partition, offset)
        yield partial(partition.index_statistics, what_if=[512, 10**6])
        for mode in MODES:
            yield partial(list_producers, partition, on_corruption=mode, now_ms=2 * 10**12)
            yield partial(partition.index_statistics, on_corruption=mode)
            yield partial(lambda of, mode: _drained(of.iter_batches(on_corruption=mode)), partition, mode)


def _examine_index(segment, name):
    index = getattr(segment, name)
    if index is None:
        return
    _ = index.findings, repr(index), index.to_arrow()
    if name != "transaction_index":
        index.lookup(np.array([*OFFSETS, -1]))
    index.check([segment.batches])


def _indexes(root):
    for segment in segments(root):
        yield partial(segment.find_offsets, np.array(OFFSETS))
        yield partial(segment.find_timestamps, np.array(TIMESTAMPS))
        yield partial(getattr, segment, "next_offset")
        yield partial(lambda segment: segment.batches.to_arrow(), segment)
        yield partial(kafkalog.index_stats, segment, what_if=[1000])
        for name in ("offset_index", "time_index", "transaction_index"):
            yield partial(_examine_index, segment, name)


def _dumped(path, of=iter, **options):
    dump = kafkalog.dump(path, limits=LIMITS, **options)
    try:
        _drained(of(dump))
    except ValueError as error:
        # that a decoder does not fit is misuse
        if isinstance(error, KafkalogError) or not any(name.endswith("decoder") for name in options):
            raise
    _drained(dump.mismatches())


def _dumping(root):
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
    files = sorted(path for path in root.glob("*/*") if path.suffix in suffixes and not path.is_dir())
    every = (
        {},
        {"deep_iteration": True},
        {"print_data_log": True, "dialect": "2.8"},
        {"print_data_log": True, "skip_record_metadata": True, "max_bytes": 2000},
        {"index_sanity_check": True, "max_message_size": 100},
        {"verify_index_only": True, "key_decoder": "integer", "value_decoder": "long"},
    )
    for path in files:
        for options in every:
            yield partial(_dumped, path, **options)
            yield partial(_dumped, path, of=kafkalog.Dump.rows, **options)
    yield partial(_dumped, files, of=kafkalog.Dump.rows, keep_going=True, deep_iteration=True)
    if files:
        yield partial(command, "dump", "--json", "--print-data-log", "--keep-going", *files)


def _rebuild_in_place(root, out, **options):
    kafkalog.reindex(_copy(root, out), in_place=True, backup=True, **options)


def _repairing(root, out, threads):
    for options in ({"limits": LIMITS}, {"deep": True, "limits": LIMITS}, {"index_interval_bytes": 100}):
        only = "index_interval_bytes" in options
        yield partial(lambda **more: str(kafkalog.verify(root, **more)), threads=threads, indexes_only=only, **options)
    options = {"kinds": ["offset", "time", "txn", "snapshot", "epochs"], "limits": LIMITS}
    yield partial(kafkalog.reindex, root, output=out / "rebuilt", threads=threads, **options)
    yield partial(_rebuild_in_place, root, out, **options)
    for segment in segments(root)[:3]:
        yield partial(kafkalog.reindex, segment.path, dry_run=True, **options)


def _converting(root, out, mode, threads):
    common = {"on_corruption": mode, "threads": threads, "limits": LIMITS}
    every = (
        {},
        {"compression": "lz4", "drop": [("offset", "<", 30)]},
        {"batch_size": 1000, "redact": {"value": None}, "include_deleted": True},
        {"config": kafkalog.LogConfig(segment_bytes=4000), "filters": [("key", "is not null", None)]},
    )
    for number, options in enumerate(every):
        yield partial(kafkalog.convert, root, out / f"converted-{number}", **common, **options)
    for format in ("jsonl", "csv", "parquet", "arrow"):
        yield partial(kafkalog.export, root, out / f"exported.{format}", columns=COLUMNS, **common)


TABLE = pa.table(
    {"key": [b"k", None], "value": [b"v" * 50, None], "timestamp": pa.array([1, 2], pa.timestamp("ms", "UTC"))}
)


def _append(root, out, name, **options):
    with kafkalog.PartitionWriter(_copy(root, out) / name, limits=LIMITS, **options) as writer:
        writer.append(TABLE)
        writer.roll()
        writer.append(TABLE, producer=(7, 0))


def _install(root, out, name, table, replace):
    """The damaged log dir is what is installed into."""
    fresh = out / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    kafkalog.write_table(table, fresh, topic=name.rpartition("-")[0])
    kafkalog.install(fresh / name, _copy(root, out), replace=replace, limits=LIMITS)


def _install_from(partition, target):
    target.mkdir()
    (target / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    kafkalog.install(partition, target, topic_id="pVtd5q9fv17AmQxDD_e9Gw", limits=LIMITS)


def _writing(root, partition, out):
    topic, number = partition.name.rsplit("-", 1)
    table = TABLE.append_column("partition", pa.array([int(number)] * 2, pa.int32()))
    file = out / "records.jsonl"
    file.write_text(json.dumps({"value": "dg==", "partition": int(number)}))
    yield partial(_append, root, out, partition.name)
    yield partial(_append, root, out, partition.name, truncate_tail=True, compression="zstd")
    yield lambda: kafkalog.write_table(table, _copy(root, out), topic=topic)
    yield lambda: kafkalog.load([file], _copy(root, out), topic=topic)
    yield partial(_install, root, out, partition.name, table, replace=True)
    yield partial(_install, root, out, partition.name, table, replace=False)
    yield partial(_install_from, partition, out / "broker")


def _commands(root, out, mode):
    on = ("--on-corruption", mode)
    yield from (
        partial(command, *arguments)
        for arguments in (
            ("ls", root, "--segments"),
            ("cat", root, *on),
            ("cat", root, "--json", "--columns", ",".join(COLUMNS), "--isolation-level", "read_committed", *on),
            ("batches", root, "--summary", *on),
            ("batches", root, "--json", *on),
            ("lookup", root, "--offset", "17", "--timestamp", "latest", "--json"),
            ("producers", root, "--json", "--now", "1763600000000"),
            ("epochs", root, "--end-offset-for", "0", "--follower", "0,100"),
            ("index-stats", root, "--segments", "--what-if", "1024", *on),
            ("index-stats", root, "--json", "--what-if", "512,4096", *on),
            ("verify", root, "--json", "--deep"),
            ("export", root, "-o", out / "cli.csv", *on),
            ("reindex", root, "--dry-run", "--kinds", "offset,time,txn,snapshot,epochs"),
            ("convert", root, "-o", out / "cli-converted", "--json", *on),
        )
    )


def calls(root, partition, out, number):
    """All there is to be done with a log dir, which is not changed; `number` chooses between modes."""
    mode, threads = MODES[number % 3], 1 + number // 3 % 2
    yield from _reading(root, mode, threads)
    yield from _tasks(root, mode)
    yield from _properties(root)
    yield from _indexes(root)
    yield from _dumping(root)
    yield from _repairing(root, out, threads)
    yield from _converting(root, out, mode, threads)
    yield from _writing(root, partition, out)
    yield from _commands(root, out, mode)


SEED = int(os.environ.get("KAFKALOG_FUZZ_SEED", "20261121"))
N_PARTS = 4
N_PARTITIONS = max(N_PARTS, fuzz_inputs() // 2000)
FIRST = int(os.environ.get("KAFKALOG_FUZZ_FIRST", "0"))
SECONDS = 3.0


def failures(case, out, number, reasons):
    """What is wrong with what came of each call."""
    found = []
    for call in calls(case.root, case.partition, out, number):
        begin = time.process_time()
        try:
            call()
        except KafkalogError as error:
            reasons[error.reason] += 1
            if not isinstance(error.reason, Reason) or not str(error):
                found.append(f"{call}: {error!r}")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.append(f"{call}: {type(error).__name__}: {error} at {Path(where.filename).name}:{where.lineno}")
        if time.process_time() - begin > SECONDS:
            found.append(f"{call}: {time.process_time() - begin:.1f} s")
    return found


def run(number, tmp_path, reasons):
    """One partition under all; what it did wrong, with what makes it again."""
    base = tmp_path / "case"
    base.mkdir()
    out = base / "out"
    out.mkdir()
    try:
        case = damaged(SEED, number, base / "logs")
        before = snapshot(case.root)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ours = (kafkalog.CorruptionWarning, kafkalog.TransactionWarning, kafkalog.ConfigWarning, FunctionWarning)
            for category in ours:
                warnings.simplefilter("ignore", category)
            found = failures(case, out, number, reasons)
        if snapshot(case.root) != before:
            found.append("the source was changed")
        return [f"seed {SEED}, number {number} ({'; '.join(case.what)}): {one}" for one in found]
    finally:
        shutil.rmtree(base)


def snapshot(root):
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.mark.timeout(max(300, 10 * N_PARTITIONS))
@pytest.mark.parametrize("part", thinned(range(N_PARTS), N_PARTS))
def test_damaged_files_give_kafkalog_errors_on_every_surface(part, tmp_path):
    reasons = Counter()
    found = []
    for number in range(FIRST + part, FIRST + N_PARTITIONS, N_PARTS):
        found += run(number, tmp_path, reasons)
    assert not found, "\n".join(found)
    assert len(reasons) > 1
