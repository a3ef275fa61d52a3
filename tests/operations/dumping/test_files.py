"""Files are told apart and shown as Kafka's tool and Java do it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.operations.dumping import files


@pytest.mark.parametrize(
    ("path", "shown"), [("a//b/", "a/b"), ("/a/../b.log", "/a/../b.log"), ("//", "/"), ("/", "/"), ("a", "a")]
)
def test_a_path_is_shown_as_javas_file_shows_it(path: str, shown: str) -> None:
    assert files.as_file(path) == shown


def test_an_absolute_path_keeps_links_and_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert files.absolute("x/../y.log") == f"{tmp_path}/x/../y.log"
    assert files.absolute("/x//y.log") == "/x/y.log"


def test_a_segment_is_the_last_where_none_of_a_larger_offset_is_beside_it(tmp_path: Path) -> None:
    first, second = (tmp_path / f"{offset:020d}.log" for offset in (0, 7))
    first.write_bytes(b"")
    assert files.is_last_segment(str(first))
    second.write_bytes(b"")
    assert [files.is_last_segment(str(path)) for path in (first, second)] == [False, True]
    assert files.is_last_segment(str(tmp_path / "bootstrap.checkpoint"))
