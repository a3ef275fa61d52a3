"""A batch whose offset was changed, which no checksum covers: that one is blamed and passed over, no neighbour is."""

import warnings

import builder
import pytest
from effort import thinned

import kafkalog

N_BATCHES, N_RECORDS = 40, 10
LOG = f"{0:020d}.log"


def batch(offset, n=N_RECORDS):
    records = [builder.record_v2(value=b"%d" % (offset + row), offset_delta=row) for row in range(n)]
    return builder.batch_v2(records, base_offset=offset)


def moved(data, offset):
    return offset.to_bytes(8, "big", signed=True) + data[8:]


def make(directory, batches, name=LOG):
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(b"".join(batches))
    return directory


def skip(path):
    """Offsets, and the damage."""
    scan = kafkalog.scan(path, columns=["offset"], on_corruption="skip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        offsets = scan.to_table().column(0).to_pylist()
    return offsets, [finding for finding in scan.findings if finding.damage]


def all_but(row, n=N_BATCHES):
    return [offset for offset in range(n * N_RECORDS) if offset // N_RECORDS != row]


@pytest.mark.parametrize("bit", thinned(range(63), 4))
def test_any_flipped_bit_costs_that_batch_and_no_other(tmp_path, bit):
    batches = [batch(row * N_RECORDS) for row in range(N_BATCHES)]
    row = 17
    batches[row] = moved(batches[row], (row * N_RECORDS) ^ (1 << bit))
    path = make(tmp_path / "t-0", batches)
    position = sum(map(len, batches[:row]))
    with pytest.raises(kafkalog.CorruptionError) as caught:
        kafkalog.read_table(path)
    assert (caught.value.reason, caught.value.position) == ("offset_order", position)
    offsets, found = skip(path)
    assert offsets == all_but(row)
    assert [one.position for one in found] == [position]
    assert (found[0].base_offset, found[0].last_offset) == (row * N_RECORDS, row * N_RECORDS + N_RECORDS - 1)
    assert (found[0].n_records, found[0].certainty) == (N_RECORDS, "exact")
    assert [one.position for one in kafkalog.verify(path).findings if one.damage] == [position]


@pytest.mark.parametrize("shift", [1000, -6, 3])
@pytest.mark.parametrize("row", [0, 1, N_BATCHES - 2, N_BATCHES - 1])
def test_the_first_and_the_last_batches_of_a_log(tmp_path, row, shift):
    batches = [batch(row * N_RECORDS) for row in range(N_BATCHES)]
    batches[row] = moved(batches[row], row * N_RECORDS + shift)
    path = make(tmp_path / "t-0", batches)
    # where the log ends is known by what a broker writes when it stops
    (path / f"{N_BATCHES * N_RECORDS:020d}.snapshot").write_bytes(b"")
    assert skip(path)[0] == all_but(row)


def test_a_batch_at_the_end_of_a_segment_that_reaches_into_the_next(tmp_path):
    half = N_BATCHES // 2
    first = [batch(row * N_RECORDS) for row in range(half)]
    first[-1] = moved(first[-1], (half - 1) * N_RECORDS + 1000)
    path = make(tmp_path / "t-0", first)
    make(path, [batch(row * N_RECORDS) for row in range(half, N_BATCHES)], f"{half * N_RECORDS:020d}.log")
    offsets, found = skip(path)
    assert offsets == all_but(half - 1)
    assert [one.position for one in found] == [sum(map(len, first[:-1]))]


def test_in_a_compacted_log_the_index_tells(tmp_path):
    starts = [0, 50, 100, 170, 200, 280, 300]
    batches = [batch(start) for start in starts]
    batches[3] = moved(batches[3], 195)  # up to 204, and the next begins at 200
    path = make(tmp_path / "t-0", batches)
    sizes = [sum(map(len, batches[:row])) for row in range(len(batches))]
    entries = b"".join((starts[row] + 9).to_bytes(4, "big") + sizes[row].to_bytes(4, "big") for row in (2, 4))
    (path / f"{0:020d}.index").write_bytes(entries)
    assert skip(path)[0] == [start + delta for start in starts if start != 170 for delta in range(N_RECORDS)]


def test_a_batch_that_lies_there_twice_is_given_once(tmp_path):
    batches = [batch(row * N_RECORDS) for row in range(N_BATCHES)]
    path = make(tmp_path / "t-0", [*batches[:20], *batches[15:20], *batches[20:]])
    offsets, found = skip(path)
    assert offsets == list(range(N_BATCHES * N_RECORDS))
    assert [one.n_records for one in found] == [0] * 5
    assert "a copy of the batch at position" in found[0].detail
    assert "returned once" in found[0].detail


def test_a_log_that_goes_back_for_good_is_read_on(tmp_path):
    path = make(
        tmp_path / "t-0", [batch(row * N_RECORDS + 500) for row in range(4)] + [batch(n * 10) for n in range(9)]
    )
    offsets, found = skip(path)
    assert offsets == [*range(500, 540), *range(90)]
    assert [one.n_records for one in found] == [0]


def test_legacy_messages_have_offsets_that_no_checksum_covers_either(tmp_path):
    messages = [builder.message(offset, value=b"v", magic=1, timestamp=offset) for offset in range(50)]
    messages[20] = moved(messages[20], 1020)
    path = make(tmp_path / "t-0", messages)
    assert skip(path)[0] == [offset for offset in range(50) if offset != 20]


def test_a_lookup_that_jumps_to_the_last_batch_blames_nothing(tmp_path):
    path = make(tmp_path / "t-0", [batch(row * N_RECORDS) for row in range(N_BATCHES)])
    kafkalog.reindex(path, kinds=["offset", "time"], in_place=True, index_interval_bytes=0)
    # a broker that was killed has no later one; by chance it is where a log of that one batch would end
    (path / f"{N_RECORDS:020d}.snapshot").write_bytes(b"")
    end = N_BATCHES * N_RECORDS
    (partition,) = [kafkalog.open(path)]
    assert isinstance(partition, kafkalog.Partition)
    assert partition.log_end_offset == end
    assert partition.segments[0].find_offsets([end - 1])["base_offset"].tolist() == [end - N_RECORDS]
    table = kafkalog.read_table(path, start_offset=end - 1, columns=["offset"])
    assert table.column(0).to_pylist() == [end - 1]


def test_several_flips_far_apart_and_at_the_border_of_a_window(tmp_path):
    batches = [batch(row * N_RECORDS) for row in range(4000)]
    odd = [500, 501 + 1800, 3000]
    for row in odd:
        batches[row] = moved(batches[row], row * N_RECORDS + 2**40)
    path = make(tmp_path / "t-0", batches)
    segment = kafkalog.Segment(path / LOG)
    with segment.open() as source:
        # windows that end with the batch in question
        bytes_before = sum(map(len, batches[: odd[0] + 1]))
        seen = [
            int(window.batches.last_offset[-1])
            for window in _until_damage(segment.iter_windows(source, window_bytes=bytes_before))
        ]
    assert max(seen) < odd[0] * N_RECORDS
    assert skip(path)[0] == [offset for offset in range(40_000) if offset // N_RECORDS not in odd]


def test_a_far_offset_between_two_damaged_batches_is_not_read(tmp_path):
    batches = [batch(3 * n, 3) for n in range(9)]
    for number in (3, 5):
        batches[number] = batches[number][:-2] + b"\xff" + batches[number][-1:]
    batches[4] = moved(batches[4], 2**40)
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / LOG).write_bytes(b"".join(batches))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = kafkalog.scan(tmp_path / "t-0", columns=["offset"], on_corruption="skip").to_table()
    assert table["offset"].to_pylist() == [*range(9), *range(18, 27)]


def _until_damage(windows):
    try:
        yield from windows
    except kafkalog.CorruptionError:
        return


@pytest.mark.parametrize("gap", [0, 1, 2, 3])
@pytest.mark.parametrize("n_bytes", [12, 20, 37, 61, -1])
def test_torn_bytes_that_begin_like_the_last_batch_are_no_evidence_against_it(tmp_path, gap, n_bytes):
    first = [builder.record_v2(i, 0, b"k", b"v" * 20) for i in range(9)]
    last = builder.batch_v2([builder.record_v2(0, 0, b"k", b"v" * 20)], base_offset=9 + gap)
    output, tmp_path = tmp_path / "salvaged", tmp_path / "logs"
    tmp_path.mkdir()
    make(tmp_path / "t-0", [builder.batch_v2(first, base_offset=0), last, last[:n_bytes]])
    expected = [*range(9), 9 + gap]
    assert kafkalog.read_table(tmp_path, columns=["offset"])["offset"].to_pylist() == expected
    assert skip(tmp_path) == (expected, [])
    assert kafkalog.verify(tmp_path).losses == []
    kafkalog.salvage(tmp_path, output)
    assert kafkalog.read_table(output, columns=["offset"])["offset"].to_pylist() == expected
