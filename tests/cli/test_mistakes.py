"""Mistakes that people make first: each error says what is wrong, where, and what to do."""

import errno
import os
import re
import shlex
import shutil
import stat
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import ConfigWarning, NotKafkaError, ReadError, WriteError
from kafkalog.storage import staging

SECONDS = "1700000000 is 1970-01-20T16:13:20Z, as numbers are milliseconds; did you mean 1700000000000 (2023-11-14"


@pytest.fixture
def place(log_dir, tmp_path, monkeypatch):
    """An empty directory with a log dir, `data`, and a table."""
    for name in ("p-compact-0", "p-txn-0"):
        shutil.copytree(log_dir / name, tmp_path / "data" / name)
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ("dump data", 2, "data is a directory; name files, such as data/p-compact-0/*.log"),
        ("dump data/p-txn-0", 2, "such as data/p-txn-0/*.log"),
        ("dump nowhere.log", 3, "no such file or directory; the current directory has data, table.csv"),
        ("ls nowhere", 3, "no such file or directory; the current directory has data, table.csv"),
        ("ls dat", 3, "no such file or directory; did you mean data?"),
        ("ls nowhere/p-txn-0", 3, "; the current directory has no 'nowhere', but data, table.csv"),
        ("ls dato/p-txn-0", 3, "; the current directory has no 'dato'; did you mean data?"),
        ("cat data/p-tnx-0", 3, "did you mean data/p-txn-0?"),
        ("ls data/p-txn-7", 3, "no such file or directory; data has p-txn-0"),
        (
            "ls data p-txn",
            2,
            "no file or directory p-txn; use -t p-txn for the topic: kafkalog ls data -t p-txn (see kafkalog ls -h)",
        ),
        (
            "load tabel.csv -o out --topic t",
            3,
            "tabel.csv: file_unreadable: No such file or directory; did you mean table",
        ),
        ("boot date -o out", 3, "did you mean"),
        ("undelete tabel.csv --dry-run", 3, "did you mean table.csv?"),
        (
            "undelete table.csv --dry-run",
            1,
            "table.csv: segment_missing: no batches of Kafka were found: name an image",
        ),
        ("cat data/p-txn-0 --start-offset -5", 2, "a whole number such as 0 or 42, not '-5'; 'kafkalog cat --tail 5'"),
        ("cat data/p-txn-0 --end-offset x", 2, "expected an offset: a whole number such as 0 or 42, not 'x' (see"),
        ("cat data/p-txn-0 --filter offset==abc", 2, "a whole number, such as offset >= 42, not 'abc'"),
        ("convert data/p-txn-0 out.parquet", 2, "to write a table: kafkalog export data/p-txn-0 -o out.parquet (see"),
        (
            "diff data data",
            3,
            "a log dir, not a partition directory: name one, such as data/p-compact-0, or use kafkalog diff",
        ),
        ("diff table.csv data", 3, "table.csv"),
        ("undelete data -o out", 3, "not a regular file; name the image of a disk, or a device, such as disk.img"),
        ("cat data/p-txn-0 --value-format avro --schema table.csv", 2, "the schema is not JSON: "),
        ("cat data/p-txn-0 --value-format avro --schema table.csv", 2, "; it begins '"),
    ],
)
def test_an_error_says_what_to_do(run_lines, place, argv, code, message):
    found, _, err = run_lines(*argv.split())
    assert found == code
    assert message in err
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    "argv",
    [
        "ls data --report URL",
        "groups data -o URL",
        "report data -o URL.html",
        "index-stats data --plot URL.png",
        "convert data -o URL",
        "salvage data -o URL",
        "load table.csv --topic t -o URL",
        "load table.csv --topic t -o URL --dry-run",
        "reindex data -o URL",
        "merge data data -o URL",
        "compact data -o URL",
        "truncate data --to-offset 3 -o URL",
        "trim data --before-offset 3 -o URL",
        "recover data --in-place --backup URL",
        "tiered restore data -o URL",
        "boot data -o URL",
        "boot data -o URL --dry-run",
        "undelete table.csv -o URL",
        "undelete table.csv --dry-run --journal URL",
        "sample URL",
        "load URL --topic t -o out",
        "undelete URL -o out",
        "boot URL -o out",
        "merge data URL -o out",
        "preflight URL",
        "recover URL --dry-run",
        "preflight data --metadata URL",
    ],
)
def test_a_url_is_misuse_where_only_a_local_path_will_do(run_lines, place, argv):
    before = sorted(place.rglob("*"))
    code, _, err = run_lines(*argv.replace("URL", "s3://bucket/x-0").split())
    assert (code, "s3://bucket/x-0" in err, ": not_local: " in err) == (2, True, True), err
    assert sorted(place.rglob("*")) == before


def test_python_writes_to_no_url_either(place):
    table = {"key": [b"k"], "value": [b"v"]}
    for output in ("s3://bucket/x-0", Path("s3://bucket/x-0"), kafkalog.location("memory://bucket/x-0")):
        for write in (
            lambda path: kafkalog.write_table(table, path, topic="t"),
            lambda path: kafkalog.load("table.csv", path, topic="t"),
            kafkalog.PartitionWriter,
            lambda path: kafkalog.undelete("table.csv", path),
            lambda path: kafkalog.sample(path),
        ):
            with pytest.raises(kafkalog.errors.UnsafePathError, match="://bucket/x-0: not_local"):
                write(output)
    assert not Path("s3:").exists()


@pytest.mark.parametrize(
    ("condition", "second"), [("key = = x", "="), ("offset > = 5", "="), ("key == != x", "!="), ("key ! = x", None)]
)
def test_two_operators_are_a_slip(run_lines, place, condition, second):
    code, _, err = run_lines("cat", "data/p-txn-0", "--filter", condition)
    assert code == 2
    assert second is None or f"{second!r} follows an operator" in err
    code, _, _ = run_lines("cat", "data/p-txn-0", "--filter", 'key == "= x" or value contains =')
    assert code == 0


@pytest.mark.parametrize(
    "argv",
    [
        ["cat", "data/p-txn-0", "--start-timestamp", "1700000000", "-n", "1"],
        ["cat", "data/p-txn-0", "--filter", "timestamp >= 1700000000", "-n", "1"],
        ["lookup", "data/p-txn-0", "--timestamp", "1700000000"],
        ["producers", "data/p-txn-0", "--now", "1700000000"],
        ["truncate", "data/p-txn-0", "--to-timestamp", "1700000000", "--dry-run"],
    ],
)
def test_a_time_in_seconds_is_doubted_once(run_lines, place, argv):
    code, _, err = run_lines(*argv)
    assert code == 0
    assert err.count(SECONDS) == 1
    code, _, err = run_lines(*[word.replace("1700000000", "1700000000000") for word in argv])
    assert "did you mean" not in err


def test_a_time_in_seconds_is_doubted_in_python(place):
    for options in ({"start_timestamp": 1_700_000_000}, {"filters": "timestamp < 1700000000"}):
        with pytest.warns(ConfigWarning, match=re.escape(SECONDS)):
            kafkalog.read_table("data/p-txn-0", **options)
    with pytest.warns(ConfigWarning, match=re.escape(SECONDS)):
        kafkalog.lookup("data/p-txn-0", timestamp=1_700_000_000)


@pytest.mark.parametrize(
    ("argv", "note"),
    [
        (
            "cat data/p-txn-0 --start-timestamp -90 -n 1",
            "start_timestamp -90 is in 1969, as numbers are milliseconds; a",
        ),
        ("producers data/p-txn-0 --now 12", "now 12 is in 1970"),
        ("cat data/p-txn-0 --start-offset 9 --end-offset 3", "end_offset 3 is before start_offset 9"),
        (
            "export data --start-timestamp 2026-01-02 --end-timestamp 2026-01-01 --dry-run",
            "end_timestamp 2026-01-01 00:00:00+00:00 is before start_timestamp 2026-01-02 00:00:00+00:00",
        ),
        ("truncate data/p-txn-0 --to-offset 99999 --dry-run", "no log reaches offset 99999: it ends at "),
        (
            "truncate data/p-txn-0 --to-offset 4 --dry-run",
            "data/p-txn-0: offsets 0..4 go, too: whole batches are removed, as by a broker",
        ),
        ("cat torn/p-txn-0 --filter 'key == nope'", "no records match"),
    ],
)
def test_an_option_that_cannot_be_meant_so_is_noted(run_lines, place, argv, note):
    shutil.copytree("data", "torn")
    segment = max(Path("torn/p-txn-0").glob("*.log"))
    os.truncate(segment, segment.stat().st_size - 1)
    code, _, err = run_lines(*shlex.split(argv))
    assert (code, f"note: {note}" in err) == (0, True), err


def test_replicas_of_different_partitions_are_noted(run_lines, place):
    code, _, err = run_lines("diff", "data/p-txn-0", "data/p-compact-0")
    assert (code, "p-txn-0 and p-compact-0 are different partitions" in err) == (1, True)
    assert kafkalog.diff("data/p-txn-0", "data/p-compact-0").note in err
    shutil.copytree("data/p-txn-0", "torn/p-txn-0")
    assert "different partitions" not in run_lines("diff", "data/p-txn-0", "torn/p-txn-0")[2]
    assert kafkalog.diff("data/p-txn-0", "torn/p-txn-0").note == ""


def test_keys_that_do_not_decode_are_called_keys(run_lines, place):
    _, _, err = run_lines("export", "data/p-txn-0", "--key-format", "json", "-o", "x.parquet")
    assert "keys did not decode, so null" in err


def test_an_iceberg_catalog_that_is_not_configured_says_how(run_lines, place):
    pytest.importorskip("pyiceberg")
    code, _, err = run_lines("export", "data", "--format", "iceberg", "--resume", "-o", "lake.a.b")
    assert (code, "no Iceberg catalog 'lake': set its address with PYICEBERG_CATALOG__LAKE__URI" in err) == (2, True)


@pytest.mark.parametrize(
    "argv",
    [
        "export data -o there.csv",
        "export data -o there --partition-by topic",
        "report data -o there.html",
        "index-stats data --plot there.svg",
        "sql data 'select 1' -o there.csv",
        "sample there",
    ],
)
def test_the_error_about_an_output_that_exists_names_overwrite_where_the_command_has_it(run_lines, place, argv):
    if argv.startswith("index-stats"):
        pytest.importorskip("matplotlib")
    assert run_lines(*shlex.split(argv))[0] == 0
    code, _, err = run_lines(*shlex.split(argv))
    has_option = "--overwrite" in run_lines(argv.split()[0], "--help")[1]
    assert (code, "(--overwrite)" in err) == (6, has_option)
    if has_option:
        assert run_lines(*shlex.split(argv), "--overwrite")[0] == 0


def test_a_writer_whose_log_dir_is_missing_says_to_create_it(place):
    for path in ("dato/orders-0", "dato/deep/orders-0"):
        with pytest.raises(WriteError, match=r"no such directory: create the log dir first; .*did you mean .*/data\?"):
            kafkalog.PartitionWriter(path)


def test_errors_in_python_are_the_same(place):
    with pytest.raises(ReadError, match=r"did you mean data\?"):
        kafkalog.open("dato")
    meant = r"kafkalog diff --content \S+ \S+ \(kafkalog.comparing.content.compare\(a, b\)"
    with pytest.raises(NotKafkaError, match=meant):
        kafkalog.diff("data", "data")


def test_a_server_that_does_not_answer_is_named_and_has_no_text_of_a_library():
    pytest.importorskip("obstore")
    options = {"max_retries": 0}
    with pytest.raises(ReadError) as caught:
        kafkalog.open("http://localhost:1/x", storage_options=options)
    assert "the server cannot be reached (Connection refused); check the address, the port" in str(caught.value)
    assert "retries" not in str(caught.value)


def test_a_full_disk_is_named_with_what_to_do(run_lines, place, monkeypatch):
    write = os.write

    def full(descriptor, data):
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return write(descriptor, data)  # a pipe between the processes of the tests
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(staging.os, "write", full)
    code, _, err = run_lines("convert", "data/p-txn-0", "-o", "out")
    assert code == 7
    assert "No space left on device; free space there, or choose an output on another disk" in err
    assert not (place / "out").exists()


@pytest.mark.parametrize("argv", ["groups data -o g.xml", "groups data -o g.parquet", "export data -o x.csv --resume"])
def test_the_name_of_another_format_is_refused(run_lines, place, argv):
    code, _, err = run_lines(*argv.split())
    assert code == 2
    assert "end g." in err or "the output is a directory, and x.csv is a name for a file" in err
    assert sorted(one.name for one in place.iterdir()) == ["data", "table.csv"]


def test_a_note_names_json_unless_columns_were_asked_for(tmp_path, monkeypatch, capsys):
    kafkalog.write_table({"value": [b'{"a": 1}']}, tmp_path / "log", topic="t")
    monkeypatch.setattr("kafkalog.cli.reading.cat.is_pipe", lambda stream: True)
    noted = []
    for columns in ([], ["--columns", "value.a"]):
        assert main(["cat", str(tmp_path / "log"), "--value-format", "json", *columns]) == 0
        noted.append("--json prints JSON lines" in capsys.readouterr().err)
    assert noted == [True, False]
