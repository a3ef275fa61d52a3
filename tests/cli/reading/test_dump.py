"""`kafkalog dump`, run as a user runs it."""

import json
import shutil
from pathlib import Path

import builder
import golden_sets
import pytest

from kafkalog.cli import main

TXN = golden_sets.LOG_DIR / "p-txn-0"
HEADERS = golden_sets.LOG_DIR / "p-headers-0" / f"{0:020d}.log"


@pytest.fixture
def run(capfdbinary):
    """Call `main`: exit code, lines of stdout, stderr."""

    def call(*argv):
        code = main(["dump", *map(str, argv)])
        captured = capfdbinary.readouterr()
        return code, captured.out.decode().split("\n")[:-1], captured.err.decode()

    return call


@pytest.fixture
def damaged(tmp_path):
    path = Path(shutil.copy(HEADERS, tmp_path))
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    return path


def test_a_healthy_log_is_printed_and_good(run):
    code, out, err = run(HEADERS)
    assert (code, err) == (0, "")
    assert out[:2] == [f"Dumping {HEADERS}", "Log starting offset: 0"]
    assert out[2].startswith("baseOffset: 0 lastOffset: 41 count: 42 ")


def test_gaps_between_offsets_are_listed_and_no_damage(run):
    path = TXN / f"{14:020d}.log"
    code, _, err = run("--deep-iteration", path)
    assert (code, err) == (0, f"Non-consecutive offsets in {path}\n  -1 is followed by 14\n")


def test_a_wrong_checksum_is_shown_said_and_exit_code_1(run, damaged):
    code, out, err = run(damaged)
    assert code == 1
    assert sum(line.endswith("isvalid: false") for line in out) == 1
    assert err.startswith(f"kafkalog: damage: {damaged}@0 base_offset=0: crc_mismatch")


def test_an_error_comes_behind_what_was_printed(run, damaged):
    whole = run(damaged)[1]
    damaged.write_bytes(damaged.read_bytes() + bytes(50))
    code, out, err = run(damaged)
    assert (code, out) == (1, whole)
    assert "zero_fill" in err
    code, out, _ = run(damaged, HEADERS)
    assert (code, out) == (1, whole)
    code, out, err = run("--keep-going", damaged, HEADERS)
    assert (code, out) == (1, whole + run(HEADERS)[1])
    assert "zero_fill" in err


def test_control_characters_of_records_do_not_reach_the_terminal(run, tmp_path):
    value = "a\tb\x1b[31m\x07\r\x7f\x9bc é \nd".encode()
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(builder.batch_v2([builder.record_v2(0, 0, b"k\x00", value, [(b"\x1b]", None)])]))
    code, out, _ = run("--print-data-log", path)
    assert code == 0
    assert out[3].endswith("headerKeys: [\\x1b]] key: k\\x00 payload: a\tb\\x1b[31m\\x07\\x0d\\x7f\\xc2\\x9bc é ")
    assert out[4:] == ["d"]


def test_json_has_the_values_of_headers(run):
    code, out, _ = run("--json", "--print-data-log", "--encoding", "utf8", HEADERS)
    rows = [json.loads(line) for line in out]
    assert code == 0
    assert {row["kind"] for row in rows} == {"file", "batch", "record"}
    records = [row for row in rows if row["kind"] == "record"]
    assert records[1]["headers"] == [["n", None]]
    assert [len(row["headers"]) for row in records[3:5]] == [3, 2]
    assert {"key", "value", "offset", "timestamp"} < set(records[0])
    assert "key" not in json.loads(run("--json", "--deep-iteration", HEADERS)[1][2])


def test_files_are_taken_as_the_tool_takes_them(run):
    first, second = (TXN / f"{offset:020d}.log" for offset in (0, 14))
    _, expected, _ = run("--deep-iteration", first, second)
    for arguments in (
        ("--files", f"{first},{second}"),
        ("--files", first, "--files", second),
        (first, "--files", second),
    ):
        assert run("--deep-iteration", *arguments)[:2] == (0, expected)
    code, _, err = run("--deep-iteration")
    assert code == 2
    assert "FILE" in err


def test_what_makes_no_sense_is_usage(run, tmp_path):
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(builder.batch_v2([builder.record_v2(0, 0, b"abc")]))
    for arguments, said in (
        (("--dialect", "9", path), "no dialect '9'"),
        (("--key-decoder", "avro", path), "no decoder 'avro'"),
        (("--key-decoder", "integer", path), "the integer decoder needs 4"),
        (("--json", "--key-decoder", "integer", path), "the integer decoder needs 4"),
        (("--encoding", "hex", path), "--encoding"),
        ((tmp_path,), "is a directory"),
        (("--max-bytes", "x", path), "not a number"),
        (("--limits", "nonsense=1", path), "no limit"),
    ):
        code, _, err = run(*arguments)
        assert code == 2, arguments
        assert said in err


def test_other_exit_codes(run, tmp_path):
    assert run(tmp_path / "nope.log")[0] == 3
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(builder.batch_v2([builder.record_v2()], attributes=5))
    assert run(path)[0] == 4
    code, _, err = run(HEADERS, "--limits", "max_segment_bytes=1K")
    assert code == 5
    assert "--limits max_segment_bytes=N" in err
    other = tmp_path / "leader-epoch-checkpoint"
    other.write_text("0\n0\n")
    assert run(other) == (0, [f"Dumping {other}"], f"Ignoring unknown file {other}\n")
