"""Values that do not decode: an export counts them, and the command fails unless the user accepts them."""

import json

import pytest

import kafkalog
from kafkalog.cli.app import main

pytestmark = pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")


@pytest.fixture
def root(tmp_path):
    (tmp_path / "log").mkdir()
    with kafkalog.PartitionWriter(tmp_path / "log" / "t-0") as writer:
        writer.append({"key": [b"a", b"b", b"\xff"], "value": [b'{"a":1}', b"oops", b'{"a":2}']})
    return tmp_path / "log"


FORMATS = ("--value-format", "json", "--key-format", "utf8")


@pytest.mark.parametrize("quiet", [[], ["-q"]])
@pytest.mark.parametrize(
    ("options", "code", "n_records"),
    [([], 1, 3), (["--on-decode-error", "null"], 0, 3), (["--on-decode-error", "skip"], 0, 1)],
)
def test_the_exit_code_says_that_values_are_null(root, tmp_path, capsys, quiet, options, code, n_records):
    out = tmp_path / "out.jsonl"
    assert main(["export", str(root), "-o", str(out), *FORMATS, *quiet, *options]) == code
    assert ("2 keys or values did not decode, so null" in capsys.readouterr().err) == (code == 1)
    assert len(out.read_text().splitlines()) == n_records


def test_python_reports_how_many(root, tmp_path):
    decode = {"key": "utf8", "value": "json"}
    for number, option in enumerate((None, "null", "skip")):
        result = kafkalog.export(root, tmp_path / f"{number}.parquet", decode=decode, on_decode_error=option)
        assert (result.n_undecoded, result.n_records) == (2, 1 if option == "skip" else 3)
    assert "n_undecoded=2" in repr(result)
    assert any("left out of the result" in one.detail for one in result.findings)
    with pytest.raises(ValueError, match="on_decode_error"):
        kafkalog.export(root, tmp_path / "x.parquet", decode=decode, on_decode_error="raise")


def test_a_table_that_grows(root, tmp_path, capsys):
    arguments = ["export", str(root), "-o", str(tmp_path / "lake"), "--format", "parquet", "--resume", *FORMATS]
    assert main(arguments) == 1
    assert main(arguments) == 0  # nothing new
    with kafkalog.PartitionWriter(root / "t-0") as writer:
        writer.append({"key": [b"a"], "value": [b"no"]})
    assert main([*arguments, "--on-decode-error", "skip"]) == 0
    assert "left out, with the records" in capsys.readouterr().err


def test_reasons_and_bytes_are_columns(root, tmp_path):
    out = tmp_path / "out.jsonl"
    columns = "offset,value,value_error,value_bytes,key_error,key_bytes"
    assert main(["export", str(root), "-o", str(out), *FORMATS, "--columns", columns, "--encoding", "utf8"]) == 1
    second, third = map(json.loads, out.read_text().splitlines()[1:])
    assert (second["value_error"], second["value_bytes"]) == ("not JSON", "oops")
    assert third["key_error"]
    assert third["key_bytes"] == {"base64": "/w=="}
