"""The command line, run as a user runs it: output, streams, exit codes, help."""

import base64
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from effort import thinned
from files import flip
from golden_sets import shared_log_dir

import kafkalog
from kafkalog.cli import main
from kafkalog.cli.console import Console
from kafkalog.cli.exits import Exit, exit_of_finding, worst
from kafkalog.cli.reading.record_text import control_text
from kafkalog.cli.text import quote_bytes

COMMANDS = ("ls", "cat", "batches")


def process(*argv, **options):
    return subprocess.run(
        [sys.executable, "-m", "kafkalog", *map(str, argv)], capture_output=True, text=True, timeout=200, **options
    )


def unquote(text):
    """What `quote_bytes` wrote, read back by other means."""
    if text == "null":
        return None
    named = {"n": b"\n", "r": b"\r", "t": b"\t", '"': b'"', "\\": b"\\"}

    def back(match):
        escaped = match[1].decode()
        return named[escaped] if escaped in named else bytes([int(escaped[1:], 16)])

    return re.sub(rb'\\(x[0-9a-f]{2}|[nrt"\\])', back, text[1:-1].encode())


def expected_rows(path, **options):
    table = kafkalog.read_table(path, **options)
    return [{**row, "timestamp": ms} for row, ms in zip(table.to_pylist(), milliseconds(table), strict=True)]


def milliseconds(table):
    return list(table["timestamp"].cast("int64").to_pylist())


def from_json(line):
    """A record of --json as `to_pylist` has it."""

    def decode(value):
        return None if value is None else base64.b64decode(value, validate=True)

    row = json.loads(line)
    headers = [{"key": name, "value": decode(value)} for name, value in row["headers"]]
    return {**row, "key": decode(row["key"]), "value": decode(row["value"]), "headers": headers}


# help, usage


def test_help_and_version_are_quick_and_import_no_arrays():
    code = "import sys\nfrom kafkalog.cli import main\ncode = main(sys.argv[1:])\nprint(*sys.modules, file=sys.stderr)"
    for argv, word in (
        (["--help"], "on-disk log"),
        (["--version"], kafkalog.__version__),
        (["cat", "--help"], "PATH"),
        (["export", "--help"], "All or nothing"),
    ):
        done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=200)
        assert word in done.stdout
        assert not {"numpy", "pyarrow", "tqdm"} & set(done.stderr.split())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "usage:"),
        (["nope"], "no command 'nope'; the commands are below"),
        (["ls"], "PATH"),
        (["ls", "LOG_DIR", "--nope"], "no option --nope"),
        (["ls", "LOG_DIR", "-p", "x"], "argument -p"),
        (["ls", "LOG_DIR", "-t", "nope"], "no topic 'nope' here; there are p-compact"),
        (["cat", "LOG_DIR", "--end-timestamp", "2024-01-01T25:00:00"], "2026-11-21T08:00:00Z"),
        (["cat", "LOG_DIR", "--encoding", "hex"], "--json"),
        (["cat", "LOG_DIR", "--threads", "0"], "from 1 to 256"),
        (["cat", "LOG_DIR", "-n", "-1"], "argument -n"),
        (["cat", "LOG_DIR", "--limits", "max_batch_bytes"], "argument --limits"),
        (["cat", "LOG_DIR", "--limits", "max_batch_bytes=0"], "positive"),
        (["cat", "LOG_DIR", "--start", "1"], "no option --start; use --start-offset 1: kafkalog cat "),
        (
            ["batches", "LOG_DIR", "--columns", "offset"],
            "no column 'offset'; there are topic",
        ),
        (["batches", "LOG_DIR", "--by", "topic"], "--summary"),
        (["batches", "LOG_DIR", "--summary", "--by", "crc"], "--by takes topic"),
        (["batches", "LOG_DIR", "--summary", "--columns", "magic"], "--columns"),
        (["export", "LOG_DIR"], "-o/--output"),
        (["export", "LOG_DIR", "-o", "x"], "unknown format"),
        (["export", "LOG_DIR", "-o", "-"], "--format arrows or csv or jsonl"),
        (["export", "LOG_DIR", "-o", "-", "--format", "parquet"], "stdout needs"),
        (["export", "LOG_DIR", "-o", "-", "--format", "csv", "--partition-by", "date"], "--partition-by"),
        (["export", "LOG_DIR", "--to", "x.csv"], "no option --to"),
        (["export", "LOG_DIR", "--to", "csv"], "no option --to; did you mean --format?"),
    ],
)
def test_wrong_usage_is_2_and_prints_nothing(run_lines, log_dir, argv, message):
    code, out, err = run_lines(*[str(log_dir) if arg == "LOG_DIR" else arg for arg in argv])
    assert (code, out) == (2, [])
    assert message in err
    assert "Traceback" not in err


# ls


def test_ls_json_agrees_with_the_library_and_the_checkpoints(run_lines, log_dir):
    code, out, err = run_lines("ls", log_dir, "--json")
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out]
    opened = kafkalog.open(log_dir)
    assert isinstance(opened, kafkalog.LogDir)
    assert [(row["topic"], row["partition"]) for row in rows] == list(opened)
    for row in rows:
        partition = opened[row["topic"], row["partition"]]
        assert row["log_start_offset"] == partition.log_start_offset
        assert row["log_end_offset"] == row["high_watermark"] == partition.log_end_offset
        assert row["size_in_bytes"] == sum(path.stat().st_size for path in partition.path.glob("*.log"))
        assert row["n_segments"] == len(list(partition.path.glob("*.log")))
        epochs = partition.leader_epochs["epoch"].tolist()
        assert row["leader_epoch"] == (epochs[-1] if epochs else None)
        assert (row["ok"], row["findings"], row["kind"]) == (True, [], None)
        scan = kafkalog.scan(partition, columns=["timestamp", "compression"], include_deleted=True)
        if not row["n_records_is_minimum"]:
            assert row["n_records"] == scan.count_rows()
            with_control = kafkalog.scan(partition, include_control=True, include_deleted=True).count_rows()
            assert row["n_control_records"] == with_control - row["n_records"]
        else:
            assert row["n_records"] < scan.count_rows()
        table = scan.to_table()
        times = [time for time in milliseconds(table) if time is not None]
        assert row["max_timestamp"] == max(times)
        assert min(times) <= row["first_timestamp"] <= row["max_timestamp"]
        assert set(row["codecs"]) == set(table["compression"].to_pylist())
    assert {row["topic"]: row["log_start_offset"] for row in rows}["p-delrec"] == 334
    formats = {row["topic"]: row["magic"] for row in rows}
    assert (formats["p-v0v1v2-mixed"], formats["p-v1-lz4"], formats["p-txn"]) == ([0, 1, 2], [1], [2])


def test_ls_text_has_a_line_a_partition_and_a_total(run_lines, log_dir):
    code, out, err = run_lines("ls", log_dir)
    assert (code, err) == (0, "")
    assert " ".join(out[0].split()) == "PARTITION SEGMENTS BYTES START END RECORDS FIRST LAST FORMATS CODECS"
    assert len(out) == 12
    lines = {line.split()[0]: line.split()[1:] for line in out[1:-1]}
    assert lines["p-multi-1"] == [
        "1",
        "12,964",
        "0",
        "99",
        "99",
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:18:19Z",
        "v2",
        "none",
    ]
    assert lines["p-v1-lz4-0"][4] == ">=68"
    assert re.fullmatch(r"total: 8 topics, 10 partitions, 27 segments, 436,651 bytes, at least [\d,]+ records", out[-1])
    assert len({line.rindex("  ") for line in out[:-1]}) == 1


def test_ls_selects_topics_and_partitions(run_lines, log_dir):
    _, out, _ = run_lines("ls", log_dir, "-t", "p-multi,p-txn", "-t", "p-compact", "-p", "0,2")
    assert [line.split()[0] for line in out[1:-1]] == ["p-compact-0", "p-multi-0", "p-multi-2", "p-txn-0"]


@pytest.mark.parametrize(
    "command", [["ls"], ["verify"], ["cat"], ["epochs"], ["producers"], ["index-stats"], ["lookup", "--offset", 0]]
)
def test_a_partition_number_that_is_not_there_is_refused(run_lines, log_dir, command):
    code, out, err = run_lines(*command, log_dir, "-t", "p-multi", "-p", "0,9")
    assert (code, out) == (2, [])
    assert "no partition 9 here; there are 0, 1, 2" in err


def test_ls_takes_a_file_and_several_paths(run_lines, log_dir):
    code, out, _ = run_lines("ls", log_dir / "p-txn-0" / "00000000000000000304.log")
    assert (code, out[1].split()[:5]) == (0, ["p-txn-0", "1", "13,602", "304", "430"])
    code, out, _ = run_lines("ls", log_dir / "p-multi-1", log_dir / "p-multi-0")
    assert [line.split()[0] for line in out[1:-1]] == ["p-multi-0", "p-multi-1"]


def test_ls_lists_directories_set_apart_below(run_lines, log_dir_copy):
    name = "p-multi-1.c9eefd1639d646409599f16e98f3d811-delete"
    (log_dir_copy / "p-multi-1").rename(log_dir_copy / name)
    code, out, _ = run_lines("ls", log_dir_copy)
    assert code == 0
    where = out.index("renamed by a broker:")
    assert [line.split()[0] for line in out[where:] if line][2] == name
    assert not any(line.startswith("p-multi-1") for line in out[:where])
    _, out, _ = run_lines("ls", log_dir_copy, "--json", "-t", "p-multi")
    assert [json.loads(line)["kind"] for line in out] == [None, None, "delete"]


def test_a_torn_tail_is_a_note_for_the_verbose(run_lines, log_dir_copy):
    log = log_dir_copy / "p-multi-2" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-5])
    for known in (*log_dir_copy.glob("*-checkpoint"), *(log_dir_copy / "p-multi-2").glob("*.snapshot")):
        known.unlink()  # which know of the records that are cut off
    for command in COMMANDS:
        assert run_lines(command, log_dir_copy / "p-multi-2")[::2] == (0, "")
        code, _, err = run_lines(command, log_dir_copy / "p-multi-2", "-v")
        assert code == 0
        assert err.startswith("kafkalog: note: ")
        assert "partial_tail" in err


def test_ls_survives_odd_names(run_lines, tmp_path, log_dir):
    odd = tmp_path / os.fsdecode(b"a\xff\nb")
    shutil.copytree(log_dir / "p-multi-1", odd)
    code, out, _ = run_lines("ls", odd)
    assert (code, len(out)) == (0, 3)
    assert "a\\xff\\x0ab  " in out[1]
    code, out, _ = run_lines("ls", odd, "--json")
    assert json.loads(out[0])["path"] == str(odd)


@pytest.mark.parametrize(
    "command",
    [
        *(["ls"], ["cat"], ["batches"], ["epochs"], ["producers"], ["index-stats"]),
        ["lookup", "--offset", 0, "--timestamp", 5, "--timestamp", "earliest", "--timestamp", "max-timestamp"],
    ],
    ids=lambda command: command[0],
)
def test_a_partition_without_segments_is_read_as_an_empty_one_with_a_note(run, tmp_path, command):
    empty = tmp_path / "empty-0"
    empty.mkdir()
    code, _, err = run(*command, empty)
    assert code == 0
    assert err.count("\n") == err.count("note: ") == err.count("empty-0: segment_missing: it holds no segments") == 1


# cat


def test_cat_json_is_the_default_scan(run_lines, log_dir):
    code, out, err = run_lines("cat", log_dir, "--json", "-q")
    assert (code, err) == (0, "")
    assert list(json.loads(out[0])) == [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestamp_type",
        "key",
        "value",
        "headers",
    ]
    assert [from_json(line) for line in out] == expected_rows(log_dir)


def test_cat_text_can_be_read_back(run_lines, log_dir):
    _, out, _ = run_lines("cat", log_dir)
    rows = expected_rows(log_dir)
    quoted = r'(null|"(?:[^"\\]|\\.)*")'
    pattern = re.compile(rf"(\S+)-(\d+)@(\d+)  (\S+)  key={quoted} value={quoted}( headers=\{{.*\}})?")
    for line, row in zip(out, rows, strict=True):
        match = pattern.fullmatch(line)
        assert match, line
        assert (match[1], int(match[2]), int(match[3])) == (row["topic"], row["partition"], row["offset"])
        assert (match[4] == "-") == (row["timestamp"] in (None, -1))
        assert (unquote(match[5]), unquote(match[6])) == (row["key"], row["value"])
        assert bool(match[7]) == bool(row["headers"])


def test_cat_text_of_chosen_columns(run_lines, log_dir):
    _, out, _ = run_lines(
        "cat", log_dir / "p-v1-lz4-0", "--columns", "offset,timestamp_type,compression,is_control", "-n", 1
    )
    assert out == ["@0  timestamp_type=CreateTime compression=lz4 is_control=false"]
    _, out, _ = run_lines("cat", log_dir / "p-v1-lz4-0", "--columns", "partition", "-n", 1)
    assert out == ["partition=0"]


def test_cat_names_transaction_markers(run_lines, log_dir):
    _, out, _ = run_lines("cat", log_dir / "p-txn-0", "--include-control")
    table = kafkalog.read_table(log_dir / "p-txn-0", columns=["offset", "key", "is_control"], include_control=True)
    names = {row["offset"]: "COMMIT" if row["key"][3] else "ABORT" for row in table.to_pylist() if row["is_control"]}
    found = {int(m[1]): m[2] for line in out if (m := re.match(r"p-txn-0@(\d+)  \S+  control=(\w+) coord", line))}
    assert found == names
    assert set(names.values()) == {"COMMIT", "ABORT"}
    _, out, _ = run_lines(
        "cat", log_dir / "p-txn-0", "--include-control", "--columns", "offset", "--start-offset", 14, "-n", 1
    )
    assert out == ["@14  control=COMMIT coordinator_epoch=0"]


def test_cat_ranges(run_lines, log_dir):
    def offsets(*argv):
        code, out, err = run_lines("cat", log_dir / "p-multi-0", "--columns", "offset", "--json", *argv)
        assert code == 0
        assert bool(err) is (not out and "-n" not in argv)  # a note if nothing matches
        return [json.loads(line)["offset"] for line in out]

    assert offsets("--start-offset", 10, "--end-offset", 13) == [10, 11, 12]
    assert offsets("-n", 2) == [0, 1]
    assert offsets("-n", 0) == []
    table = kafkalog.read_table(log_dir / "p-multi-0", columns=["offset", "timestamp"])
    stamp = milliseconds(table)[7]
    assert stamp is not None
    want = [row for row, time in zip(table["offset"].to_pylist(), milliseconds(table), strict=True) if time >= stamp]
    assert offsets("--start-timestamp", stamp) == want
    assert offsets("--start-timestamp", table["timestamp"][7].as_py().isoformat()) == want
    assert len(offsets("--end-timestamp", "2023-11-14T23:13:20+01:00")) == 0
    assert offsets("--threads", 1) == offsets()


def test_cat_explains_what_it_would_read(run_lines, log_dir):
    options = ["cat", log_dir, "-t", "p-multi", "--start-offset", "110", "--filter", "key == k1", "--explain"]
    code, lines, err = run_lines(*options)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in lines[1:]] == ["partitions", "segments", "bytes", "batches", "records"]
    assert "start_offset=110 by the offset index" in lines[3]
    assert "key == b'k1'" in lines[5]
    code, lines, err = run_lines(*options, "--json")
    assert (code, err) == (0, "")
    (found,) = map(json.loads, lines)
    expected = kafkalog.scan(log_dir, topics="p-multi", start_offset=110, filters=[("key", "==", b"k1")]).explain()
    assert found == json.loads(json.dumps(expected.as_dict()))
    assert 0 < found["n_bytes_read"] < found["n_bytes"]


def test_cat_leaves_out_aborted_and_open_transactions_when_asked(run_lines, log_dir):
    committed = kafkalog.read_table(log_dir / "p-txn-0", columns=["offset"], isolation_level="read_committed")
    argv = ("cat", log_dir / "p-txn-0", "--isolation-level", "read_committed", "--json", "--columns", "offset")
    code, out, err = run_lines(*argv)
    assert code == Exit.GOOD
    assert [json.loads(line)["offset"] for line in out] == committed.column(0).to_pylist()
    assert len(out) < len(run_lines("cat", log_dir / "p-txn-0")[1])
    assert "open_transaction: the transaction of producer 3 from offset 426 on is open: read_committed ends here" in err
    assert run_lines(*argv, "--quiet") == (Exit.GOOD, out, "")


@pytest.fixture
def damaged(log_dir_copy):
    """A partition with a wrong checksum in its fourth batch."""
    partition = log_dir_copy / "p-multi-0"
    segment = kafkalog.Segment(partition / "00000000000000000000.log")
    flip(segment.path, int(segment.batches.position[3]) + 80)
    return partition


def test_cat_ends_at_damage_after_the_records_before_it(run_lines, damaged):
    code, out, err = run_lines("cat", damaged)
    first = int(kafkalog.Segment(damaged / "00000000000000000000.log").batches.base_offset[3])
    assert code == 1
    assert out[-1].startswith(f"p-multi-0@{first - 1} ")
    assert err.startswith("kafkalog: damage: ")
    assert "crc_mismatch" in err
    assert "--on-corruption skip" in err
    assert run_lines("cat", damaged, "-n", 2)[0] == 0


def test_cat_skips_damage_and_prints_the_rest(run_lines, damaged, log_dir):
    batches = kafkalog.Segment(damaged / "00000000000000000000.log").batches
    lost = range(int(batches.base_offset[3]), int(batches.last_offset[3]) + 1)
    whole = run_lines("cat", log_dir / "p-multi-0")[1]
    code, out, err = run_lines("cat", damaged, "--on-corruption", "skip")
    assert code == 1
    assert out == [line for line in whole if int(line.split("@")[1].split()[0]) not in lost]
    assert [line.split(": ")[1] for line in err.splitlines()] == ["damage", "lost", "note"]
    assert ": next: kafkalog boot " in err.splitlines()[-1]
    assert "Warning" not in err
    code, out, _ = run_lines("cat", damaged, "--on-corruption", "stop")
    assert (code, len(out)) == (1, lost.start)
    code, out, err = run_lines("cat", damaged, "--no-check-crcs")
    assert (code, len(out), err) == (0, len(whole), "")


def test_exit_code_3_when_it_cannot_be_read(run_lines, log_dir, tmp_path):
    for command in COMMANDS:
        code, out, err = run_lines(command, tmp_path / "nope")
        assert (code, out) == (3, [])
        assert "no such file" in err
        code, _, err = run_lines(command, tmp_path)
        assert code == 3
        assert "not_kafka" in err
        code, _, err = run_lines(command, log_dir / "p-txn-0" / "00000000000000000304.index")
        assert code == 3
    code, out, err = run_lines("ls", tmp_path / "nope", log_dir)
    assert (code, len(out), err.count("\n")) == (3, 12, 1)


def test_quiet_verify_shows_nothing_unless_something_is_damaged(run_lines, log_dir_copy):
    assert run_lines("verify", "-q", log_dir_copy) == (0, [], "")
    log = log_dir_copy / "p-multi-1" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    code, out, err = run_lines("verify", "-q", log_dir_copy)
    assert code == 1
    assert err.startswith("kafkalog: lost: ")
    assert out[0].startswith(f"p-multi-1  {log.name}  ")
    assert [line.split()[0] for line in out] == ["p-multi-1", "!", "total:"]


@pytest.mark.parametrize(
    "command",
    ["ls", "verify", "producers", "cat --on-corruption skip", "batches --on-corruption skip", "reindex --dry-run"],
)
def test_a_segment_that_cannot_be_opened_is_named_and_the_other_partitions_are_gone_through(
    run_lines, log_dir_copy, command
):
    argv = command.split()
    (log_dir_copy / "p-txn-0" / f"{0:020d}.index").unlink()  # something for all commands to say
    dangling = log_dir_copy / "p-multi-0" / f"{9999:020d}.log"
    dangling.symlink_to("/nonexistent")
    code, out, err = run_lines(*argv, log_dir_copy, "-t", "p-multi,p-txn")
    assert code == 3
    named = re.compile(rf"({dangling}(@0)?|  ! {dangling.name}): file_unreadable: No such file")
    assert named.search(err + "\n".join(out))
    assert any("p-txn" in line for line in out)
    # alone it is no selection that matches nothing
    code, out, err = run_lines(*argv, log_dir_copy, "-t", "p-multi", "-p", "0")
    assert code == 3
    assert named.search(err + "\n".join(out))
    assert "no partition matches" not in err


@pytest.mark.parametrize(
    "command", ["ls", "verify", "producers", "cat", "batches", "reindex --dry-run", "ls LOG_DIR/p-multi-0"]
)
def test_links_that_lead_in_a_circle_leave_the_other_partitions(run_lines, log_dir_copy, command):
    for name in ("circle", "p-circle-0"):
        (log_dir_copy / name).symlink_to(log_dir_copy / name)
    (log_dir_copy / "p-multi-1" / f"{9999:020d}.log").symlink_to(f"{9999:020d}.log")
    argv = command.replace("LOG_DIR", str(log_dir_copy)).split()
    code, out, err = run_lines(*argv, *([] if len(argv) > 1 and argv[0] == "ls" else [log_dir_copy]))
    text = err + "\n".join(out)
    assert "p-multi" in text
    assert code == (0 if "LOG_DIR" in command else 3)
    if "LOG_DIR" not in command:
        assert "p-circle-0" in text
        assert "leads in a circle" in text
        assert re.search(r"p-(txn|v0v1v2-mixed)", text)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_exit_code_3_without_permission(run_lines, log_dir_copy):
    (log_dir_copy / "p-multi-1").chmod(0)
    for command in COMMANDS:
        assert run_lines(command, log_dir_copy)[0] == 3


def test_exit_code_4_for_an_unknown_codec(run_lines, log_dir_copy):
    log = log_dir_copy / "p-multi-1" / "00000000000000000000.log"
    flip(log, 22, 0x05)
    code, _, err = run_lines("cat", log, "--no-check-crcs")
    assert code == 4
    assert err.startswith("kafkalog: unsupported: ")


def test_exit_code_5_names_the_limit(run_lines, log_dir):
    for command in COMMANDS:
        code, _, err = run_lines(command, log_dir, "--limits", "max_segment_bytes=1K")
        assert code == 5
        assert "--limits max_segment_bytes=N" in err
    code, _, err = run_lines("cat", log_dir, "-t", "p-headers", "--limits", "max_headers_per_record=1")
    assert code == 5
    assert "--limits max_headers_per_record=N" in err


def test_exit_code_70_asks_for_a_report(run_lines, log_dir, monkeypatch):
    def broken(*_):
        raise KeyError("here")

    monkeypatch.setattr("kafkalog.scanning.scan.Scan.to_batches", broken)
    code, _, err = run_lines("cat", log_dir)
    assert (code, "Traceback" in err) == (70, False)
    assert "report" in err
    assert kafkalog.__version__ in err
    assert "Traceback" in run_lines("cat", log_dir, "-v")[2]


def test_the_worst_exit_code_wins():
    order = [70, 7, 6, 3, 1, 5, 4, 0]
    for number, code in enumerate(order):
        assert worst(order[number:]) == code
        assert worst(reversed(order[number:])) == code
    assert worst([]) == 0


def test_findings_have_exit_codes():
    def code(reason, damage=True):
        return exit_of_finding(kafkalog.Finding(kafkalog.Reason(reason), damage=damage))

    assert [code("crc_mismatch"), code("batch_too_large"), code("file_changed"), code("unknown_codec")] == [1, 5, 3, 4]
    assert code("partial_tail", damage=False) == 0


@pytest.mark.parametrize(
    "words",
    [
        *("recover SMALL --dry-run --all", "preflight SMALL --unclean", "boot SMALL -o OUT", "verify SMALL"),
        *("compact SMALL -t p-compact -o OUT", "salvage SMALL -o OUT", "report SMALL", "convert SMALL -o OUT"),
    ],
)
def test_long_commands_show_how_far_they_are(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Console, "shows_progress", True)
    monkeypatch.setattr("kafkalog.cli.terminal._PROGRESS_AFTER", -1)
    places = {"SMALL": str(shared_log_dir()), "OUT": str(tmp_path / "out")}
    assert main([places.get(word, word) for word in words.split()]) in (0, 1)
    assert re.search(r"\d+%\|", capsys.readouterr().err)


def test_control_records_in_words():
    assert control_text(b"\0\0\0\0", b"\0\0\0\0\0\5") == "control=ABORT coordinator_epoch=5"
    assert control_text(b"\0\0\0\2", b"x") == 'control=LEADER_CHANGE value="x"'
    assert control_text(b"\0\0\0\x63", None) == 'control=UNKNOWN key="\\x00\\x00\\x00c" value=null'
    assert control_text(None, b"") == 'control=UNKNOWN key=null value=""'


def test_a_flood_of_damage_is_counted(capsys):
    console = Console()
    console.findings([kafkalog.Finding(kafkalog.Reason.CRC_MISMATCH, path="x")] * 70)
    console.unkept_findings(1000)
    console.close()
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 51
    assert err[-1].startswith("kafkalog: damage: 1,020 more")
    assert console.exit_code is Exit.DAMAGE


# processes


def test_a_closed_pipe_ends_quietly_with_141(log_dir):
    reader, writer = os.pipe()
    os.close(reader)
    for argv in ["cat", str(log_dir)], ["--help"]:
        done = subprocess.run(
            [sys.executable, "-m", "kafkalog", *argv], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=200
        )
        assert (done.returncode, done.stderr) == (141, "")
    os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", thinned(COMMANDS, 3))
def test_a_full_disk_is_7(log_dir, command):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kafkalog", command, str(log_dir)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=200,
        )
    assert done.returncode == 7
    assert done.stderr == "kafkalog: error: the output could not be written: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
def test_without_stderr_the_exit_code_still_tells(stderr):
    command = f"{shlex.quote(sys.executable)} -m kafkalog ls /nonexistent {stderr}"
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, timeout=200)
    assert (done.returncode, done.stdout) == (3, b""), "nothing that is meant for stderr goes to stdout"


def test_ctrl_c_is_130_without_a_traceback(log_dir):
    reader, writer = os.pipe()  # nobody empties it, so that the process is at work until it is interrupted
    child = subprocess.Popen(
        [sys.executable, "-m", "kafkalog", "cat", str(log_dir)], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    os.read(reader, 1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=200)
    os.close(reader)
    assert (child.returncode, err) == (130, "")


def test_the_module_and_the_command_are_the_same(log_dir):
    done = process("ls", log_dir / "p-multi-0")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("p-multi-0 ")
    command = shutil.which("kafkalog", path=str(Path(sys.executable).parent))
    if command is not None:
        again = subprocess.run([command, "ls", str(log_dir / "p-multi-0")], capture_output=True, text=True, timeout=200)
        assert again.stdout == done.stdout


def test_json_is_utf8_whatever_the_locale(log_dir, run):
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    argv = ["cat", log_dir, "-t", "p-headers", "--json", "--encoding", "utf8"]
    done = process(*argv, env=env, encoding="utf-8")
    assert done.returncode == 0
    assert done.stdout == run(*argv)[1]
    text = process("cat", log_dir, "-t", "p-headers", env=env, encoding="ascii")
    assert text.returncode == 0


# text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (b"", '""'),
        (b"null", '"null"'),
        (b'a"b\\n', r'"a\"b\\n"'),
        ("café ✓\n\t".encode(), r'"café ✓\n\t"'),
        (b"caf\xc3\xa9\xff", r'"caf\xc3\xa9\xff"'),
        (b"\x00\x1b[2J", r'"\x00\x1b[2J"'),
        ("a\u202eb\u2028".encode(), r'"a\xe2\x80\xaeb\xe2\x80\xa8"'),
    ],
)
def test_bytes_are_shown_so_that_they_can_be_read_back(value, text):
    assert quote_bytes(value) == text
    assert unquote(text) == value
    assert text.isprintable()


def test_every_byte_survives_quoting():
    for value in (bytes(range(256)), bytes(range(128)), "".join(map(chr, range(0x3000))).encode()):
        assert unquote(quote_bytes(value)) == value


def test_long_values_are_cut_at_a_character():
    assert quote_bytes(b"x" * 10, limit=10) == f'"{"x" * 10}"'
    assert quote_bytes("ééé".encode(), limit=3) == '"é"... (6 bytes)'
    assert quote_bytes(b"\x80" * 2000, limit=2) == r'"\x80\x80"... (2,000 bytes)'


OUT_OF_MEMORY = [
    MemoryError(),
    pa.ArrowMemoryError("malloc of size 8 failed"),
    OSError(12, "x"),
    ImportError("libarrow_compute.so.2600: failed to map segment from shared object"),
    ImportError("libarrow.so.2600: cannot allocate memory in static TLS block"),
]


@pytest.mark.parametrize("place", ["scan.Scan.to_batches", "query.Query.of"])
@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_memory_that_runs_out_is_no_bug(error, place, log_dir, capsys, monkeypatch):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(f"kafkalog.scanning.{place}", fails)
    assert main(["cat", str(log_dir / "p-multi-0")]) == Exit.LIMIT
    assert "out of memory" in capsys.readouterr().err


def test_a_path_that_is_a_circle_of_links_is_not_found(tmp_path, capsys):
    (tmp_path / "loop").symlink_to("loop")
    for command in ("ls", "cat", "verify", "groups", "metadata"):
        assert main([command, str(tmp_path / "loop")]) == Exit.UNREADABLE, command
        assert "bug" not in capsys.readouterr().err


def test_a_note_says_that_the_last_records_are_those_of_each_partition(run, log_dir):
    _, out, err = run("cat", log_dir, "-t", "p-multi", "--tail", "2")
    assert len(out.splitlines()) == 6
    assert "the last 2 records of each of 3 partitions" in err
    for argv in (["-p", "1", "--tail", "2"], ["--tail", "0"], ["-n", "2"]):
        assert "of each" not in run("cat", log_dir, "-t", "p-multi", *argv)[2]
