"""Outputs that need no work before: an empty directory is taken, missing directories above are made."""

import shlex

import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import OutputExistsError
from kafkalog.storage.atomic import check_free
from kafkalog.storage.staging import staged_directory, staged_file

VERBS = """
salvage P -o OUT
merge P P -o OUT
convert P -o OUT
boot P -o OUT
reindex P -o OUT
recover P -o OUT
trim P --before-offset 1 -o OUT
truncate P --to-offset 3 -o OUT
compact P -o OUT
export P -o OUT --partition-by topic
"""


@pytest.fixture
def partition(tmp_path):
    stamps = [1_750_000_000_000 + number for number in range(5)]
    kafkalog.write_table(
        {"key": [b"k"] * 5, "value": [b"v"] * 5, "timestamp": stamps},
        tmp_path / "log",
        topic="orders",
        config=kafkalog.LogConfig(cleanup_policy="compact,delete"),
    )
    return tmp_path / "log" / "orders-0"


def run(verb, partition, output):
    return main([str({"P": partition, "OUT": output}.get(word, word)) for word in shlex.split(verb)] + ["-q"])


@pytest.mark.filterwarnings("ignore::kafkalog.ConfigWarning")
@pytest.mark.parametrize("verb", VERBS.split("\n")[1:-1])
def test_each_verb_takes_an_empty_directory_and_one_whose_parents_are_missing(verb, partition, tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    below = tmp_path / "one" / "two" / "three"
    for output in (below, empty):
        assert run(f"{verb} --dry-run", partition, output) in (0, 1)
        assert not below.parent.parent.exists() or output is empty
        assert not list(empty.iterdir())
        assert run(verb, partition, output) in (0, 1), capsys.readouterr().err
        assert list(output.iterdir())
    assert run(verb, partition, empty) == 6
    assert "--overwrite" in (err := capsys.readouterr().err) or "remove it" in err


def test_a_copy_of_one_partition_makes_the_directories_above(partition, tmp_path):
    kafkalog.convert(partition, tmp_path / "one" / "two" / "orders-0")
    assert kafkalog.verify(tmp_path / "one" / "two").ok


def test_python_needs_no_output_for_a_dry_run(partition):
    assert kafkalog.export(partition, dry_run=True).n_records == 5
    assert not kafkalog.boot(partition, dry_run=True).is_written
    for function in (kafkalog.export, kafkalog.boot):
        with pytest.raises(ValueError, match="dry_run=True"):
            function(partition)


def test_a_file_a_link_and_a_full_directory_are_not_free(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    check_free(tmp_path / "empty")
    check_free(tmp_path / "none")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "full" / "lost+found").mkdir(parents=True)
    for name in ("file", "link", "full"):
        with pytest.raises(OutputExistsError):
            check_free(tmp_path / name)
    monkeypatch.setattr("os.path.ismount", lambda path: True)
    with pytest.raises(OutputExistsError) as raised:
        check_free(tmp_path / "empty")
    assert "name a new directory in it" in str(raised.value.__notes__)


def test_a_failure_removes_the_directories_that_were_made(tmp_path):
    (tmp_path / "old").mkdir()
    with pytest.raises(ZeroDivisionError), staged_directory(tmp_path / "old" / "a" / "b"):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), staged_file(tmp_path / "old" / "a" / "b", parents=True):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == [tmp_path / "old"]
    assert not list((tmp_path / "old").iterdir())


def test_an_empty_directory_that_fills_meanwhile_is_kept(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(OutputExistsError), staged_directory(target):
        (target / "foreign").touch()
    assert [path.name for path in target.iterdir()] == ["foreign"]
