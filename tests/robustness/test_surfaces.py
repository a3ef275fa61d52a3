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
    committed = {"isolation_level": "read_committed"}
    yield "read_table", lambda: kafkalog.read_table(root, columns=COLUMNS, **options).validate(full=True)
    yield "read_table committed", lambda: kafkalog.read_table(root, include_deleted=True, **committed, **options)
    yield (
        "read_table filters",
        lambda: kafkalog.read_table(
            root,
            columns=["offset", "value"],
            start_offset=17,
            end_offset=333,
            filters=[("timestamp", ">", 5), ("key", "is not null", None)],
            include_control=True,
            check_crcs=False,
            **options,
        ),
    )
    yield "read_table value", lambda: kafkalog.read_table(root, filters=[("value", "contains", b"1")], **options)
    yield "read_table timestamps", lambda: kafkalog.read_table(root, start_timestamp=10**12, **options)
    yield "read_numpy", lambda: kafkalog.read_numpy(root, **options)
    yield "count_rows", lambda: kafkalog.scan(root, **options).count_rows()
    yield "explain", lambda: str(kafkalog.scan(root, start_timestamp=10**12, **options).explain(analyze=True))
    yield "head", lambda: kafkalog.scan(root, **options).head(3)
    yield "batches", lambda: kafkalog.batches(root, on_corruption=mode, limits=LIMITS).to_table()


def _tasks(root, mode):
    for level in ("read_uncommitted", "read_committed"):

        def tasks(level=level):
            for task in plan(root, isolation_level=level, on_corruption=mode, task_bytes=10_000, limits=LIMITS).tasks:
                _drained(read_task(task, limits=LIMITS))

        yield f"plan {level}", tasks

        def tail(level=level):
            ends = LogTail(
                lambda: opened(root),
                lambda key: True,
                isolation_level=level,
                on_corruption="raise" if mode == "raise" else "skip",
                limits=LIMITS,
            )
            ends.ends(), ends.starts(), ends.ends()

        yield f"tail {level}", tail


def _properties(root):
    def log_dir():
        found = opened(root)
        _ = found.findings, found.topics, found.is_live, found.properties, repr(found)
        for key in found:
            with contextlib.suppress(KafkalogError):
                repr(found[key])

    yield "log dir", log_dir
    names = ["log_start_offset", "high_watermark", "log_end_offset", "leader_epochs", "epoch_cache", "topic_id"]
    names += ["last_stable_offset", "size_in_bytes", "findings", "segments"]
    for partition in partitions(root):
        for name in names:
            yield f"Partition.{name}", lambda partition=partition, name=name: getattr(partition, name)
        yield "repr", lambda partition=partition: repr(partition)
        for epoch in (-1, 0, 3, 2**31 - 1):
            yield "end_offset_for_epoch", lambda partition=partition, epoch=epoch: partition.end_offset_for_epoch(epoch)
            yield "truncation_for", lambda partition=partition, epoch=epoch: partition.truncation_for(epoch, 100)
        yield "aborted", lambda partition=partition: partition.aborted_transactions()
        yield "find_timestamps", lambda partition=partition: partition.find_timestamps(list(TIMESTAMPS))
        for timestamp in (*TIMESTAMPS, "earliest", "latest", "max-timestamp"):
            yield (
                f"offset_for_timestamp {timestamp}",
                lambda partition=partition, timestamp=timestamp: partition.offset_for_timestamp(timestamp),
            )
            yield (
                f"trace_timestamp {timestamp}",
                lambda partition=partition, timestamp=timestamp: trace_timestamp(partition, timestamp).as_dict(),
            )
        for offset in OFFSETS:
            yield (
                f"trace_offset {offset}",
                lambda partition=partition, offset=offset: trace_offset(partition, offset).as_dict(),
            )
        yield "statistics", lambda partition=partition: partition.index_statistics(what_if=[512, 10**6])
        for mode in MODES:
            yield (
                f"list_producers {mode}",
                lambda partition=partition, mode=mode: list_producers(partition, on_corruption=mode, now_ms=2 * 10**12),
            )
            yield (
                f"statistics {mode}",
                lambda partition=partition, mode=mode: partition.index_statistics(on_corruption=mode),
            )
            yield (
                f"batches {mode}",
                lambda partition=partition, mode=mode: _drained(partition.iter_batches(on_corruption=mode)),
            )


def _indexes(root):
    for segment in segments(root):
        yield "Segment.find_offsets", lambda segment=segment: segment.find_offsets(np.array(OFFSETS))
        yield "Segment.find_timestamps", lambda segment=segment: segment.find_timestamps(np.array(TIMESTAMPS))
        yield "Segment.next_offset", lambda segment=segment: segment.next_offset
        yield "Segment.batches", lambda segment=segment: segment.batches.to_arrow()
        yield "Segment.index_statistics", lambda segment=segment: segment.index_statistics(what_if=[1000])
        for name in ("offset_index", "time_index", "transaction_index"):

            def look(segment=segment, name=name):
                index = getattr(segment, name)
                if index is None:
                    return
                _ = index.findings, repr(index), index.to_arrow()
                if name != "transaction_index":
                    index.lookup(np.array([*OFFSETS, -1]))
                index.check([segment.batches])

            yield f"Segment.{name}", look


def _dumped(dump, of):
    try:
        _drained(of(dump))
    except ValueError as error:
        # that a decoder does not fit is misuse
        if isinstance(error, KafkalogError) or "decoder needs" not in str(error):
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
            dump = kafkalog.dump(path, limits=LIMITS, **options)
            yield f"dump {path.suffix} {options}", lambda dump=dump: _dumped(dump, lambda dump: dump)
            yield f"dump rows {path.suffix} {options}", lambda dump=dump: _dumped(dump, kafkalog.Dump.rows)
    yield "dump all", lambda: _drained(kafkalog.dump(files, keep_going=True, deep_iteration=True, limits=LIMITS).rows())
    yield "cli dump", lambda: command("dump", "--json", "--print-data-log", "--keep-going", *files) if files else None


def _repairing(root, out, threads):
    yield "verify", lambda: str(kafkalog.verify(root, threads=threads, limits=LIMITS))
    yield "verify deep", lambda: str(kafkalog.verify(root, deep=True, threads=1, limits=LIMITS))
    yield "verify indexes", lambda: str(kafkalog.verify(root, indexes_only=True, index_interval_bytes=100))
    kinds = ["offset", "time", "txn", "snapshot", "epochs"]
    yield (
        "rebuild out",
        lambda: kafkalog.reindex(root, kinds=kinds, output=out / "rebuilt", threads=threads, limits=LIMITS),
    )
    yield (
        "rebuild in place",
        lambda: kafkalog.reindex(_copy(root, out), kinds=kinds, in_place=True, backup=True, limits=LIMITS),
    )
    for segment in segments(root)[:3]:
        yield (
            "rebuild segment",
            lambda segment=segment: kafkalog.reindex(
                segment.path,
                kinds=kinds,
                dry_run=True,
                limits=LIMITS,
            ),
        )


def _converting(root, out, mode, threads):
    every = (
        {},
        {"compression": "lz4", "drop": [("offset", "<", 30)]},
        {"batch_size": 1000, "redact": {"value": None}, "include_deleted": True},
        {"config": kafkalog.LogConfig(segment_bytes=4000), "filters": [("key", "is not null", None)]},
    )
    for number, options in enumerate(every):
        yield (
            f"convert {mode} {options}",
            lambda number=number, options=options: kafkalog.convert(
                root, out / f"converted-{number}", on_corruption=mode, threads=threads, limits=LIMITS, **options
            ),
        )
    for number, format in enumerate(("jsonl", "csv", "parquet", "arrow")):
        to = out / f"exported-{number}.{format}"
        yield (
            f"export {format} {mode}",
            lambda to=to: kafkalog.export(
                root, to, columns=COLUMNS, on_corruption=mode, threads=threads, limits=LIMITS
            ),
        )


TABLE = pa.table(
    {"key": [b"k", None], "value": [b"v" * 50, None], "timestamp": pa.array([1, 2], pa.timestamp("ms", "UTC"))}
)


def _writing(root, partition, out):
    topic, number = partition.name.rsplit("-", 1)
    table = TABLE.append_column("partition", pa.array([int(number)] * 2, pa.int32()))

    def append(**options):
        with kafkalog.PartitionWriter(_copy(root, out) / partition.name, limits=LIMITS, **options) as writer:
            writer.append(TABLE)
            writer.roll()
            writer.append(TABLE, producer=(7, 0))

    def load():
        file = out / "records.jsonl"
        file.write_text(json.dumps({"value": "dg==", "partition": int(number)}))
        kafkalog.load([file], _copy(root, out), topic=topic)

    yield "append", append
    yield "append truncating", lambda: append(truncate_tail=True, compression="zstd")
    yield "write_table", lambda: kafkalog.write_table(table, _copy(root, out), topic=topic)
    yield "load_files", load

    def install(replace):
        """The damaged log dir is what is installed into."""
        fresh = out / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        kafkalog.write_table(table, fresh, topic=topic)
        kafkalog.install(fresh / partition.name, _copy(root, out), replace=replace, limits=LIMITS)

    def install_from():
        target = out / "broker"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        (target / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
        kafkalog.install(partition, target, topic_id="pVtd5q9fv17AmQxDD_e9Gw", limits=LIMITS)

    yield "install over", lambda: install(True)
    yield "install", lambda: install(False)
    yield "install from", install_from


def _commands(root, out, mode):
    on = ("--on-corruption", mode)
    every = (
        ("ls", root, "--segments"),
        ("ls", root, "--json"),
        ("cat", root, *on),
        ("cat", root, "--json", "--columns", ",".join(COLUMNS), "--isolation-level", "read_committed", *on),
        ("batches", root, *on),
        ("batches", root, "--summary", *on),
        ("batches", root, "--json", *on),
        ("lookup", root, "--offset", "17", "--timestamp", "1763600000000"),
        ("lookup", root, "--offset", "17", "--timestamp", "latest", "--json"),
        ("producers", root),
        ("producers", root, "--json", "--now", "1763600000000"),
        ("epochs", root, "--end-offset-for", "0", "--follower", "0,100"),
        ("epochs", root, "--json"),
        ("index-stats", root, "--segments", "--what-if", "1024", *on),
        ("index-stats", root, "--json", "--what-if", "512,4096", *on),
        ("verify", root),
        ("verify", root, "--json", "--deep"),
        ("export", root, "-o", out / "cli.csv", *on),
        ("reindex", root, "--dry-run", "--kinds", "offset,time,txn,snapshot,epochs"),
        ("convert", root, "-o", out / "cli-converted", "--json", *on),
    )
    for arguments in every:
        yield f"kafkalog {arguments[0]} {arguments[2:]}", lambda arguments=arguments: command(*arguments)


def calls(root, partition, out, number):
    """All there is to be done with a log dir; `number` chooses between modes.

    Parameters
    ----------
    root, partition : Path
        The log dir, and one of the partitions in it; neither is changed.
    out : Path
        Where to write.
    number : int
    """
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


# --- tests -----------------------------------------------------------------------------------------------------------


SEED = int(os.environ.get("KAFKALOG_FUZZ_SEED", "20261121"))
N_PARTS = 4
N_PARTITIONS = max(2 * N_PARTS, fuzz_inputs() // 4000)
FIRST = int(os.environ.get("KAFKALOG_FUZZ_FIRST", "0"))
SECONDS = 3.0


def failures(case, out, number, reasons):
    """What is wrong with what came of each call."""
    found = []
    for name, call in calls(case.root, case.partition, out, number):
        begin = time.process_time()
        try:
            call()
        except KafkalogError as error:
            reasons[error.reason] += 1
            if not isinstance(error.reason, Reason) or not str(error):
                found.append(f"{name}: {error!r}")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.append(f"{name}: {type(error).__name__}: {error} at {Path(where.filename).name}:{where.lineno}")
        if time.process_time() - begin > SECONDS:
            found.append(f"{name}: {time.process_time() - begin:.1f} s")
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
            for category in (
                kafkalog.CorruptionWarning,
                kafkalog.TransactionWarning,
                kafkalog.ConfigWarning,
                FunctionWarning,
            ):
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
