"""What a broker does with the files of a partition when it starts."""

from pathlib import Path

import builder
import golden_sets
import pytest
from refusals import fails_with
from startups import asked, logs

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import CorruptionError, Finding, ReadError
from kafkalog.survey.startup_end import end_as_loaded, last_intact_end
from kafkalog.survey.startup_files import epochs_problem, files_at_start, partition_directories, topic_id_problem


def test_damage_is_cut_only_where_a_broker_looks(partition):
    middle = logs(partition)[1]
    existed = kafkalog.read_table(partition, columns=["offset"])["offset"].to_numpy()
    data = bytearray(middle.read_bytes())
    data[len(data) // 2] ^= 1
    middle.write_bytes(data)
    assert asked(partition).n_bytes_lost == 0
    assert asked(partition, clean=True).verdict == "starts"
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    row = asked(partition)
    assert row.verdict == "loses"
    assert [one.action for one in row.segments] == ["recovered", "cut", "deleted"]
    assert row.n_bytes_lost == sum(path.stat().st_size for path in logs(partition)) - sum(
        one.n_bytes for one in row.segments
    )
    # markers are no records
    assert row.loss.n_records == (existed >= row.log_end_offset).sum() < 305 - row.log_end_offset
    # without its index it is recovered in a first pass, which deletes nothing
    middle.with_suffix(".index").unlink()
    assert [one.action for one in asked(partition).segments] == ["recovered", "cut", "recovered"]


def test_a_recovery_point_where_a_segment_begins_leaves_the_segments_before_it(partition):
    first, second, *_ = (int(path.stem) for path in logs(partition))
    for point, actions in ((second - 1, ["recovered"] * 3), (second, ["kept", "recovered", "recovered"])):
        (partition.parent / "recovery-point-offset-checkpoint").write_text(f"0\n1\np-txn-now 0 {point}\n")
        assert [one.action for one in asked(partition).segments] == actions
    assert first == 0


def test_the_marker_says_how_it_was_shut_down(partition):
    assert not kafkalog.preflight(partition.parent).is_clean
    (partition.parent / ".kafka_cleanshutdown").write_bytes(b"")
    result = kafkalog.preflight(partition.parent)
    assert result.is_clean
    assert repr(result) == "Preflight(1 partition, clean start: starts)"
    assert kafkalog.preflight(partition.parent, clean=False).n_bytes_needed == 2 * 10_485_760


def test_what_is_no_regular_file_is_passed_over(partition):
    middle = logs(partition)[1]
    middle.unlink()
    middle.mkdir()
    (partition / "00000000000000000001.log").symlink_to("nowhere")
    (partition.parent / "cleaner-offset-checkpoint").symlink_to("cleaner-offset-checkpoint")
    row = kafkalog.preflight(partition.parent).partitions[0]
    assert len(row.segments) == 2
    assert kafkalog.recover(partition.parent, dry_run=True).is_clean


def test_an_index_that_alone_ends_in_swap_is_renamed_before_the_segment_is_loaded(partition):
    index = logs(partition)[1].with_suffix(".index")
    index.rename(f"{index}.swap")
    row = asked(partition, clean=True)
    assert [one.action for one in row.segments] == ["kept"] * 3
    assert row.renamed == {f"{index.name}.swap": index.name}


def test_a_transaction_index_is_read_to_its_end(partition):
    middle = logs(partition)[1]
    middle.write_bytes(middle.read_bytes()[:100])  # room for no entry
    index = middle.with_suffix(".txnindex")
    index.write_bytes(index.read_bytes() + bytes(34))
    assert asked(partition, clean=True).segments[1].action == "cut"


@pytest.mark.parametrize("set_name", ["k44", "k28"])
def test_it_is_that_of_the_reader_where_all_is_well(set_name):
    for path in golden_sets.partitions(set_name).values():
        segment = kafkalog.Partition(path).segments[-1]
        assert end_as_loaded(segment) == segment.next_offset == last_intact_end(segment), path.name


def test_an_index_that_leads_past_the_end_moves_the_log_end(partition):
    last = max(partition.glob("*.log"))
    last.with_suffix(".index").write_bytes((5).to_bytes(4, "big") + (2**30).to_bytes(4, "big"))
    segment = kafkalog.Segment(last)
    assert (end_as_loaded(segment), last_intact_end(segment)) == (int(last.stem), 305)
    [row] = kafkalog.preflight(partition, clean=True).partitions
    assert (row.log_end_offset, row.verdict) == (int(last.stem), "loses")


def test_a_size_below_the_smallest_is_corrupt(tmp_path):
    path = tmp_path / f"{5:020d}.log"
    path.write_bytes(bytes(40))
    with pytest.raises(CorruptionError):
        end_as_loaded(kafkalog.Segment(path))
    assert last_intact_end(kafkalog.Segment(path)) == 5
    path.write_bytes(bytes(17))  # too short for a header
    assert end_as_loaded(kafkalog.Segment(path)) == 5


def name(offset, suffix):
    return f"{offset:020d}{suffix}"


def make(directory, *names):
    for one in names:
        (directory / one).write_bytes(b"")
    return directory


def test_a_swap_replaces_the_segments_that_it_covers(tmp_path):
    make(tmp_path, *(name(base, suffix) for base in (0, 10, 20, 30) for suffix in (".log", ".index")))
    (tmp_path / name(10, ".log.swap")).write_bytes(builder.batch_v2(base_offset=10, last_offset_delta=14))
    make(tmp_path, name(10, ".index.swap"))
    found = files_at_start(tmp_path)
    assert set(found.removed) == {name(base, suffix) for base in (10, 20) for suffix in (".log", ".index")}
    assert found.renamed == {name(10, f"{suffix}.swap"): name(10, suffix) for suffix in (".log", ".index")}
    assert found.after() == {name(base, suffix) for base in (0, 10, 30) for suffix in (".log", ".index")}


def test_what_stops_a_broker_is_the_problem(tmp_path):
    make(tmp_path, "foo.log", name(0, ".log"))
    assert str(files_at_start(tmp_path).problem(tmp_path)).startswith(
        f"{tmp_path}/foo.log: unknown_file: not named after"
    )
    (tmp_path / "foo.log").unlink()
    (tmp_path / name(0, ".log.swap")).write_bytes(builder.batch_v2(base_offset=0, crc=1) + bytes(61))
    swap = tmp_path / name(0, ".log.swap")
    assert str(files_at_start(tmp_path).problem(tmp_path)).startswith(f"{swap}: swap_file")
    with fails_with("file_unreadable"):
        files_at_start(tmp_path / "gone")


def test_directories_of_partitions_and_findings_of_others(tmp_path):
    root, elsewhere = tmp_path / "data", tmp_path / "elsewhere-0"
    root.mkdir()
    elsewhere.mkdir()
    for one in ("t-0", "t-1", "nonsense", "remote-log-index-cache", f"t-2.{'a' * 32}-delete"):
        (root / one).mkdir()
    make(root, "meta.properties")
    (root / "u-0").symlink_to(elsewhere)
    (root / "u-1").symlink_to(root / "t-0")
    found = [(type(one), one.path if isinstance(one, Finding) else str(one)) for one in partition_directories(root)]
    assert [(kind is Finding, Path(str(path)).name) for kind, path in found] == [
        (True, "nonsense"), (False, "t-0"), (False, "t-1"), (False, f"t-2.{'a' * 32}-delete"), (True, "u-0"),
        (False, "u-1"),
    ]  # fmt: skip
    with pytest.raises(ReadError):
        list(partition_directories(tmp_path / "gone"))


ID = "pVtd5q9fv17AmQxDD_e9Gw"


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("0\n1\n0 0\n", True),
        ("", True),
        ("0\n", True),
        ("0\n2\n3 5\n1 9", True),  # it only drops what does not rise
        ("1\n1\n0 0\n", False),
        ("0\n2\n0 0\n", False),
        ("0\n1\n0 0 0\n", False),
        ("0 \n1\n0 0\n", False),
        ("0\n1\n 0 0\n", False),
        ("0\n1\n 5\n", False),
        ("0\n7\nx 0\n", False),
        ("0\n1\n3000000000 0\n", False),
        ("0\n-2\n", False),
        ("0\n1\n-1 0\n", False),
        ("0\n1\n0 -5\n", False),
    ],
)
def test_leader_epochs(tmp_path, text, starts):
    (tmp_path / kf.LEADER_EPOCH_CHECKPOINT).write_text(text)
    assert (epochs_problem(tmp_path) is None) == starts


def test_a_link_to_nowhere_and_no_file(tmp_path):
    assert epochs_problem(tmp_path) is None
    assert topic_id_problem(tmp_path) is None
    (tmp_path / kf.LEADER_EPOCH_CHECKPOINT).symlink_to("nowhere")
    assert epochs_problem(tmp_path) is not None


@pytest.mark.parametrize(
    ("data", "starts"),
    [
        (f"version: 0\ntopic_id: {ID}".encode(), True),
        (f"version: 0\r\ntopic_id: {ID}\nmore".encode(), True),
        (f"version: 1\ntopic_id: {ID}".encode(), True),
        # a broker does not look at the last bits
        (f"version: 0\ntopic_id: {ID[:-1]}x".encode(), True),
        (f"version: 0\ntopic_id: {ID}==".encode(), True),
        (f"version: 0\ntopic_id: {ID[:-1]}+".encode(), False),
        (f"version:0\ntopic_id: {ID}".encode(), False),
        (f"version: x\ntopic_id: {ID}".encode(), False),
        (b"version: 0\ntopic_id: " + b"A" * 22, False),
        (b"version: 0\ntopic_id: \xff" + b"A" * 21, False),
        (b"version: 0", False),
        (b"", False),
        (b"version: 0\ntopic_id: short", False),
        (f"version: 0\ntopic_id: {ID}{ID}".encode(), False),
    ],
)
def test_topic_id(tmp_path, data, starts):
    (tmp_path / kf.PARTITION_METADATA).write_bytes(data)
    assert (topic_id_problem(tmp_path) is None) == starts
