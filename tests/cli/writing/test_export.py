"""`kafkalog export`, run as a user runs it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.ipc
import pytest
from effort import thinned

import kafkalog
from kafkalog.cli import main


@pytest.fixture
def run(capfdbinary):
    """Call `main`: exit code, bytes of stdout, stderr."""

    def call(*argv):
        code = main([str(arg) for arg in argv])
        captured = capfdbinary.readouterr()
        return code, captured.out, captured.err.decode()

    return call


def test_json_lines_are_those_of_cat(run, log_dir, tmp_path):
    for more in ([], ["--encoding", "utf8"], ["--columns", "value,offset,segment", "-n", "7"], ["--include-control"]):
        _, lines, _ = run("cat", log_dir, "--json", *more)
        assert run("export", log_dir, "-o", tmp_path / "x.jsonl", "--overwrite", *more)[0] == 0
        assert (tmp_path / "x.jsonl").read_bytes() == lines
        code, out, err = run("export", log_dir, "-o", "-", "--format", "jsonl", *more)
        assert (code, out) == (0, lines)
        assert ("base64; --encoding utf8 writes text" in err) == ("--encoding" not in more)


def test_streams_go_to_stdout(run, log_dir):
    _, out, _ = run("export", log_dir, "-o", "-", "--format", "arrows", "--compression", "zstd")
    assert pa.ipc.open_stream(out).read_all().equals(kafkalog.read_table(log_dir))
    some = ["-t", "p-headers", "-n", "2", "--columns", "offset,key"]
    assert run("export", log_dir, "-o", "-", "--format", "csv", *some)[1] == b"offset,key\n0,\n1,\n"
    assert run("export", log_dir, "-o", "-", "--format", "csv", "--null", "-", *some)[1] == b"offset,key\n0,-\n1,-\n"


def test_what_is_there_is_6_without_overwrite(run, log_dir, tmp_path):
    to = tmp_path / "x.csv"
    to.write_text("mine")
    code, _, err = run("export", log_dir, "-o", to)
    assert (code, to.read_text()) == (6, "mine")
    assert err.startswith(f"kafkalog: error: {to}: output_exists: ")
    assert "--overwrite" in err
    assert run("export", log_dir, "-o", to, "--overwrite")[0] == 0
    assert to.read_text().startswith("topic,")
    (tmp_path / "home" / "letters").mkdir(parents=True)
    code, _, err = run("export", log_dir, "-o", tmp_path / "home", "--partition-by", "topic", "--overwrite")
    assert code == 6
    assert "is not from an export" in err
    assert "--overwrite" not in err


def test_bytes_that_are_no_text_are_csv_that_load_reads(run, log_dir, tmp_path):
    out = tmp_path / "x.csv"
    assert run("export", log_dir, "-t", "p-headers", "-o", out, "--encoding", "utf8")[0] == 0
    assert '"{""base64"": ""' in out.read_text()
    assert run("load", out, "-o", tmp_path / "log", "--encoding", "utf8")[0] == 0
    one, other = (kafkalog.read_table(path, topics="p-headers") for path in (log_dir, tmp_path / "log"))
    assert one.drop_columns("timestamp_type").equals(other.drop_columns("timestamp_type"))


def test_a_note_says_that_text_lines_have_base64(run, log_dir, tmp_path):
    def note(command, *options):
        _, _, err = run(command, log_dir, "-t", "p-multi", "-n", "1", *options)
        return [line.partition("note: ")[2] for line in err.splitlines() if "base64" in line]

    both = ["key and value are in base64; --encoding utf8 writes text, --value-format json decodes values"]
    assert note("cat", "--json") == both
    assert note("cat", "--json", "--columns", "offset,key") == ["key is in base64; --encoding utf8 writes text"]
    assert note("cat", "--json", "--value-format", "utf8") == ["key is in base64; --encoding utf8 writes text"]
    for others in ([], ["--json", "-q"], ["--json", "--columns", "offset"], ["--json", "--encoding", "base64"]):
        assert note("cat", *others) == []
    for name, is_text in (("x.csv", True), ("x.jsonl.gz", True), ("x.parquet", False), ("x.arrow", False)):
        assert note("export", "-o", tmp_path / name) == (both if is_text else [])


@pytest.mark.parametrize("name", thinned(["x.parquet", "x.arrow", "x.csv", "x.jsonl.gz"], 4))
def test_a_disk_that_is_full_is_7_and_leaves_nothing(log_dir, tmp_path, name):
    program = (
        # a module of 20,000 bytes and more would be kept cut off, and break the processes that import it later
        "import resource, signal, sys; sys.dont_write_bytecode = True; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        "from kafkalog.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "export", str(log_dir), "-o", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 7
    assert done.stderr == f"kafkalog: error: {tmp_path / name}: write_failed: File too large\n"
    assert os.listdir(tmp_path) == []


@pytest.fixture(scope="module")
def long_log(tmp_path_factory, log_dir):
    """A log dir of many copies of a topic: some seconds of work for CSV."""
    root = tmp_path_factory.mktemp("long")
    for number in range(150):
        shutil.copytree(log_dir / "p-headers-0", root / f"orders-{number}")
    return root


@pytest.mark.parametrize(("number", "code"), thinned([(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)], 2))
def test_a_command_that_is_interrupted_leaves_nothing(long_log, tmp_path, number, code):
    command = [sys.executable, "-m", "kafkalog", "export", str(long_log), "-o", str(tmp_path / "x.csv")]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while not any(path.stat().st_size for path in tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(number)
    _, err = child.communicate(timeout=200)
    assert (child.returncode, err) == (code, "")
    assert os.listdir(tmp_path) == []


def test_internal_topics_are_left_out_unless_they_are_named(run, log_dir, tmp_path):
    mixed = tmp_path / "mixed"
    for source, name in (("p-multi-0", "orders-0"), ("p-multi-1", "__consumer_offsets-7"), ("p-txn-0", "__mine-0")):
        shutil.copytree(log_dir / source, mixed / name)

    def topics(*argv):
        code, out, err = run("cat", *argv, "--json", "--columns", "topic")
        assert code == 0
        assert ("internal topics are left out: __consumer_offsets;" in err) == (argv == (mixed,))
        return {json.loads(line)["topic"] for line in out.splitlines()}

    assert topics(mixed) == {"orders", "__mine"}
    assert topics(mixed, "--internal") == {"orders", "__mine", "__consumer_offsets"}
    assert topics(mixed, "-t", "__consumer_offsets") == {"__consumer_offsets"}
    assert topics(mixed / "__consumer_offsets-7") == {"__consumer_offsets"}
    assert topics(mixed / "__consumer_offsets-7", mixed / "orders-0") == {"orders", "__consumer_offsets"}
    assert kafkalog.scan(mixed).count_rows() == 122 + kafkalog.scan(mixed, topics="__mine").count_rows()
    assert kafkalog.scan(mixed, internal=True).count_rows() == kafkalog.scan(mixed).count_rows() + 99
    with pytest.raises(ValueError, match="partition 7"):
        kafkalog.scan(mixed, partitions=7)
    with pytest.raises(ValueError, match="__consumer_offsets-7"):
        kafkalog.scan(mixed, start_offset={("__consumer_offsets", 7): 5})
    # what is about files takes all of them
    assert {row.topic_partition.topic for row in kafkalog.batches(mixed).iter_rows() if row.topic_partition} == {
        "orders",
        "__mine",
        "__consumer_offsets",
    }
    assert len(kafkalog.verify(mixed).partitions) == 3
    assert b"__consumer_offsets-7" in run("ls", mixed)[1]


OBEYED = "\x7f\x9b31m\u061c\u200e\u202e\u2066\u2028\u2029"


@pytest.fixture
def hostile(tmp_path):
    """A partition whose values a terminal would obey, or a spreadsheet run."""
    values = [OBEYED, "=1+1", '-2,"x"', "plain", "", "\uff1dA1", "caf\u00e9 \U0001f600"]
    table = pa.table(
        {"topic": ["t"] * 7, "partition": [0] * 7, "key": [b"@k"] * 7, "value": [v.encode() for v in values]}
    )
    kafkalog.write_table(table, tmp_path / "log")
    return tmp_path / "log" / "t-0"


@pytest.mark.parametrize(
    "command",
    [
        "cat --json --encoding utf8",
        "cat",
        "dump --json --encoding utf8 --print-data-log",
        "export -o - --format jsonl --encoding utf8",
    ],
)
def test_nothing_in_json_or_text_is_obeyed_by_a_terminal(run, hostile, command):
    name, *options = command.split()
    code, out, _ = run(name, hostile / f"{0:020d}.log", *options)
    assert code == 0
    text = out.decode()
    assert not set(OBEYED) - set("31m") & set(text)
    assert "caf\u00e9 \U0001f600" in text
    if "json" in command:
        rows = [json.loads(line) for line in text.splitlines()]
        assert OBEYED in [row.get("value") for row in rows]


def test_formulas_in_csv_are_escaped_where_that_is_asked_for(run, hostile, tmp_path):
    options = ["--encoding", "utf8", "--columns", "key,value"]
    assert run("export", hostile, "-o", tmp_path / "raw.csv", *options)[0] == 0
    assert run("export", hostile, "-o", tmp_path / "safe.csv", *options, "--escape-formulas")[0] == 0
    raw, safe = ((tmp_path / f"{name}.csv").read_text().split("\n") for name in ("raw", "safe"))
    assert raw[2:4] == ["@k,=1+1", '@k,"-2,""x"""']
    rows = [line for line in safe if line.startswith("'@k,")]
    assert len(rows) == 7
    assert rows[1:] == [
        "'@k,'=1+1",
        '\'@k,"\'-2,""x"""',
        "'@k,plain",
        '\'@k,""',
        "'@k,'\uff1dA1",
        "'@k,caf\u00e9 \U0001f600",
    ]
    code, _, err = run("export", hostile, "-o", tmp_path / "x.jsonl", "--escape-formulas")
    assert code == 2
    assert "escape_formulas is for csv" in err
    base64 = pa.table({"topic": ["u"], "partition": [0], "value": [b"\xfb\xef\xbe"]})
    kafkalog.write_table(base64, tmp_path / "more")
    kafkalog.export(tmp_path / "more", tmp_path / "base64.csv", columns=["value", "key"], escape_formulas=True)
    assert (tmp_path / "base64.csv").read_text() == "value,key\n'++++,\n"
