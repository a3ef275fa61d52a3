"""What is fetched of bytes that are fetched in ranges: what is needed, once, and little more."""

import threading

import builder
import numpy as np
import pyarrow as pa
import pytest
from effort import thinned
from refusals import fails_with

import kafkalog
from kafkalog._kernels.crc import checksum_crc32c
from kafkalog.errors import ReadError
from kafkalog.log.segment import Segment
from kafkalog.storage.ranges import RangeSource


class CountingSource(RangeSource):
    """The bytes of a file; `fetched` collects the ranges that are fetched."""

    def __init__(self, path, fetched):
        self._content = path.read_bytes()
        self._fetched, self._counting = fetched, threading.Lock()
        super().__init__(len(self._content), path=str(path))

    def fetch(self, start, stop):
        """Fetch bytes, and count them."""
        with self._counting:
            self._fetched.append((start, stop))
        return np.frombuffer(bytearray(self._content[start:stop]), np.uint8)


class CountedSegment(Segment):
    """A segment that is read through `CountingSource`.

    Attributes
    ----------
    fetched : list of tuple of int
        Start and stop of each range that was fetched.
    """

    def __init__(self, path, **options):
        self.fetched = []
        super().__init__(path, **options)
        self.fetched.clear()

    def open(self):
        """The bytes of the file, fetched in ranges."""
        return CountingSource(self.path, self.fetched)

    def reopened(self):
        """A segment that counts, too."""
        return self

    @property
    def n_fetched(self):
        """How many bytes were fetched, those fetched twice counted twice."""
        return sum(stop - start for start, stop in self.fetched)


# --- tests -----------------------------------------------------------------------------------------------------------


SPARE = 2**21
N_THREADS = (1, 2, 3, 4)


def _batches(n, value_bytes, records_in_batch=4):
    rng = np.random.default_rng(5)
    made = []
    for number in range(n):
        first = number * records_in_batch
        values = (rng.bytes(value_bytes) for _ in range(records_in_batch))
        records = [builder.record_v2(i, i, b"key", value) for i, value in enumerate(values)]
        batch = builder.batch_v2(records, base_offset=first, base_timestamp=1000 * number, crc=0)
        # by the kernel: the builder's own checksum takes seconds
        crc = checksum_crc32c(np.frombuffer(batch, np.uint8)[21:])
        made.append(batch[:17] + crc.to_bytes(4, "big") + batch[21:])
    return made


@pytest.fixture(scope="module", params=[False, True], ids=["without indexes", "with indexes"])
def small(request, tmp_path_factory):
    """A segment of 24 MiB in batches of 16 KiB."""
    return _segment(tmp_path_factory, _batches(1536, 4096), is_indexed=request.param)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A segment of 24 MiB in batches of 1 MiB."""
    return _segment(tmp_path_factory, _batches(24, 2**18), is_indexed=False)


def _segment(factory, batches, *, is_indexed):
    path = factory.mktemp("logs") / "orders-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(batches))
    if is_indexed:
        kafkalog.reindex(path.parent, in_place=True)
    return path


READERS = {
    "table": lambda segment, **options: segment.to_table(**options),
    "numpy": lambda segment, **options: kafkalog.read_numpy(segment, **options),
    "views": lambda segment, **options: segment.to_table(binary_type=pa.binary_view(), **options),
    "count": lambda segment, **options: kafkalog.scan(segment, **options).count_rows(),
    "filters": lambda segment, **options: segment.to_table(filters=[("key", "==", b"key")], **options),
    "committed": lambda segment, **options: segment.to_table(isolation_level="read_committed", **options),
    "skip": lambda segment, **options: segment.to_table(on_corruption="skip", **options),
}


@pytest.mark.parametrize("threads", thinned(N_THREADS, 3))
@pytest.mark.parametrize("reader", READERS)
def test_a_whole_segment_is_fetched_once(small, reader, threads):
    segment = CountedSegment(small)
    found = READERS[reader](segment, threads=threads)
    assert getattr(found, "n_records", found if isinstance(found, int) else len(found)) == 4 * 1536
    assert segment.n_fetched <= 1.1 * segment.size_in_bytes


@pytest.mark.parametrize("threads", N_THREADS)
def test_batches_that_cross_the_ends_of_windows_are_fetched_once(large, threads):
    segment = CountedSegment(large)
    assert len(segment.to_table(threads=threads)) == 4 * 24
    assert segment.n_fetched <= 1.1 * segment.size_in_bytes


def test_verify_fetches_a_segment_once(small):
    segment = CountedSegment(small)
    assert kafkalog.verify(segment).ok
    assert segment.n_fetched <= 1.1 * segment.size_in_bytes + SPARE


@pytest.mark.parametrize("threads", thinned(N_THREADS, 3))
@pytest.mark.parametrize(("start", "end"), [(0, 2000), (1500, 2000), (4000, 4001), (6000, None)])
def test_a_range_of_offsets_fetches_little_more(small, start, end, threads):
    segment = CountedSegment(small)
    assert segment.to_table(start_offset=start, end_offset=end, threads=threads)["offset"][0].as_py() == start
    has_index = segment.offset_index is not None
    before = start if has_index else 0  # without an index the headers lead there
    needed = ((end or 4 * 1536) - before) * segment.size_in_bytes // (4 * 1536)
    assert segment.n_fetched <= 1.1 * needed + SPARE


@pytest.mark.parametrize("threads", N_THREADS)
def test_the_first_records_take_one_piece(small, threads):
    segment = CountedSegment(small)
    assert len(kafkalog.scan(segment, threads=threads).head(5)) == 5
    assert len(segment.fetched) == 1
    assert segment.n_fetched <= SPARE


def test_headers_of_large_batches_are_fetched_alone(large):
    segment = CountedSegment(large)
    assert len(segment.batches) == 24
    assert segment.n_fetched <= 24 * 2**16
    segment.fetched.clear()
    assert segment.next_offset == 4 * 24
    assert segment.n_fetched <= 24 * 2**16


def test_headers_of_small_batches_are_fetched_with_their_bytes(small):
    segment = CountedSegment(small)
    assert len(segment.batches) == 1536
    assert segment.n_fetched <= 1.1 * segment.size_in_bytes
    assert len(segment.fetched) <= 16


def test_windows_are_the_bytes_of_the_file(tmp_path):
    content = np.random.default_rng(1).bytes(2**20)
    (tmp_path / "x").write_bytes(content)
    fetched = []
    source = CountingSource(tmp_path / "x", fetched)
    ends = np.sort(np.random.default_rng(2).integers(0, 2**20 + 1, (200, 2)), axis=1)
    for start, stop in ends.tolist():
        assert source.window(start, stop).tobytes() == content[start:stop]
    assert sum(stop - start for start, stop in fetched) <= 2**20
    assert not source.window(0, 10).flags.writeable
    with pytest.raises(ValueError):
        source.window(0, 2**20 + 1)


class SlowSource(CountingSource):
    """The first requests take until there are three at a time."""

    n_now = 0

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.are_three = threading.Event()

    def fetch(self, start, stop):
        """Fetch bytes, slowly."""
        with self._counting:
            self.n_now += 1
            if self.n_now == 3:
                self.are_three.set()
        self.are_three.wait(60)
        with self._counting:
            self.n_now -= 1
        return super().fetch(start, stop)


def test_what_is_planned_is_fetched_ahead_and_no_more(small):
    size, fetched = small.stat().st_size, list[tuple[int, int]]()
    stop = size - 2**21
    with SlowSource(small, fetched) as source:
        source.plan(1000, stop)
        content = small.read_bytes()
        for start in range(1000, stop, 2**20):
            end = min(start + 2**20, stop)
            assert source.window(start, end).tobytes() == content[start:end]
        assert source.are_three.is_set()
        assert sum(b - a for a, b in fetched) == stop - 1000
        assert max(b - a for a, b in fetched) <= 2**22


def test_an_error_of_a_piece_is_raised_where_it_is_read(small):
    class Failing(CountingSource):
        def fetch(self, start, stop):
            if start >= 2**23:
                raise ReadError("file_unreadable", "503", path=self.path, position=start)
            return super().fetch(start, stop)

    fetched = []
    with Failing(small, fetched) as source:
        source.plan(0, source.size)
        assert source.window(0, 2**22).size == 2**22
        with fails_with("file_unreadable"):
            source.window(2**23, 2**23 + 5)
