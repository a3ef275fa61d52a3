"""A disk with bad sectors: zeros in their place, and which they were."""

import numpy as np
import pytest

from kafkalog.errors import FileChangedError, ReadError, Reason
from kafkalog.storage.bad_sectors import BadSectorSource
from kafkalog.storage.source import FileSource

SIZE = 10_000
DATA = np.random.default_rng(1).integers(1, 256, SIZE, np.uint8)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "x").write_bytes(DATA.tobytes())
    return tmp_path / "x"


@pytest.fixture
def break_sectors(monkeypatch):
    """Let reads of these sectors fail."""
    window = FileSource.window

    def choose(*sectors):
        def failing(source, start, stop):
            if any(start < 512 * (sector + 1) and 512 * sector < stop for sector in sectors):
                raise ReadError(Reason.FILE_UNREADABLE, "Input/output error", path=source.path)
            return window(source, start, stop)

        monkeypatch.setattr(FileSource, "window", failing)

    return choose


@pytest.mark.parametrize("sectors", [(0,), (7,), (19,), (3, 4, 5), (0, 2, 18), tuple(range(20))])
def test_a_sector_that_cannot_be_read_is_zeros_and_the_rest_is_there(path, break_sectors, sectors):
    break_sectors(*sectors)
    expected = DATA.copy()
    for sector in sectors:
        expected[512 * sector : 512 * (sector + 1)] = 0
    with BadSectorSource(path) as source:
        for start, stop in ((0, SIZE), (100, 9999), (0, SIZE), (512 * sectors[0] + 5, 512 * sectors[0] + 9)):
            window = source.window(start, stop)
            assert window.tobytes() == expected[start:stop].tobytes()
            assert not window.flags.writeable
        found = np.zeros(SIZE, bool)
        for begin, end in source.unreadable:
            found[begin:end] = True
        assert np.array_equal(found, expected == 0)
        ends = [end for _, end in source.unreadable]
        assert all(begin > end for (begin, _), end in zip(source.unreadable[1:], ends, strict=False))
        assert all(source.is_unreadable(at, at + 1) == (expected[at] == 0) for at in range(0, SIZE, 97))


def test_a_file_that_shrinks_has_changed(path):
    with BadSectorSource(path) as source:
        path.write_bytes(b"x")
        with pytest.raises(FileChangedError):
            source.window(0, SIZE)
        with pytest.raises(FileChangedError):
            source.check_unchanged()
