"""A directory that is named twice counts once, with a note: again, through a link, or below another that is named."""

import os
import shutil

import pytest
from golden_sets import shared_log_dir

from kafkalog.cli.app import main


@pytest.fixture
def places(tmp_path, monkeypatch):
    shutil.copytree(shared_log_dir(), tmp_path / "a")
    os.symlink("a", tmp_path / "link")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "paths", [("a", "a/"), pytest.param(("a", "link"), marks=pytest.mark.slow), ("link/p-txn-0", "a")]
)
@pytest.mark.parametrize("command", [["preflight"], ["ls"], ["verify"], ["boot", "--dry-run"]])
def test_a_directory_that_is_named_twice_counts_once(places, capsys, command, paths):
    whole = main([*command, "a", "--json"])
    first = capsys.readouterr()
    again = main([*command, *paths, "--json"])
    second = capsys.readouterr()
    assert again == whole
    assert (first.out + first.err).count("named twice") == 0
    assert "named twice" in second.out + second.err
    assert "would not start on both" not in second.out + second.err
    assert second.out.count('"p-txn-0"') == first.out.count('"p-txn-0"')
    assert second.out.count('"partition"') == first.out.count('"partition"')


def test_a_log_dir_below_another_is_not_left_out(places, capsys):
    shutil.move("a/p-txn-0", "b/p-txn-0")
    shutil.move("b", "a/below")
    assert main(["ls", "a", "a/below"]) == 0
    printed = capsys.readouterr()
    assert "p-txn" in printed.out
    assert "named twice" not in printed.err
