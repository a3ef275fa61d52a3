"""What is written comes out again; a partition that is there goes on; whatever fails, it is old or whole."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import golden_sets
import pyarrow as pa
import pytest
from effort import thinned
from files import broker_on
from peaks import NEEDS_PROC, printed_by
from refusals import fails_with
from writing import (
    SMALL,
    TOPIC_ID,
    Record,
    columns_of,
    draw,
    files_in,
    nothing_left,
    read,
    sound,
    write,
    write_two_and_roll,
)

import kafkalog
from kafkalog import LogConfig, PartitionWriter
from kafkalog import format as kf
from kafkalog.errors import (
    TransactionWarning,
    UnsafePathError,
    UnwritableError,
)
from kafkalog.records.batch_table import BatchTable, Window
from kafkalog.state.checkpoints import encode_partition_metadata, parse_topic_id, read_leader_epochs
from kafkalog.state.producers import read_snapshot

EPOCHS = "leader-epoch-checkpoint"


# ------------------------------------------------------------------------------------------- what comes out again


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_written_comes_out_again(path, codec):
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


@NEEDS_PROC
@pytest.mark.slow
def test_memory_does_not_grow_with_what_is_written(tmp_path):
    program = """
import sys
import pyarrow as pa
from kafkalog import PartitionWriter
from peaks import peak
def batches(n):
    for _ in range(n):
        yield pa.record_batch({"value": [bytes(1000)] * 4000})
schema = pa.schema({"value": pa.binary()})
peaks = []
for n in (10, 80):
    with PartitionWriter(f"{sys.argv[1]}/orders-{n}", compression="snappy") as writer:
        writer.append(pa.RecordBatchReader.from_batches(schema, batches(n)))
    peaks.append(peak() // 2**20)
print(*peaks)
"""
    (tmp_path / "logs").mkdir()
    first, second = map(int, printed_by(program, tmp_path / "logs").split())
    assert second - first < 48, "MiB, for 320 MB of records"


def test_offsets_are_kept_and_go_on(path):
    with PartitionWriter(path, config=SMALL) as writer:
        writer.append(columns_of([record._replace(offset=1000 + 7 * row) for row, record in enumerate(draw(50))]))
        assert writer.next_offset == 1344
        result = writer.append(columns_of(draw(3)))
        assert (result.first_offset, result.last_offset) == (1344, 1346)
    table = kafkalog.read_table(path, columns=["offset"]).column(0).to_pylist()
    assert table == [*(1000 + 7 * row for row in range(50)), 1344, 1345, 1346]
    assert kafkalog.Partition(path).log_start_offset == 1000
    assert sound(path) == []


def test_a_partition_of_nothing_is_one(path):
    with PartitionWriter(path, start_offset=77):
        pass
    assert sorted(files_in(path).items()) == [
        (f"{77:020d}{suffix}", b"") for suffix in (".index", ".log", ".timeindex")
    ]
    assert kafkalog.Partition(path).log_end_offset == 77


def test_log_append_time_is_what_all_records_say(path):
    write(path, timestamp_type="LogAppendTime", log_append_time=1234)
    assert {record.timestamp for record in read(path)} == {1234}
    assert set(kafkalog.read_table(path, columns=["timestamp_type"]).column(0).to_pylist()) == {1}
    topic = LogConfig(message_timestamp_type="LogAppendTime")
    for number, (chosen, expected) in enumerate([(None, 1), (kf.TimestampType.CREATE_TIME, 0), ("CreateTime", 0)], 1):
        target = path.with_name(f"orders-{number}")
        write(target, 5, config=topic, timestamp_type=chosen)
        assert kafkalog.read_table(target, columns=["timestamp_type"]).column(0).to_pylist() == [expected] * 5


def test_transactions_come_out_as_they_ended(path):
    writer = PartitionWriter(path, config=SMALL, batch_size=300, producer=(5, 1))
    writer.append(columns_of(draw(20, 1)))
    writer.append(columns_of(draw(20, 2)), transactional=True)
    assert writer.abort_transaction() == 40
    writer.append(columns_of(draw(20, 3)), transactional=True)
    with pytest.raises(ValueError, match="producer 5"):
        writer.append(columns_of(draw(1)))
    with pytest.raises(ValueError, match="producer 6"):
        writer.commit_transaction(producer=(6, 0))
    assert writer.commit_transaction(timestamp=77) == 61
    writer.append(columns_of(draw(20, 4)), producer=(6, 0), transactional=True)
    with pytest.raises(ValueError):
        writer.append(columns_of(draw(1)), producer=(5, 0))
    with pytest.warns(TransactionWarning, match="producer 6"):
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


def test_a_transaction_that_is_left_open_is_warned_of_by_who_appends_records(path):
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
    with pytest.warns(TransactionWarning, match="producer 7"):
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


# ----------------------------------------------------------------------------------- behind a partition that is there


GOLDEN = ("p-txn-0", "p-headers-0", "p-compact-idem-0", "p-empty-0", "p-segms-0", "p-delrec-0", "p-idxroll-0")


@pytest.mark.parametrize("name", GOLDEN)
def test_a_broker_s_partition_goes_on_in_new_segments(tmp_path, name):
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


def test_nothing_appended_changes_nothing(path):
    write(path)
    old = files_in(path)
    with PartitionWriter(path):
        pass
    assert files_in(path) == old


# --------------------------------------------------------------------------------------------------- what is refused


def test_nothing_is_written_under_a_broker(path):
    (path.parent / "meta.properties").write_text("version=1\n")
    write(path)
    assert (path.parent / ".lock").exists()
    with PartitionWriter(path), PartitionWriter(path.with_name("orders-1")):
        pass  # who holds the lock may write more partitions
    old = files_in(path)
    with broker_on(path.parent):
        for target in (path, path.with_name("orders-2")):
            with fails_with("unsafe_path"):
                PartitionWriter(target)
    assert files_in(path) == old
    code = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)"
    with PartitionWriter(path):
        busy = subprocess.run(
            [sys.executable, "-c", code, str(path.parent / ".lock")], capture_output=True, check=False
        )
    assert b"BlockingIOError" in busy.stderr
    subprocess.run([sys.executable, "-c", code, str(path.parent / ".lock")], check=True)


def test_options_that_contradict_what_is_there_are_refused(path):
    write(path, topic_id=TOPIC_ID, leader_epoch=5)
    with pytest.raises(UnsafePathError, match=TOPIC_ID):
        PartitionWriter(path, topic_id="A" * 21 + "Q")
    with pytest.raises(ValueError, match="leader_epoch"):
        PartitionWriter(path, leader_epoch=4)
    with pytest.raises(ValueError, match="start_offset"):
        PartitionWriter(path, start_offset=7)
    with PartitionWriter(path, topic_id=TOPIC_ID, leader_epoch=7) as writer:
        writer.append(columns_of(draw(5)))
    assert (path / EPOCHS).read_bytes() == b"0\n2\n5 0\n7 150\n"
    for wrong in ({"timestamp_type": "Never"}, {"compression": "zip"}, {"topic_id": "x"}, {"topic_id": "A" * 22}):
        with pytest.raises(ValueError):
            PartitionWriter(path.with_name("other-0"), **wrong)
    assert nothing_left(path)
    assert parse_topic_id(bytes(15) + b"\1") == "A" * 21 + "Q"
    assert encode_partition_metadata("x").endswith(b"x")


def test_after_an_error_nothing_more_is_taken_and_nothing_appears(path):
    cases = [
        (columns_of([Record(offset=5), Record(offset=5)]), ValueError),
        (columns_of([Record(offset=3), Record(offset=2)]), ValueError),
        (pa.table({"value": ["x"], "offset": [-1]}), UnwritableError),
        (pa.table({"wert": ["x"]}), UnwritableError),
        (42, TypeError),
    ]
    for data, expected in cases:
        writer = PartitionWriter(path, config=SMALL)
        writer.append(columns_of(draw(100)))
        with pytest.raises(expected):
            writer.append(data)
        with pytest.raises(ValueError):
            writer.append(columns_of(draw(1)))
        with fails_with("write_failed"):
            writer.close()
        with pytest.raises(ValueError):
            writer.append(columns_of(draw(1)))
        assert os.listdir(path.parent) == []

    def fail():
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


def test_batches_have_to_go_on(path):
    write(path, 20)
    with kafkalog.Partition(path).segments[0].open() as source:
        (window,) = kafkalog.Partition(path).segments[0].iter_windows(source)
        with pytest.raises(ValueError), PartitionWriter(path) as writer:
            writer.append_batches(window)
        with PartitionWriter(path.with_name("orders-1"), config=SMALL) as writer:
            assert writer.append_batches(Window(window.data, 0, BatchTable.empty())).n_batches == 0
            rows = window.batches[::2]  # with gaps between them
            result = writer.append_batches(window._replace(batches=rows), modified_ms=1000)
            assert result.n_batches == len(rows)
            writer.roll(500)
            writer.roll(500)
            writer.roll(2**40)
            with pytest.raises(ValueError, match="before the end of the log"):
                writer._files.roll(3)
    partition = kafkalog.Partition(path.with_name("orders-1"))
    assert [segment.base_offset for segment in partition.segments] == [0, 500, 2**40]
    assert [segment.size_in_bytes for segment in partition.segments][1:] == [0, 0]
    assert partition.segments[0].batches.base_offset.tolist() == rows.base_offset.tolist()
    assert partition.segments[0].path.stat().st_mtime == 1
    assert partition.segments[1].path.stat().st_mtime == 0
    assert sound(partition.path) == []


# ------------------------------------------------------------------------------------------------ forks and cleaners


def test_a_marker_has_a_timestamp_that_kafka_would_take(path):
    with PartitionWriter(path, producer=(1, 0)) as writer:
        writer.append({"value": [b"x"], "timestamp": [5]}, transactional=True)
        for wrong, error in ((-99, ValueError), (-2, ValueError), (2**63, ValueError), (1.5, TypeError)):
            with pytest.raises(error, match="timestamp"):
                writer.commit_transaction(timestamp=wrong)
        writer.commit_transaction(timestamp=-1)
    assert kafkalog.Partition(path).segments[0].batches.max_timestamp.tolist() == [5, -1]


def test_a_topic_s_codec_is_taken_if_none_is_said(path):
    topic = LogConfig(compression_type="zstd", compression_zstd_level=5)
    for number, (given, expected) in enumerate([(None, 4), ("none", 0), ("gzip", 1)]):
        target = path.with_name(f"orders-{number}")
        write(target, 50, config=topic, compression=given)
        assert set(kafkalog.Partition(target).segments[0].batches.codec.tolist()) == {expected}
    write(path.with_name("orders-9"), 50, config=LogConfig(compression_type="uncompressed"))
    with pytest.raises(ValueError):
        PartitionWriter(path.with_name("orders-10"), compression="snappy", compression_level=3)


NO_NAMES = ["orders", "orders-", "-0", "orders-x", "orders-00", "orders-+1", "orders-2147483648", ".-0",
            "..-0", "a b-0", "a/../b-0x", "é-0", "a\n-0", "orders-0.0123456789abcdef0123456789abcdef-delete",
            "a" * 250 + "-0", "__cluster_metadata-0", "ord\x1bers-0", "orders-٣"]  # fmt: skip


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_are_no_partition_s_are_refused(tmp_path, name):
    with pytest.raises(UnsafePathError):
        PartitionWriter(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_the_longest_name_will_do(tmp_path):
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs" / ("a" * 249 + "-12345"))
    assert sound(tmp_path / "logs" / ("a" * 249 + "-12345")) == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"config": {"segment.bytes": "1048576"}}, TypeError, "config must be a LogConfig, not .*from_properties"),
        ({"batch_size": "16K"}, TypeError, "batch_size must be an int, not '16K'"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1,"),
        ({"batch_size": None}, TypeError, "batch_size must be an int"),
        ({"max_records_per_batch": 1.5}, TypeError, "max_records_per_batch must be an int"),
        ({"max_records_per_batch": 0}, ValueError, "max_records_per_batch must be at least 1,"),
        ({"producer": 5}, TypeError, "producer must be a Producer or a tuple of int and int, not 5"),
        ({"producer": "ab"}, TypeError, "producer must be"),
        ({"producer": ()}, TypeError, "producer must be"),
        ({"producer": ("5", 0)}, TypeError, "producer(_id)? must be"),
        ({"producer": (2**63, 0)}, ValueError, "producer_id must be 0 to "),
        ({"producer": (1, 2**15)}, ValueError, "producer_epoch must be 0 to 32767"),
        ({"leader_epoch": "new"}, TypeError, "leader_epoch must be an int"),
        ({"leader_epoch": 2**31}, ValueError, "leader_epoch must be -1 to "),
        ({"log_append_time": -7}, ValueError, "log_append_time must be 0 to "),
        ({"log_append_time": -1}, ValueError, "log_append_time must be 0 to "),
        ({"log_append_time": "now"}, TypeError, "log_append_time must be an int"),
        ({"limits": {}}, TypeError, "limits must be a Limits, not {}; use limits=kafkalog.Limits"),
    ],
)
def test_an_option_of_another_kind_is_refused_by_name(options, error, message, path):
    with pytest.raises(error, match=message):
        PartitionWriter(path, **options)
    assert not path.exists()
    if "producer" in options:
        with pytest.raises(error, match=message), PartitionWriter(path) as writer:
            writer.append({"value": [b"x"]}, **options)


# appends to a partition, with a pause before each step that brings files into place
WRITER = f"""
import json, os, random, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
import fcntl
from pathlib import Path
from kafkalog.storage import moves
from kafkalog.errors import KafkalogError
from kafkalog.writing.partition_writer import PartitionWriter

path, together, name, seed, locks = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
pause = random.Random(seed)

def slowly(step):
    def call(*args, **options):
        time.sleep(pause.choice([0, 0.02, 0.05]))
        return step(*args, **options)
    return call

for step in ("rename_new", "swap", "fsync_directory"):
    setattr(moves, step, slowly(getattr(moves, step)))
if locks == "no":
    def cannot(*_):
        raise OSError(95, "no locks on this file system")
    fcntl.flock = cannot
try:
    with PartitionWriter(path) as writer:
        writer.append({{"value": [f"{{name}} {{i}}".encode() for i in range(3)], "timestamp": [1, 2, 3]}})
        (together / name).touch()
        # closes when the other is about to, or has given up
        for _ in range(20_000):
            if len(os.listdir(together)) == 2:
                break
            time.sleep(0.01)
    said = 0
except KafkalogError as error:
    said = type(error).__name__
(together / name).touch()
print(json.dumps(said))
"""


@pytest.fixture
def two(tmp_path):
    return write_two_and_roll(tmp_path / "logs" / "orders-0")


def run_two(path, together, seed, locks):
    """What the two said: 0, or which error."""
    together.mkdir()
    names = ("left", "right")
    commands = [
        [sys.executable, "-c", WRITER, str(path), str(together), name, str(2 * seed + i), locks]
        for i, name in enumerate(names)
    ]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    said = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return dict(zip(names, map(json.loads, said), strict=True))


@pytest.mark.parametrize(("seed", "locks"), thinned(itertools.product(range(5), ["yes", "no"]), 10))
def test_what_a_writer_appended_beside_another_one_is_there(two, tmp_path, seed, locks):
    said = run_two(two, tmp_path / "together", seed, locks)
    winners = [name for name, error in said.items() if error == 0]
    expected = [b"old 0", b"old 1", *(f"{name} {i}".encode() for name in winners for i in range(3))]
    assert kafkalog.read_table(two)["value"].to_pylist() == expected, said
    assert kafkalog.verify(two).ok
    assert len(winners) < 2
    if locks == "yes":
        assert sorted(map(str, said.values())) == ["0", "UnsafePathError"]
    with PartitionWriter(two) as writer:
        writer.append({"value": [b"more"], "timestamp": [9]})
    assert kafkalog.read_table(two)["value"].to_pylist() == [*expected, b"more"]
