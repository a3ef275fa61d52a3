"""What is written comes out again; a partition that is there goes on; whatever fails, it is old or whole."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import golden_sets
import numpy as np
import pyarrow as pa
import pytest
from faults import Faulty
from writing import SMALL, Record, columns_of, draw, files_in, sound, write

import kafkalog
from kafkalog import ConfigWarning, LogConfig, PartitionWriter
from kafkalog import format as kf
from kafkalog.errors import (
    CorruptionError,
    FileChangedError,
    Limits,
    Reason,
    TransactionWarning,
    TruncatedTailError,
    UnsafePathError,
    UnwritableError,
    WriteError,
)
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.records.columns import RecordColumns
from kafkalog.state.checkpoints import encode_partition_metadata, parse_topic_id, read_leader_epochs
from kafkalog.state.producers import encode_snapshot, read_snapshot
from kafkalog.storage import atomic as file_steps
from kafkalog.writing.batch_builder import next_sequence

EPOCHS = "leader-epoch-checkpoint"
TOPIC_ID = "Bi_SuNQpR1iN9_1u84nflQ"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a partition may go: what is above the log dir is for staging."""
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "orders-0"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory where fsync takes no time, for what is done hundreds of times."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as name:
        yield Path(name)


def read(path: Path) -> list[Record]:
    """Everything, as it was given."""
    table = kafkalog.read_table(path)
    return [
        Record(
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((one["key"], one["value"]) for one in row["headers"]),
        )
        for row in table.set_column(
            table.schema.get_field_index("timestamp"), "timestamp", table.column("timestamp").cast(pa.int64())
        ).to_pylist()
    ]


def nothing_left(path: Path) -> bool:
    """Whether there is nothing but the partition in the log dir, and nothing hidden beside it."""
    return os.listdir(path.parent) in ([], [path.name]) and os.listdir(path.parent.parent) == [path.parent.name]


# ------------------------------------------------------------------------------------------- what comes out again


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_written_comes_out_again(path: Path, codec: str) -> None:
    records = draw(400, 3)
    with PartitionWriter(path, config=SMALL, compression=codec, topic_id=TOPIC_ID) as writer:
        result = writer.append(columns_of(records))
        assert not path.exists()
    assert (result.first_offset, result.last_offset) == (0, 399)
    assert read(path) == records
    assert sound(path) == []
    assert (path / kf.PARTITION_METADATA).read_bytes() == b"version: 0\ntopic_id: Bi_SuNQpR1iN9_1u84nflQ"
    assert (path / EPOCHS).read_bytes() == b"0\n1\n0 0\n"
    batches = [segment.batches for segment in kafkalog.Partition(path).segments]
    assert {int(one) for table in batches for one in table.codec} == {kf.CODEC_NAMES.index(codec)}
    assert result.n_batches == sum(map(len, batches))
    assert result.n_bytes == kafkalog.Partition(path).size_in_bytes
    assert nothing_left(path)


def test_how_a_stream_is_cut_does_not_show(path: Path) -> None:
    table = pa.table(
        {"value": [b"value %d" % row for row in range(3000)], "timestamp": pa.array(range(3000), pa.int64())}
    )
    contents = []
    for number, size in enumerate((3000, 7, 1)):
        target = path.with_name(f"orders-{number}")
        with PartitionWriter(target, config=SMALL) as writer:
            writer.append(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(size)))
        contents.append(files_in(target))
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]) > 20


def test_what_is_scanned_can_be_written(path: Path, log_dir: Path) -> None:
    with PartitionWriter(path, config=SMALL, compression="lz4") as writer:
        writer.append(kafkalog.scan(log_dir / "p-multi-0"))
    columns = ["offset", "timestamp", "key", "value", "headers"]
    assert kafkalog.read_table(path, columns=columns) == kafkalog.read_table(log_dir / "p-multi-0", columns=columns)


def test_memory_does_not_grow_with_what_is_written(tmp_path: Path) -> None:
    program = """
import resource, sys
import pyarrow as pa
from kafkalog import PartitionWriter
def batches(n):
    for _ in range(n):
        yield pa.record_batch({"value": [bytes(1000)] * 4000})
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
schema = pa.schema({"value": pa.binary()})
peaks = []
for n in (10, 80):
    with PartitionWriter(f"{sys.argv[1]}/orders-{n}", compression="snappy") as writer:
        writer.append(pa.RecordBatchReader.from_batches(schema, batches(n)))
    peaks.append(peak())
print(*peaks)
"""
    (tmp_path / "logs").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "logs")], capture_output=True, text=True, check=True
    )
    first, second = map(int, done.stdout.split())
    assert second - first < 48, "MiB, for 320 MB of records"


def test_offsets_are_kept_and_go_on(path: Path) -> None:
    with PartitionWriter(path, config=SMALL) as writer:
        writer.append(columns_of([record._replace(offset=1000 + 7 * row) for row, record in enumerate(draw(50))]))
        assert writer.next_offset == 1344
        result = writer.append(columns_of(draw(3)))
        assert (result.first_offset, result.last_offset) == (1344, 1346)
    table = kafkalog.read_table(path, columns=["offset"]).column(0).to_pylist()
    assert table == [*(1000 + 7 * row for row in range(50)), 1344, 1345, 1346]
    assert kafkalog.Partition(path).log_start_offset == 1000
    assert sound(path) == []


def test_a_partition_of_nothing_is_one(path: Path) -> None:
    with PartitionWriter(path, start_offset=77):
        pass
    assert sorted(files_in(path).items()) == [
        (f"{77:020d}{suffix}", b"") for suffix in (".index", ".log", ".timeindex")
    ]
    assert kafkalog.Partition(path).log_end_offset == 77


def test_log_append_time_is_what_all_records_say(path: Path) -> None:
    write(path, timestamp_type="LogAppendTime", log_append_time=1234)
    assert {record.timestamp for record in read(path)} == {1234}
    assert set(kafkalog.read_table(path, columns=["timestamp_type"]).column(0).to_pylist()) == {1}
    topic = LogConfig(message_timestamp_type="LogAppendTime")
    for number, (chosen, expected) in enumerate([(None, 1), (kf.TimestampType.CREATE_TIME, 0), ("CreateTime", 0)], 1):
        target = path.with_name(f"orders-{number}")
        write(target, 5, config=topic, timestamp_type=chosen)
        assert kafkalog.read_table(target, columns=["timestamp_type"]).column(0).to_pylist() == [expected] * 5


def test_transactions_come_out_as_they_ended(path: Path) -> None:
    writer = PartitionWriter(path, config=SMALL, batch_size=300, producer=(5, 1))
    writer.append(columns_of(draw(20, 1)))
    writer.append(columns_of(draw(20, 2)), transactional=True)
    assert writer.abort_transaction() == 40
    writer.append(columns_of(draw(20, 3)), transactional=True)
    with pytest.raises(ValueError, match="has a transaction open"):
        writer.append(columns_of(draw(1)))
    with pytest.raises(ValueError, match="no transaction open"):
        writer.commit_transaction(producer=(6, 0))
    assert writer.commit_transaction(timestamp=77) == 61
    writer.append(columns_of(draw(20, 4)), producer=(6, 0), transactional=True)
    with pytest.raises(ValueError, match="fenced"):
        writer.append(columns_of(draw(1)), producer=(5, 0))
    with pytest.warns(TransactionWarning, match="producer 6 that begins at offset 62 is still open:"):
        writer.close()
    offsets = kafkalog.read_table(path, isolation_level="read_committed", columns=["offset"]).column(0).to_pylist()
    assert offsets == [*range(20), *range(41, 61)]
    state = read_snapshot(path / f"{82:020d}.snapshot").entries
    assert state["producer_id"].tolist() == [5, 6]
    assert state["current_txn_first_offset"].tolist() == [-1, 62]
    assert state["last_sequence"].tolist() == [59, 19]
    assert sound(path) == []
    # and so they go on
    with PartitionWriter(path, producer=(6, 0)) as again:
        again.append(columns_of(draw(5)), transactional=True)
        again.commit_transaction()
    batches = kafkalog.Partition(path).segments[-1].batches
    assert batches.base_sequence[0] == 20
    assert kafkalog.scan(path, isolation_level="read_committed").count_rows() == 65
    assert sound(path) == []


def test_a_transaction_that_is_left_open_is_warned_of_by_who_appends_records(path: Path) -> None:
    writer = PartitionWriter(path, config=SMALL)
    writer.append(columns_of(draw(5)))
    for producer in ((7, 0), (8, 3)):
        writer.append(columns_of(draw(3)), producer=producer, transactional=True)
    with pytest.warns(TransactionWarning) as caught:
        writer.close()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    message = str(caught[0].message)
    expected = ("orders-0", "producer 7", "offset 5", "1 more", "commit_transaction", "abort_transaction")
    assert [part for part in expected if part not in message] == []
    assert kafkalog.scan(path, isolation_level="read_committed").count_rows() == 5
    # what is appended behind it is hidden too, whoever began it
    with pytest.warns(TransactionWarning, match="producer 7 that begins at offset 5 is"):
        write(path, 3)
    # who appends nothing, or copies batches, is not asked
    with PartitionWriter(path):
        pass
    with PartitionWriter(path.with_name("orders-1"), config=SMALL) as copy:
        for segment in kafkalog.Partition(path).segments:
            with segment.open() as source:
                for window in segment.iter_windows(source):
                    copy.append_batches(window)
    assert len(copy._files.producers.transactions) == 2
    # nor who fails, or ends them
    failing = PartitionWriter(path)
    failing.append(columns_of(draw(3)))
    failing.abort()
    with PartitionWriter(path) as ending:
        ending.append(columns_of(draw(3)))
        ending.abort_transaction(producer=(7, 0))
        ending.commit_transaction(producer=(8, 3))
    assert kafkalog.scan(path, isolation_level="read_committed").count_rows() == 14


def test_a_record_larger_than_a_broker_takes_is_warned_of_once(path: Path) -> None:
    topic = LogConfig(max_message_bytes=2000)
    big = Record(value=np.random.default_rng(0).bytes(2000))
    writer = PartitionWriter(path, config=topic)
    with pytest.warns(ConfigWarning, match=r"orders-0: the batch at offset 40 has 20\d\d bytes") as caught:
        writer.append(columns_of([*draw(40), big, big]))
    writer.append(columns_of([big]))
    writer.close()
    assert "max.message.bytes is 2000" in str(caught[0].message)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert kafkalog.scan(path).count_rows() == 43
    with warnings.catch_warnings():  # what counts is the batch as it is written
        warnings.simplefilter("error")
        with PartitionWriter(path.with_name("orders-1"), config=topic, compression="zstd") as writer:
            writer.append(columns_of([Record(value=bytes(100_000))]))


# ----------------------------------------------------------------------------------- behind a partition that is there


GOLDEN = ("p-txn-0", "p-headers-0", "p-compact-idem-0", "p-empty-0", "p-segms-0", "p-delrec-0", "p-idxroll-0")


@pytest.mark.parametrize("name", GOLDEN)
def test_a_broker_s_partition_goes_on_in_new_segments(tmp_path: Path, name: str) -> None:
    path = tmp_path / "logs" / name
    shutil.copytree(golden_sets.partitions("k44")[name], path)
    old, before = files_in(path), kafkalog.Partition(path)
    end, n_rows = before.log_end_offset, kafkalog.scan(path).count_rows()
    has_open = name == "p-txn-0"
    with (
        pytest.warns(TransactionWarning) if has_open else contextlib.nullcontext(),
        PartitionWriter(path, config=SMALL, compression="zstd") as writer,
    ):
        assert writer.next_offset == end
        writer.append(columns_of(draw(100, 5)))
        assert files_in(path) == old
    new = files_in(path)
    for file, content in old.items():
        assert new[file] == content or file == EPOCHS or (not content and int(file[:20]) == end), file
    assert kafkalog.Partition(path).log_end_offset == end + 100
    assert kafkalog.scan(path).count_rows() == n_rows + 100
    assert read(path)[-100:] == draw(100, 5)
    # its indexes have the spacing that their topic asks for, and ours another
    assert [one for one in sound(path) if "index_sparse" not in one] == []
    epochs = read_leader_epochs(path / EPOCHS)
    assert epochs is not None
    assert epochs["epoch"].max() == before.leader_epochs["epoch"].max()
    known = read_snapshot(path / f"{end + 100:020d}.snapshot").entries["producer_id"]
    if f"{end:020d}.snapshot" in old:
        assert known.tolist() == read_snapshot(path / f"{end:020d}.snapshot").entries["producer_id"].tolist()
    assert nothing_left(path)


def test_a_topic_s_codec_is_taken_if_none_is_said(path: Path) -> None:
    topic = LogConfig(compression_type="zstd", compression_zstd_level=5)
    for number, (given, expected) in enumerate([(None, 4), ("none", 0), ("gzip", 1)]):
        target = path.with_name(f"orders-{number}")
        write(target, 50, config=topic, compression=given)
        assert set(kafkalog.Partition(target).segments[0].batches.codec.tolist()) == {expected}
    write(path.with_name("orders-9"), 50, config=LogConfig(compression_type="uncompressed"))
    with pytest.raises(ValueError):
        PartitionWriter(path.with_name("orders-10"), compression="snappy", compression_level=3)


def test_nothing_appended_changes_nothing(path: Path) -> None:
    write(path)
    old = files_in(path)
    with PartitionWriter(path):
        pass
    assert files_in(path) == old


def test_producers_are_known_without_a_snapshot(path: Path) -> None:
    with (
        pytest.warns(TransactionWarning, match="producer 9"),
        PartitionWriter(path, config=SMALL, batch_size=200, producer=(9, 4)) as writer,
    ):
        writer.append(columns_of(draw(100)), transactional=True)
    for kept in (4, 1, 0):  # and from an older one
        for file in sorted(path.glob("*.snapshot"))[kept:]:
            file.unlink()
        with PartitionWriter(path, producer=(9, 4)) as again:
            producers = again._files.producers
            assert 9 in producers.transactions
        sequence = next_sequence(producers, kafkalog.Producer(9, 4))
        assert sequence == 100


def unclean(path: Path, tail: bytes) -> None:
    """As a crash leaves it: indexes allocated ahead, no last snapshot, a torn batch."""
    partition = kafkalog.Partition(path)
    last = partition.segments[-1]
    for suffix, size in ((".index", 4096), (".timeindex", 4092)):
        os.truncate(last.path.with_suffix(suffix), size)
    (path / f"{partition.log_end_offset:020d}.snapshot").unlink()
    with last.path.open("ab") as file:
        file.write(tail)


@pytest.mark.parametrize("tail", ["", "half a batch", "zeros", "a batch of which a page is missing"])
def test_a_torn_tail_is_refused_unless_it_may_be_cut(path: Path, tail: str) -> None:
    write(path, producer=(3, 0))
    clean = files_in(path)
    last = kafkalog.Partition(path).segments[-1].path
    batch = bytearray(last.read_bytes()[-int(kafkalog.Segment(last).batches.size_in_bytes[-1]) :])
    batch[:8] = (1000).to_bytes(8, "big")
    torn = {"": b"", "half a batch": bytes(batch[: len(batch) // 2]), "zeros": bytes(5000)}
    missing = bytes(batch[:61]) + bytes(len(batch) - 61)
    unclean(path, torn.get(tail, missing))
    old = files_in(path)
    with pytest.raises(TruncatedTailError, match="truncate_tail=True"):
        PartitionWriter(path)
    assert files_in(path) == old
    with PartitionWriter(path, config=SMALL, truncate_tail=True) as writer:
        assert writer.next_offset == 150
        assert files_in(path) == old
    assert files_in(path) == {
        **old,
        last.name: clean[last.name],
        **{name: clean[name] for name in clean if name[:20] == last.name[:20] and name.endswith("index")},
    }
    unclean_again = files_in(path)
    with PartitionWriter(path, config=SMALL) as writer:
        writer.append(columns_of(draw(50)))
    assert {name: content for name, content in files_in(path).items() if name in unclean_again} == unclean_again
    assert sound(path) == []
    assert kafkalog.scan(path).count_rows() == 200


def test_nothing_is_appended_behind_damage(path: Path) -> None:
    write(path)
    log = kafkalog.Partition(path).segments[-1].path
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    old = files_in(path)
    for truncate_tail in (False, True):
        with pytest.raises(CorruptionError, match="nothing is appended after damage"):
            PartitionWriter(path, truncate_tail=truncate_tail)
    assert files_in(path) == old
    assert nothing_left(path)


@pytest.mark.parametrize("n_before", [0, 1])
def test_the_first_batch_behind_a_snapshot_is_replayed_and_none_before_it(path: Path, n_before: int) -> None:
    table = {"value": [b"a", b"b"], "timestamp": [1, 2]}
    with PartitionWriter(path) as writer:
        writer.append(table, producer=(7, 0))
        writer.append(table, producer=(7, 0))
        writer.roll()
        for _ in range(n_before):
            writer.append(table)
        writer.append(table, producer=(8, 0))
    end = 6 + 2 * n_before
    names = sorted(file.name for file in path.glob("*.snapshot"))
    assert names == [f"{4:020}.snapshot", f"{end:020}.snapshot"]
    (path / names[1]).unlink()
    # what lies before the snapshot is not looked at again
    log = path / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(content)
    with PartitionWriter(path) as writer:
        writer.append(table, producer=(8, 0))
        writer.append(table, producer=(7, 0))
    last = kafkalog.Partition(path).segments[-1].batches
    assert last.base_offset.tolist() == [end, end + 2]
    assert last.producer_id.tolist() == [8, 7]
    assert last.base_sequence.tolist() == [2, 4]


def test_a_snapshot_in_the_middle_of_a_segment_is_gone_on_from(path: Path) -> None:
    table = {"value": [b"a", b"b"], "timestamp": [1, 2]}
    with PartitionWriter(path) as writer:
        writer.append(table, producer=(7, 0))
    with PartitionWriter(path.with_name("orders-1"), start_offset=2) as writer:
        writer.append(table, producer=(8, 0))
    # as where a broker was killed behind its snapshot: the segment goes on
    with (path / f"{0:020}.log").open("ab") as log:
        log.write((path.with_name("orders-1") / f"{2:020}.log").read_bytes())
    shutil.rmtree(path.with_name("orders-1"))
    # what a snapshot tells is not replayed once more
    snapshot = path / f"{2:020}.snapshot"
    entries = read_snapshot(snapshot).entries.copy()
    entries["last_sequence"] = 41
    snapshot.write_bytes(encode_snapshot(entries))
    with PartitionWriter(path) as writer:
        for producer in ((8, 0), (7, 0)):
            writer.append(table, producer=producer)
    last = kafkalog.Partition(path).segments[-1].batches
    assert (last.base_offset.tolist(), last.base_sequence.tolist()) == ([4, 6], [2, 42])


def test_a_partition_that_somebody_writes_to_meanwhile_is_left_alone(path: Path) -> None:
    write(path)
    longer = path.parent / "copy" / path.name
    shutil.copytree(path, longer)
    write(longer, seed=1)
    writer = PartitionWriter(path)
    writer.append(columns_of(draw(10)))
    # whoever it is holds no lock
    shutil.copytree(longer, path, dirs_exist_ok=True)
    shutil.rmtree(longer.parent)
    old = files_in(path)
    with pytest.raises(FileChangedError, match="in the meantime"):
        writer.close()
    assert files_in(path) == old
    assert nothing_left(path)


# --------------------------------------------------------------------------------------------------- what is refused


NO_NAMES = ["orders", "orders-", "-0", "orders-x", "orders-00", "orders-+1", "orders-2147483648", ".-0",
            "..-0", "a b-0", "a/../b-0x", "é-0", "a\n-0", "orders-0.0123456789abcdef0123456789abcdef-delete",
            "a" * 250 + "-0", "__cluster_metadata-0", "ord\x1bers-0", "orders-٣"]  # fmt: skip


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_are_no_partition_s_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafePathError):
        PartitionWriter(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_the_longest_name_will_do(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs" / ("a" * 249 + "-12345"))
    assert sound(tmp_path / "logs" / ("a" * 249 + "-12345")) == []


def test_nothing_is_written_under_a_broker(path: Path) -> None:
    (path.parent / "meta.properties").write_text("version=1\n")
    write(path)
    assert (path.parent / ".lock").exists()
    with PartitionWriter(path), PartitionWriter(path.with_name("orders-1")):
        pass  # who holds the lock may write more partitions
    old = files_in(path)
    code = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print('held',flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path.parent / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for target in (path, path.with_name("orders-2")):
            with pytest.raises(UnsafePathError, match="stop it first"):
                PartitionWriter(target)
        holder.communicate("\n")
    assert files_in(path) == old
    code = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)"
    with PartitionWriter(path):
        busy = subprocess.run(
            [sys.executable, "-c", code, str(path.parent / ".lock")], capture_output=True, check=False
        )
    assert b"BlockingIOError" in busy.stderr
    subprocess.run([sys.executable, "-c", code, str(path.parent / ".lock")], check=True)


def test_places_where_a_broker_would_trip_over_it_are_refused(path: Path, tmp_path: Path) -> None:
    (path.parent / "meta.properties").write_text("version=1\n")
    write(path)
    for target in (path / "other-0", path.parent / "deep" / "other-0"):
        target.parent.mkdir(exist_ok=True)
        with pytest.raises(UnsafePathError):
            PartitionWriter(target)
    for stage_in in (path, path.parent):
        with pytest.raises(UnsafePathError):
            PartitionWriter(path.with_name("other-0"), stage_in=stage_in)
    (path.parent / "file-0").write_bytes(b"")
    with pytest.raises(UnsafePathError, match="not a directory"):
        PartitionWriter(path.parent / "file-0")
    with pytest.raises(WriteError):
        PartitionWriter(tmp_path / "absent" / "deep" / "other-0")
    (tmp_path / "meta.properties").touch()
    with pytest.raises(UnsafePathError):
        PartitionWriter(path.with_name("other-0"))


def test_options_that_contradict_what_is_there_are_refused(path: Path) -> None:
    write(path, topic_id=TOPIC_ID, leader_epoch=5)
    with pytest.raises(UnsafePathError, match=TOPIC_ID):
        PartitionWriter(path, topic_id="A" * 21 + "Q")
    with pytest.raises(ValueError, match="older than 5"):
        PartitionWriter(path, leader_epoch=4)
    with pytest.raises(ValueError, match="goes on at 150"):
        PartitionWriter(path, start_offset=7)
    with PartitionWriter(path, topic_id=TOPIC_ID, leader_epoch=7) as writer:
        writer.append(columns_of(draw(5)))
    assert (path / EPOCHS).read_bytes() == b"0\n2\n5 0\n7 150\n"
    for wrong in (
        {"batch_size": 0},
        {"timestamp_type": "Never"},
        {"compression": "zip"},
        {"start_offset": -1},
        {"topic_id": "x"},
        {"topic_id": "A" * 22},
        {"producer": (-1, 0)},
        {"max_records_per_batch": 0},
    ):
        with pytest.raises(ValueError):
            PartitionWriter(path.with_name("other-0"), **wrong)
    assert nothing_left(path)
    assert parse_topic_id(bytes(15) + b"\1") == "A" * 21 + "Q"
    assert encode_partition_metadata("x").endswith(b"x")


def test_after_an_error_nothing_more_is_taken_and_nothing_appears(path: Path) -> None:
    cases: list[tuple[Any, type[Exception]]] = [
        (columns_of([Record(offset=5), Record(offset=5)]), ValueError),
        (columns_of([Record(offset=3), Record(offset=2)]), ValueError),
        (columns_of([Record(timestamp=-2)]), UnwritableError),
        (pa.table({"value": ["x"], "offset": [-1]}), UnwritableError),
        (pa.table({"wert": ["x"]}), UnwritableError),
        (42, TypeError),
    ]
    for data, expected in cases:
        writer = PartitionWriter(path, config=SMALL)
        writer.append(columns_of(draw(100)))
        with pytest.raises(expected):
            writer.append(data)
        with pytest.raises(ValueError, match="failed"):
            writer.append(columns_of(draw(1)))
        with pytest.raises(WriteError, match="an append failed"):
            writer.close()
        with pytest.raises(ValueError, match="closed"):
            writer.append(columns_of(draw(1)))
        assert os.listdir(path.parent) == []

    def fail() -> None:
        with PartitionWriter(path) as writer:
            writer.append(columns_of(draw(100)))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    writer = PartitionWriter(path)
    writer.abort()
    writer.abort()
    writer.close()
    assert os.listdir(path.parent) == []
    assert nothing_left(path)


def test_batches_have_to_go_on(path: Path) -> None:
    write(path, 20)
    with kafkalog.Partition(path).segments[0].open() as source:
        (window,) = kafkalog.Partition(path).segments[0].iter_windows(source)
        with pytest.raises(ValueError, match="have to rise"), PartitionWriter(path) as writer:
            writer.append_batches(window)
        with PartitionWriter(path.with_name("orders-1"), config=SMALL) as writer:
            assert writer.append_batches(Window(window.data, 0, BatchTable.empty())).n_batches == 0
            rows = window.batches[::2]  # with gaps between them
            result = writer.append_batches(window._replace(batches=rows), modified_ms=1000)
            assert result.n_batches == len(rows)
            writer.roll(500)
            writer.roll(500)
            writer.roll(2**40)
    partition = kafkalog.Partition(path.with_name("orders-1"))
    assert [segment.base_offset for segment in partition.segments] == [0, 500, 2**40]
    assert [segment.size_in_bytes for segment in partition.segments][1:] == [0, 0]
    assert partition.segments[0].batches.base_offset.tolist() == rows.base_offset.tolist()
    assert partition.segments[0].path.stat().st_mtime == 1
    assert partition.segments[1].path.stat().st_mtime == 0
    assert sound(partition.path) == []


# ------------------------------------------------------------------------------------------------ whatever goes wrong


def begin(path: Path, scenario: str) -> None:
    """What is there before."""
    path.parent.mkdir(parents=True)
    if scenario != "new":
        write(path, 60, producer=(8, 0))
    if scenario == "torn":
        unclean(path, b"torn")
    if scenario == "empty":
        shutil.rmtree(path)
        write(path, 0)


def go_on(path: Path, scenario: str) -> None:
    """What is interrupted."""
    options: dict[str, Any] = {"config": SMALL, "batch_size": 400, "topic_id": TOPIC_ID, "leader_epoch": 3}
    with PartitionWriter(path, truncate_tail=scenario == "torn", **options) as writer:
        writer.append(columns_of(draw(60, 6)))
        writer.append(columns_of(draw(30, 7)), producer=(8, 0), transactional=True)
        writer.abort_transaction(producer=(8, 0))


def digest(path: Path) -> str:
    return hashlib.sha256(repr(files_in(path)).encode()).hexdigest()


def is_prefix(path: Path, old: dict[str, bytes], new: dict[str, bytes]) -> bool:
    """Whether a partition is as before, with some of the new segments, each whole, and nothing lost."""
    found = files_in(path)
    logs = sorted(name for name in new if name.endswith(".log"))
    there = [name for name in logs if found.get(name) == new[name]]
    if there != logs[: len(there)] or any(name not in new for name in found if name not in old):
        return False
    for name in (name for name in old if name.endswith(".log") and old[name]):
        if found[name] not in (old[name], new[name]):
            return False
    return [one for one in sound(path) if not any(fine in one for fine in FINE)] == []


FINE = ("unknown_file", "index_missing", "partial_tail", "index_padding", "index_sparse", "log_end_missing")
"""Of a crash: an index whose segment is still to come, one that is being replaced, what was torn before."""

SCENARIOS = ("new", "append", "torn", "empty")


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_nth_failure_is_told_and_leaves_what_was_there(memory: Path, scenario: str, code: int) -> None:
    step = 7 if code == errno.EIO else 1 if scenario == "append" else 3

    def fault(name: str) -> None:
        raise OSError(code, os.strerror(code))

    n_told = 0
    for n in range(1, 2000, step):
        path = memory / str(n) / "logs" / "orders-0"
        begin(path, scenario)
        old, before = files_in(path), kafkalog.Partition(path).log_end_offset if path.exists() else None
        faulty = Faulty(n, fault)
        told = None
        try:
            with faulty.installed():
                go_on(path, scenario)
        except WriteError as error:
            told = error.detail
        if told is not None:
            assert told.startswith(os.strerror(code))
            n_told += 1
            found = files_in(path)
            if scenario == "torn" and found != old:
                assert kafkalog.Partition(path).log_end_offset == before
                log = max(name for name in old if name.endswith(".log"))
                found[log] = old[log]
            assert found == old
        else:
            assert kafkalog.scan(path).count_rows() == 90 + 60 * (scenario in ("append", "torn"))
        assert os.listdir(path.parent) in ([], ["orders-0"])
        assert os.listdir(path.parent.parent) == ["logs"]
        shutil.rmtree(memory / str(n))
        if faulty.n_calls < n:
            break
    else:
        raise AssertionError("it never came to an end")
    assert n_told > 50 // step


KILLED = """
import os, signal, sys
from pathlib import Path
from faults import Faulty
from test_partition_writer import begin, go_on
root, scenario, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for n in range(1, 5000, step):
    path = root / str(n) / "logs" / "orders-0"
    begin(path, scenario)
    child = os.fork()
    if not child:
        with Faulty(n, lambda name: os.kill(os.getpid(), signal.SIGKILL)).installed():
            go_on(path, scenario)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        print(n)
        sys.exit(os.WEXITSTATUS(status))
"""


@pytest.mark.parametrize(
    "scenario", [pytest.param(one, marks=[] if one == "append" else pytest.mark.slow) for one in SCENARIOS]
)
def test_killed_anywhere_it_is_old_or_new_or_some_whole_segments_more(memory: Path, scenario: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    step = 1 if scenario == "append" else 2
    command = [sys.executable, "-c", KILLED, str(memory), scenario, str(step)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True, env=environment)
    n_points = int(done.stdout) - step
    assert n_points > 50
    begin(memory / "before" / "logs" / "orders-0", scenario)
    old = files_in(memory / "before" / "logs" / "orders-0")
    new = files_in(memory / str(n_points + step) / "logs" / "orders-0")
    states: dict[str, bool] = {}
    for n in range(1, n_points + 1, step):
        path = memory / str(n) / "logs" / "orders-0"
        assert os.listdir(path.parent) in ([], ["orders-0"])
        left = sorted(set(os.listdir(path.parent.parent)) - {"logs"})
        assert len(left) <= 1
        state = digest(path)
        if state in states:
            continue
        states[state] = True
        found = files_in(path)
        if scenario == "new":
            assert found in ({}, new)
            continue
        assert is_prefix(path, old, new), n
        # whatever it is, the next one goes on from there, and what was staged goes
        n_rows = kafkalog.scan(path).count_rows()
        write(path, 10, truncate_tail=True)
        assert kafkalog.scan(path).count_rows() == n_rows + 10
        assert [one for one in sound(path) if "index_sparse" not in one] == []
        assert nothing_left(path)
    assert len(states) == 2 if scenario == "new" else len(states) > 8


def test_interrupted_anywhere_it_is_as_before(memory: Path) -> None:
    path = memory / "logs" / "orders-0"
    path.parent.mkdir()
    write(path, 60, producer=(8, 0))
    old = files_in(path)

    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    n = 0
    for n in range(1, 5000, 2):
        faulty = Faulty(n, interrupt)
        try:
            with faulty.installed():
                go_on(path, "append")
        except KeyboardInterrupt:
            assert files_in(path) == old
            assert nothing_left(path)
        if faulty.n_calls < n:
            break
    assert n > 50
    assert files_in(path) != old


def test_short_writes_are_completed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path)
    whole = os.write
    monkeypatch.setattr("kafkalog.storage.staging.os.write", lambda fd, data: whole(fd, data[: max(len(data) // 3, 1)]))
    write(path.with_name("orders-1"))
    assert files_in(path.with_name("orders-1")) == files_in(path)


def test_a_file_system_that_cannot_exchange_names_will_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object) -> None:
        raise OSError(errno.EINVAL, "no flags here")

    monkeypatch.setattr(file_steps, "_renameat2", cannot)
    for _ in range(3):
        write(path, 40, leader_epoch=len(files_in(path)))
    assert kafkalog.scan(path).count_rows() == 120
    assert sound(path) == []
    assert nothing_left(path)


def test_no_descriptor_is_left_open(path: Path) -> None:
    def n_open() -> int:
        return len(os.listdir("/proc/self/fd"))

    write(path)
    before = n_open()
    write(path)
    with pytest.raises(ValueError):
        PartitionWriter(path, leader_epoch=-1)
    PartitionWriter(path).abort()
    writer = PartitionWriter(path)
    del writer
    assert n_open() == before
    assert nothing_left(path)


# ------------------------------------------------------------------------------------------------ forks and cleaners


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("way", ["close", "abort", "error"])
def test_a_fork_of_the_process_that_writes_takes_nothing_from_it(path: Path, is_there: bool, way: str) -> None:
    if is_there:
        write(path, 20)
    with PartitionWriter(path, config=SMALL) as writer:
        first = writer.append(columns_of(draw(100, 1))).first_offset
        child = os.fork()
        if not child:
            try:
                if way == "error":
                    writer.__exit__(SystemExit, SystemExit(0), None)
                else:
                    getattr(writer, way)()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        writer.append(columns_of(draw(50, 2)))
    assert read(path)[first:] == draw(100, 1) + draw(50, 2)
    assert sound(path) == []
    assert nothing_left(path)


def test_a_compacted_topic_takes_no_record_without_a_key(tmp_path: Path) -> None:
    compacted = LogConfig(cleanup_policy=("compact",))
    for columns in ({"value": [b"1"]}, {"key": [b"k", None], "value": [b"1", b"2"]}):
        with (
            pytest.raises(UnwritableError, match=r"row \d has no key, and compacted topics"),
            PartitionWriter(tmp_path / "t-0", config=compacted) as writer,
        ):
            writer.append(columns)
        assert not (tmp_path / "t-0").exists()
    with PartitionWriter(tmp_path / "t-0", config=compacted) as writer:
        assert writer.append({"key": [b"k"], "value": [None]}).last_offset == 0


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_what_could_not_be_read_again_is_not_written(compression: str, tmp_path: Path) -> None:
    limits = Limits(max_batch_bytes=10_000, max_decompressed_bytes=20_000, max_headers_per_record=100)
    noise = np.random.default_rng(1).bytes(10_000)
    cases = [
        ({"value": [noise]}, "max_batch_bytes"),
        ({"value": [b"small"], "headers": [[("h", b"")] * 101]}, "max_headers_per_record"),
    ]
    if compression == "zstd":
        cases.append(({"value": [bytes(20_001)]}, "max_decompressed_bytes"))
    for columns, name in cases:
        with (
            pytest.raises(UnwritableError, match=name),
            PartitionWriter(tmp_path / "t-0", compression=compression, limits=limits) as writer,
        ):
            writer.append(columns)
        assert not (tmp_path / "t-0").exists()
    with PartitionWriter(tmp_path / "t-0", compression=compression, limits=limits) as writer:
        writer.append({"value": [noise[:9000]], "headers": [[("h", b"")] * 100]})
    assert kafkalog.scan(tmp_path / "t-0", limits=limits).count_rows() == 1


@pytest.mark.parametrize(
    ("offset", "error"), [(-1, ValueError), (2**63, ValueError), (2**63 - 1, ValueError), (1.5, TypeError)]
)
def test_an_offset_that_cannot_be_one_is_refused_with_its_name(
    offset: Any, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error, match="start_offset"):
        PartitionWriter(tmp_path / "t-0", start_offset=offset)
    with pytest.raises(error, match="base_offset"), PartitionWriter(tmp_path / "t-0") as writer:
        writer.roll(offset)
    assert not (tmp_path / "t-0").exists()


LAST = 2**63 - 2


def test_the_last_offset_is_written_and_none_behind_it(path: Path) -> None:
    with PartitionWriter(path, start_offset=LAST - 1) as writer:
        writer.append({"value": [b"a"]})
        assert writer.append({"value": [b"b"], "offset": [LAST]}).last_offset == LAST
    assert kafkalog.read_table(path, columns=["offset"]).column(0).to_pylist() == [LAST - 1, LAST]
    numbers = RecordColumns(2, {**columns_of(draw(2)), "offset": np.array([5, 2**63 - 1])})
    for data, row, what in (
        ({"value": [b"a", b"b"], "offset": [5, 2**63 - 1]}, 1, "row 1 is 2\\^63 - 1, the largest there is"),
        ({"value": [b"a", b"b"], "offset": pa.array([5, 2**63], pa.uint64())}, 1, "row 1 is beyond 2\\^63 - 1"),
        (numbers, 1, "row 1 is beyond 2\\^63 - 2"),
        ({"value": [b"a"] * 4}, 2, f"row 2 would come behind offset {LAST}"),
    ):
        with (
            pytest.raises(UnwritableError, match=what) as caught,
            PartitionWriter(path.with_name("orders-1"), start_offset=None if "offset" in data else LAST - 1) as other,
        ):
            other.append(data)
        assert caught.value.row == row
    full = PartitionWriter(path.with_name("orders-1"), start_offset=LAST, producer=(1, 0))
    full.append({"value": [b"a"]}, transactional=True)
    with pytest.raises(ValueError, match="no batch has offset 9223372036854775807"):
        full.commit_transaction()
    full.abort()


def test_a_table_with_the_largest_offset_is_refused_for_that(tmp_path: Path) -> None:
    table = {"value": [b"a"], "offset": [2**63 - 1]}
    with pytest.raises(UnwritableError, match=r"'offset', row 0 is 2\^63 - 1, the largest"):
        kafkalog.write_table(table, tmp_path / "log", topic="t")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"config": {"segment.bytes": "1048576"}}, TypeError, "config is a LogConfig, not dict: .*from_properties"),
        ({"batch_size": "16K"}, TypeError, "batch_size must be an int, not '16K'"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1,"),
        ({"batch_size": None}, TypeError, "batch_size must be an int"),
        ({"max_records_per_batch": 1.5}, TypeError, "max_records_per_batch must be an int"),
        ({"max_records_per_batch": 0}, ValueError, "max_records_per_batch must be at least 1,"),
        ({"producer": 5}, TypeError, r"producer is Producer\(producer_id, producer_epoch\) or a tuple of both, not 5"),
        ({"producer": "ab"}, TypeError, "producer is"),
        ({"producer": ()}, TypeError, "producer is"),
        ({"producer": ("5", 0)}, TypeError, "producer_id must be an int, not '5'"),
        ({"producer": (2**63, 0)}, ValueError, "producer_id must be 0 to "),
        ({"producer": (1, 2**15)}, ValueError, "producer_epoch must be 0 to 32767"),
        ({"leader_epoch": "new"}, TypeError, "leader_epoch must be an int"),
        ({"leader_epoch": 2**31}, ValueError, "leader_epoch must be -1 to "),
        ({"log_append_time": -7}, ValueError, "log_append_time must be 0 to "),
        ({"log_append_time": -1}, ValueError, "log_append_time must be 0 to "),
        ({"log_append_time": "now"}, TypeError, "log_append_time must be an int"),
        ({"limits": {}}, TypeError, "limits is a Limits, not dict"),
    ],
)
def test_an_option_of_another_kind_is_refused_by_name(
    options: Any, error: type[Exception], message: str, path: Path
) -> None:
    with pytest.raises(error, match=message):
        PartitionWriter(path, **options)
    assert not path.exists()
    if "producer" in options:
        with pytest.raises(error, match=message), PartitionWriter(path) as writer:
            writer.append({"value": [b"x"]}, **options)


def test_a_marker_has_a_timestamp_that_kafka_would_take(path: Path) -> None:
    with PartitionWriter(path, producer=(1, 0)) as writer:
        writer.append({"value": [b"x"], "timestamp": [5]}, transactional=True)
        for wrong, error in ((-99, ValueError), (-2, ValueError), (2**63, ValueError), (1.5, TypeError)):
            with pytest.raises(error, match="timestamp must be "):
                writer.commit_transaction(timestamp=wrong)  # type: ignore[arg-type]
        writer.commit_transaction(timestamp=-1)
    assert kafkalog.Partition(path).segments[0].batches.max_timestamp.tolist() == [5, -1]


def test_records_with_times_before_1970_are_named_by_their_row(path: Path) -> None:
    records = [Record(timestamp=-1, value=bytes(100_000))] * 100 + [Record(timestamp=-2)]
    with pytest.raises(UnwritableError, match="row 100 is before 1970") as caught, PartitionWriter(path) as writer:
        writer.append(columns_of(records))
    assert (caught.value.row, caught.value.reason) == (100, Reason.COLUMN_VALUE)


def test_small_pieces_make_the_batches_of_large_ones(path: Path) -> None:
    table = pa.table({"value": [b"value %d" % row for row in range(20_000)]})
    contents = []
    for number, size in enumerate((20_000, 300)):
        target = path.with_name(f"orders-{number}")
        with PartitionWriter(target, batch_size=200_000) as writer:
            writer.append(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(size)))
        contents.append(files_in(target))
    assert contents[0] == contents[1]
    assert len(kafkalog.Partition(path.with_name("orders-0")).segments[0].batches) > 1
