"""Every store answers alike: what it lists, the status of a key, and ranges of bytes."""

import fsspec
import obstore
import pytest

import kafkalog
from kafkalog.errors import ReadError, UnsafePathError
from kafkalog.storage.files import is_absent, last_entry, read_file
from kafkalog.storage.local import LOCAL
from kafkalog.storage.location import Location, local_path, store_of
from kafkalog.storage.memory import MemoryStore
from kafkalog.storage.stores import FilesystemStore, ObjectStore


@pytest.fixture(params=["local", "memory"])
def place(request, tmp_path):
    """A directory with one file, `a.log`, and one directory, `below`."""
    if request.param == "local":
        (tmp_path / "a.log").write_bytes(b"0123456789")
        (tmp_path / "below").mkdir()
        return Location(LOCAL, str(tmp_path))
    files = fsspec.filesystem("memory")
    files.pipe_file(f"{tmp_path}/a.log", b"0123456789")
    files.makedirs(f"{tmp_path}/below", exist_ok=True)
    return Location(FilesystemStore(files, "memory://", is_rooted=True), str(tmp_path))


def test_stores_answer_alike(place):
    entries = {entry.name: (entry.is_dir(), entry.size) for entry in place.store.list(place.key)}
    assert entries == {"a.log": (False, 10), "below": (True, 0)}
    assert list(place.store.list(f"{place.key}/absent")) == []
    assert place.store.status(f"{place.key}/absent") is None
    assert sorted(place.entries()) == ["a.log", "below"]
    assert (place / "a.log").exists()
    assert (place / "below").is_dir()
    assert (place / "a.log").range(3, 5).tobytes() == b"34"
    with (place / "a.log").open() as source:
        assert source.window(0, source.size).tobytes() == b"0123456789"
    assert last_entry(place / "a.log", 4) == b"4567"
    assert last_entry(place / "a.log", 11) == b""
    for name, is_missing in (("absent", True), ("below", False)):
        with pytest.raises(ReadError) as error:
            read_file(place / name, max_bytes=100)
        assert is_absent(error.value) == is_missing


def test_objects_that_stand_for_directories_are_not_listed_as_files_in_them():
    files = fsspec.filesystem("memory")
    files.pipe_file("/marked/marked/orders-0/a.log", b"0123")
    objects = ObjectStore(obstore.store.MemoryStore(), "memory://")
    for key in ("marked", "marked/marked/orders-0", "marked/marked/orders-0/a.log"):
        obstore.put(objects._store, key, b"")
    for store in (FilesystemStore(files, "memory://", is_rooted=True), objects):
        assert [one.name for one in store.list("marked")] == ["marked"]
        below = Location(store, "marked/marked").entries()
        assert {name: entry.is_dir() for name, entry in below.items()} == {"orders-0": True}
        assert [one.name for one in store.list("marked/marked/orders-0")] == ["a.log"]


def test_a_store_says_what_it_can_do(tmp_path):
    memory = MemoryStore(b"bytes", "name").location
    assert store_of(tmp_path).is_live
    assert not store_of(memory).is_live
    assert store_of(memory).is_in_memory
    assert local_path(tmp_path) is tmp_path
    with pytest.raises(UnsafePathError, match="copy it to a local directory first"):
        local_path(memory)


def test_estimates_read_locations(log_dir, tmp_path):
    place = Location(LOCAL, str(log_dir))
    expected = kafkalog.space(log_dir, topics=["p-multi"], what_if="zstd").to_dict()["what_if"]
    assert kafkalog.space(place, topics=["p-multi"], what_if="zstd").to_dict()["what_if"] == expected
