"""A directory by one listing of it."""

import os

import pytest

from kafkalog.errors import ReadError
from kafkalog.storage.listing import Listing, files_below, newest_change


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "deep").write_bytes(b"123")
    (tmp_path / "a.log").write_bytes(b"12")
    os.symlink(tmp_path / "b", tmp_path / "link")
    os.symlink(tmp_path / "circle", tmp_path / "circle")
    return tmp_path


def test_a_listing_answers_without_another_question(directory, monkeypatch):
    listing = Listing(directory)
    assert listing.names == ["a.log", "b", "circle", "link"]
    assert (listing.files, listing.directories) == (["a.log"], ["b", "link"])
    assert listing.status("a.log").st_size == 2
    monkeypatch.setattr(os, "scandir", None)
    assert listing.names[0] == "a.log"


def test_a_directory_that_is_gone_is_an_error_or_empty(tmp_path):
    with pytest.raises(ReadError):
        Listing(tmp_path / "gone")
    assert Listing.or_empty(tmp_path / "gone").names == []


def test_files_below_a_directory_do_not_come_through_links(directory):
    assert [*files_below(directory)] == ["a.log", "b/c/deep"]


def test_the_newest_change_is_that_of_anything_below(directory):
    (directory / "circle").unlink()
    for path in (directory / "b" / "c", directory / "b", directory / "a.log", directory):
        os.utime(path, (1, 1))
    os.utime(directory / "b" / "c" / "deep", (7, 7))
    assert newest_change(directory) == 7
