"""The segments of a directory, as a broker would list them."""

from pathlib import Path

import builder
import numpy as np
import pytest
from plans import read
from refusals import fails_with

import kafkalog
from kafkalog.errors import DEFAULT_LIMITS, NotKafkaError
from kafkalog.interchange.file_types import VIRTUAL_DISKS
from kafkalog.log.segment_files import SegmentListing, open_segment
from kafkalog.scanning.planning import plan
from kafkalog.survey.startup_files import files_at_start
from kafkalog.survey.startup_load import LoadPlan, RootOffsets


def batch(base, n=5):
    records = [builder.record_v2(i, 0) for i in range(n)]
    return builder.batch_v2(records, base_offset=base, last_offset_delta=n - 1)


def listing(directory):
    return SegmentListing(directory, memory_map=False, limits=DEFAULT_LIMITS, topic_partition=None)


def name(offset, suffix=".log"):
    return f"{offset:020d}{suffix}"


@pytest.fixture
def directory(tmp_path):
    for base in (10, 0, 5):
        (tmp_path / name(base)).write_bytes(batch(base))
    return tmp_path


def test_segments_come_by_offset_and_the_last_one_is_known(directory):
    found = listing(directory)
    segments = found.load()
    assert [(one.base_offset, one.is_last) for one in segments] == [(0, False), (5, False), (10, True)]
    assert found.findings == []
    (one,) = found.load([directory / name(5)])
    assert (one.base_offset, one.is_last) == (5, False)


@pytest.mark.parametrize("after", ["swap", "circle"])
def test_what_a_broker_passes_over_does_not_follow_the_last_segment(directory, after):
    """A torn tail there was damage to readers, and normal to preflight."""
    if after == "swap":
        (directory / name(0, ".log.swap")).write_bytes(batch(0, 20))
    else:
        (directory / name(15)).symlink_to(name(15))
    segments = listing(directory).load()
    assert [one.is_last for one in segments] == [one is segments[-1] for one in segments]
    planned = LoadPlan(directory, RootOffsets({}, {}, [])).partition.segments
    assert [(one.path, one.is_last) for one in planned] == [(one.path, one.is_last) for one in segments]


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_parts_of_some_segments_end_as_the_segments_do(directory, n):
    """A torn tail of a segment that is not the last was normal to tasks, and damage to scans."""
    with (directory / name(5 * n - 5)).open("ab") as file:
        file.write(batch(5 * n)[:30])
    paths = [directory / name(base) for base in (0, 5, 10)[:n]]
    partition = kafkalog.Partition(directory, segments=paths)
    scan = kafkalog.scan(partition, columns=["offset"], on_corruption="skip")
    scan.count_rows()
    found = []
    read(plan(partition, on_corruption="skip"), report=found.append)
    assert [one.damage for one in found] == [one.damage for one in scan.findings] == [n < 3]


def test_names_that_are_no_offsets_are_notes(directory):
    for one in ("foo.log", "foo.index", "foo.snapshot", "notes.txt", name(3, ".log.deleted")):
        (directory / one).write_bytes(b"")
    (directory / "bar.log").mkdir()
    found = listing(directory)
    assert [one.base_offset for one in found.load()] == [0, 5, 10]
    notes = {Path(str(one.path)).name: one for one in found.findings}
    assert {"foo.log", "foo.snapshot", "bar.log"} <= set(notes) <= {"foo.log", "foo.index", "foo.snapshot", "bar.log"}
    assert all(one.reason == "unknown_file" and not one.damage for one in found.findings)
    assert "a broker does not start with it; name the file itself to read it" in notes["foo.log"].detail
    assert "so a broker does not read it" in notes["bar.log"].detail


def test_of_two_names_of_one_offset_the_one_that_brokers_read_counts(directory):
    for other, base in (("0.log", 0), ("5.log", 5), ("\u0660" * 20 + ".log", 0), ("7.log", 7)):
        (directory / other).write_bytes(batch(base, 3))
    found = listing(directory)
    assert [one.path.name for one in found.load()] == [name(0), name(5), "7.log", name(10)]
    assert {Path(one.path or "").name: (one.reason, one.damage, one.n_records) for one in found.findings} == (
        dict.fromkeys(("0.log", "5.log", "\u0660" * 20 + ".log"), ("unknown_file", True, 0))
        | {"7.log": ("unknown_file", False, 0)}
    )
    assert kafkalog.scan(directory / "0.log").count_rows() == 3


def test_a_directory_without_segments_is_a_note_and_one_that_is_gone_an_error(tmp_path):
    found = listing(tmp_path)
    assert found.load() == []
    assert [one.reason for one in found.findings] == ["segment_missing"]
    with fails_with("file_unreadable"):
        listing(tmp_path / "gone").load()


def test_a_swap_stands_for_the_segments_that_it_covers(directory):
    (directory / name(0, ".log.swap")).write_bytes(batch(0, 10))
    found = listing(directory)
    segments = found.load()
    assert [one.path.name for one in segments] == [name(0, ".log.swap"), name(10)]
    assert [(one.reason, one.damage) for one in found.findings] == [("swap_file", False)]
    # not yet complete where a `.cleaned` is at or below it
    (directory / name(0, ".log.cleaned")).write_bytes(b"")
    assert [one.path.name for one in listing(directory).load()] == [name(0), name(5), name(10)]
    (directory / name(0, ".log.cleaned")).rename(directory / name(1, ".log.cleaned"))
    assert [one.path.name for one in listing(directory).load()] == [name(0, ".log.swap"), name(10)]


def test_two_swaps_stand_for_all_between_them_as_for_a_broker(directory):
    """Source: LogLoader.load, Kafka 4.3."""
    (directory / name(0, ".log.swap")).write_bytes(batch(0))
    (directory / name(10, ".log.swap")).write_bytes(batch(10))
    found = listing(directory)
    assert [one.path.name for one in found.load()] == [name(0, ".log.swap"), name(10, ".log.swap")]
    assert [(one.base_offset, one.damage) for one in found.findings] == [(0, False), (10, False), (5, True)]
    assert files_at_start(directory).after() == {name(0), name(10)}
    assert "between two" in files_at_start(directory).removed[name(5)]


@pytest.mark.parametrize("number", range(60))
def test_readers_take_the_segments_that_a_broker_leaves(tmp_path, number):
    rng = np.random.default_rng(number)
    for base in range(0, 30, 5):
        for suffix, share in ((".log", 0.8), (".log.swap", 0.4), (".log.cleaned", 0.05)):
            if rng.random() < share:
                n = int(rng.integers(0, 12))
                (tmp_path / name(base, suffix)).write_bytes(batch(base, n) if n else b"")
    read_names = {one.path.name.removesuffix(".swap") for one in listing(tmp_path).load()}
    left = files_at_start(tmp_path)
    assert read_names == {one for one in left.after() if one.endswith(".log")}
    of_swaps = {one.path.name for one in listing(tmp_path).load() if one.path.suffix == ".swap"}
    assert of_swaps == left.renamed.keys()


def test_a_swap_that_cannot_be_read_stands_for_nothing(directory):
    data = bytearray(batch(0, 10) + batch(10))
    data[16] = 9  # no magic that there is
    (directory / name(0, ".log.swap")).write_bytes(data)
    found = listing(directory)
    assert [one.path.name for one in found.load()] == [name(0), name(5), name(10)]
    (finding,) = found.findings
    assert finding.damage
    assert "kafkalog ignores it" in finding.detail


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("x.log.gz", "unpack it to x.log"),
        (name(0, ".index"), f"name .*{name(0)}"),
        ("x.txt", "the file name must end in .log"),
        *((f"disk{suffix}", "mount the image") for suffix in (".img", ".ISO", *VIRTUAL_DISKS)),
        *((f"orders.{suffix}", "kafkalog load") for suffix in ("parquet", "ndjson", "csv.gz", "tsv", "feather")),
    ],
)
def test_a_file_that_is_no_segment_is_refused_with_what_helps(tmp_path, file, hint):
    (tmp_path / file).write_bytes(b"")
    with pytest.raises(NotKafkaError, match=hint):
        open_segment(tmp_path / file)


def test_a_segment_of_any_name_is_opened(tmp_path):
    (tmp_path / "copy.log").write_bytes(batch(7))
    segment = open_segment(tmp_path / "copy.log")
    assert isinstance(segment, kafkalog.Segment)
    assert segment.batches.base_offset.tolist() == [7]
