"""The one pass of a scan: threads, windows and an early end change nothing of what is read."""

from pathlib import Path

import builder
import pytest
from effort import THOROUGH, thinned
from peaks import NEEDS_PROC, printed_by
from refusals import fails_with

import kafkalog


def test_a_segment_of_one_window_is_read_without_its_index_and_without_threads(log_dir, monkeypatch):
    expected = kafkalog.scan(log_dir / "p-multi-0", threads=1).count_rows()

    def fail(*arguments):
        raise AssertionError

    monkeypatch.setattr("kafkalog.log.segment.Segment.read_index", fail)
    monkeypatch.setattr("threading.Thread.start", fail)
    assert kafkalog.scan(log_dir / "p-multi-0", threads=4).count_rows() == expected > 0


@pytest.mark.slow
@NEEDS_PROC
@pytest.mark.parametrize(("memory_map", "threads"), thinned([(False, 2), ("auto", 1), (True, 2)], 3))
def test_streaming_a_large_file_takes_bounded_memory(tmp_path, log_dir, memory_map, threads):
    """The peak of a process that streams 200 MB, less that of one that streams 1 MB: within the documented 32 MiB."""
    program = f"""
import sys
from pathlib import Path
import kafkalog
from peaks import peak
batch = Path({str(log_dir)!r}, "p-headers-0", "00000000000000000000.log").read_bytes()
size = 12 + int.from_bytes(batch[8:12], "big")
count = int.from_bytes(batch[23:27], "big") + 1
directory = Path(sys.argv[1])
directory.mkdir()
n = 0
with open(directory / "00000000000000000000.log", "wb") as f:
    while f.tell() < int(sys.argv[2]):
        f.write(n.to_bytes(8, "big") + batch[8:size])
        n += count
(directory / "00000000000999999999.log").touch() # so that the one before is closed
rows = sum(len(b) for b in kafkalog.scan(directory, memory_map={memory_map!r}, threads={threads}).to_reader())
assert rows == n
print(peak() // 2**20)
"""
    sizes = {"small-0": 10**6, "large-0": (200 if THOROUGH else 50) * 10**6}
    small, large = (int(printed_by(program, tmp_path / name, size)) for name, size in sizes.items())
    assert large - small <= 32, f"{small} MiB for 1 MB, {large} MiB for the large one"


def test_limits_hold_for_batches_inside_a_window_too(log_dir):
    path = log_dir / "p-multi-0" / "00000000000000000000.log"
    sizes = kafkalog.Segment(path).batches.size_in_bytes
    limits = kafkalog.Limits(max_batch_bytes=int(sizes.max()) - 1)
    with fails_with("batch_too_large") as caught:
        kafkalog.scan(path, limits=limits).count_rows()
    assert caught.value.length == sizes.max()
    assert kafkalog.scan(path, limits=kafkalog.Limits(max_batch_bytes=int(sizes.max()))).count_rows() > 0


def test_a_scan_given_up_early_leaves_no_file_open(log_dir):
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for threads in (1, 3):
        for _ in range(20):
            kafkalog.scan(log_dir, threads=threads).head(1)
            next(kafkalog.scan(log_dir, threads=threads, batch_size=1).to_batches())
    assert len(list(descriptors.iterdir())) <= before + 1


def _with_damaged_marker(root, *, damage):
    """A partition whose second batch is damaged: a marker, or a data batch that a flipped bit makes one.

    Returns the path, and the position and the offset of that batch.
    """
    kinds = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    first = builder.batch_v2([builder.record_v2(0, 0, None, b"a")], base_sequence=0, **kinds)
    marker = bytearray(builder.control_batch(builder.COMMIT, base_offset=1, producer_id=7, producer_epoch=0))
    if damage == "data":
        marker = bytearray(builder.batch_v2([builder.record_v2(0, 0, None, b"b")], base_offset=1))
        marker[22] ^= 32  # the bit of a control batch
    else:
        marker[-1] ^= 1
    last = builder.batch_v2([builder.record_v2(0, 0, None, b"c")], base_offset=2)
    partition = root / "t-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(first + bytes(marker) + last)
    return partition, len(first), 1


_WAYS_TO_READ = {
    "one thread": {},
    "threads": {"threads": 2},
    "a mapping": {"memory_map": True},
    "a mapping, threads": {"memory_map": True, "threads": 2},
    "record by record": {"filters": [("value", "!=", b"")]},
    "a range of time": {"start_timestamp": 0},
    "control records": {"include_control": True},
}


@pytest.mark.parametrize("damage", ["marker", "data"])
@pytest.mark.parametrize("options", _WAYS_TO_READ.values(), ids=_WAYS_TO_READ)
def test_a_control_batch_with_a_wrong_checksum_is_damage_however_it_is_read(tmp_path, options, damage):
    path, position, offset = _with_damaged_marker(tmp_path, damage=damage)
    with pytest.raises(kafkalog.CorruptionError) as raised:
        kafkalog.read_table(path, **options)
    assert (raised.value.reason, raised.value.position) == ("crc_mismatch", position)
    for policy, left in (("skip", [b"a", b"c"]), ("stop", [b"a"])):
        scan = kafkalog.scan(path, columns=["value"], on_corruption=policy, **options)
        with pytest.warns(kafkalog.CorruptionWarning):
            assert scan.to_table()["value"].to_pylist() == left
        (finding,) = scan.findings
        assert (finding.reason, finding.position, finding.base_offset) == ("crc_mismatch", position, offset)
    # who does not ask for checksums, or for these offsets, is not told
    unchecked = kafkalog.scan(path, check_crcs=False, **{**options, "include_control": False})
    assert unchecked.to_table()["value"].to_pylist() == [b"a", b"c"]
    assert not unchecked.findings
    assert kafkalog.read_table(path, start_offset=2, **options)["value"].to_pylist() == [b"c"]
    assert kafkalog.read_table(path, end_offset=1, **options)["value"].to_pylist() == [b"a"]


def test_a_finding_about_files_that_are_not_read_ends_no_reading(tmp_path):
    path = tmp_path / "t-0"
    path.mkdir()
    first, last = (builder.batch_v2([builder.record_v2(0, 0, None, b"v")], base_offset=offset) for offset in (0, 1))
    (path / f"{0:020d}.log").write_bytes(first + last)
    (path / f"{0:020d}.log.swap").write_bytes(first + last[:8] + b"\xff" * 8 + last[16:])
    lost = []
    for policy in ("skip", "stop"):
        scan = kafkalog.scan(path, on_corruption=policy)
        with pytest.warns(kafkalog.CorruptionWarning):
            assert scan.to_table()["offset"].to_pylist() == [0, 1]
        lost += [(finding.base_offset, finding.n_records) for finding in scan.findings]
    assert len(lost) == 2
    assert lost[0] == lost[1]
