"""Locations stand in for paths: their names, parents and neighbours, and what is asked of a store."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.storage import location
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Location, clean, is_url, place_of, plain
from kafkalog.storage.store import Entry


class Store:
    """A store of one directory; `asked` has each question."""

    def __init__(self):
        self.asked = []

    def url_of(self, key):
        """A URL."""
        return f"x://{key}"

    def list(self, directory):
        """Two entries."""
        self.asked.append(f"list {directory}")
        return [Entry("a.log", 3), Entry("sub", is_directory=True)] if directory in ("", "d") else []

    def status(self, key):
        """One file."""
        self.asked.append(f"status {key}")
        return Entry("a.log", 3) if key == "d/a.log" else None


def made(key):
    """A location and its store."""
    store = Store()
    return Location(store, key), store


def test_names_are_those_of_paths():
    place, store = made("d/e/a.log")
    path = Path("/d/e/a.log")
    for name in ("name", "stem", "suffix"):
        assert getattr(place, name) == getattr(path, name)
    assert str(place) == "x://d/e/a.log" == f"{place}"
    assert place.parent.name == "e"
    assert str(place.with_suffix(".index")) == "x://d/e/a.index"
    assert place.with_name("a.log") is place
    assert str(place.parent.parent / "f/g") == "x://d/f/g"
    assert place == made("d/e/a.log")[0]
    assert len({place, made("d/e/a.log")[0]}) == 1
    assert place_of(place) is place
    assert plain(place) is place
    assert not store.asked


def test_a_directory_is_listed_once():
    place, store = made("d")
    assert place.is_dir()
    assert (place / "a.log").is_file()
    assert (place / "sub").is_dir()
    assert not (place / "b").exists()
    assert location.stat_of(place / "a.log").st_size == 3
    assert Listing(place).names == ["a.log", "sub"]
    assert [one.name for one in place.glob("*.log")] == ["a.log"]
    assert store.asked == ["list d"]
    place.fresh().entries()
    assert store.asked[1:] == ["list d"]


def test_a_file_alone_takes_one_question():
    place, store = made("d/a.log")
    assert place.is_file()
    assert not place.is_dir()
    assert place.exists()
    assert store.asked == ["status d/a.log"]
    with pytest.raises(FileNotFoundError):
        location.stat_of(made("d/b.log")[0])


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("s3://bucket/x", True),
        ("tar://x::/y.tar", True),
        ("simplecache::s3://b/x", True),
        ("tar:/x/y.tar!/z", True),
        ("/var/lib/kafka", False),
        ("a::b", False),
        ("select * from 's3://b'", False),
        ("./s3:/x", False),
    ],
)
def test_urls_are_told_from_paths(text, is_one):
    assert is_url(text) is is_one


@pytest.mark.parametrize(
    "text",
    ["https://u:hush@h/x", "at https://h/x?sig=hush, 403", "token=hush", "Signature=hush&x", "s3://hush@b"],
)
def test_cleaned_texts_have_no_secrets(text):
    assert "hush" not in clean(text)


def test_cleaned_texts_keep_the_rest():
    texts = ["https://h/x/y: 404 not found", '<?xml version="1.0"?>', "what?"]
    assert [clean(text) for text in texts] == texts


def test_a_token_of_azure_is_not_renamed_as_one_of_s3_is():
    pytest.importorskip("obstore")
    url = "abfs://container@account.dfs.core.windows.net/log"
    assert "account" in str(kafkalog.location(url, storage_options={"token": "t"}))
    assert "log" in str(kafkalog.location("s3://bucket/log", storage_options={"key": "k", "secret": "s", "token": "t"}))


def test_an_option_of_a_store_that_is_misspelt_is_named():
    pytest.importorskip("obstore")
    with pytest.raises(ValueError, match=r"'regin' is not valid .*did you mean 'region'"):
        kafkalog.location("s3://bucket/x", storage_options={"regin": "eu-central-1"})
