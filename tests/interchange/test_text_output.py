"""Lines of JSON and CSV keep null, empty and awkward bytes apart."""

import base64
import csv
import json
from decimal import Decimal

import builder
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.ipc
import pytest
from exported import (
    parse_csv,
    read_csv_rows,
    rows_of,
)

import kafkalog
from kafkalog.interchange.text_output import plain_values

AWKWARD = [None, b"", b"null", b"NULL", b"\\N", b"a,b", b'"', b"\r\n", b"\x00\xff", "é\u2028".encode(), b" ", b"0"]


@pytest.fixture(scope="module")
def awkward(tmp_path_factory):
    """A partition whose keys, values and headers are what formats stumble over."""
    records = []
    for i, value in enumerate(AWKWARD):
        headers = [(b"n", value), (b"n", value), (b"", None), (b'q",\n', b"")]
        records.append(builder.record_v2(i, i, value, AWKWARD[-1 - i], headers[: i % 5]))
    partition = tmp_path_factory.mktemp("awkward") / "odd.name_1-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(builder.batch_v2(records, base_timestamp=-5))
    return partition


def test_null_empty_and_awkward_bytes_come_back(awkward, tmp_path):
    table = kafkalog.read_table(awkward)
    assert table["key"].to_pylist() == AWKWARD
    assert table["value"].to_pylist() == AWKWARD[::-1]
    want = rows_of(table)
    for encoding in ("base64", "hex"):
        kafkalog.export(awkward, tmp_path / f"{encoding}.csv", encoding=encoding)
    assert read_csv_rows(tmp_path / "base64.csv", table.schema) == want
    hexed = list(parse_csv((tmp_path / "hex.csv").read_text(), ""))[1:]
    assert [None if row[5] is None else bytes.fromhex(row[5]) for row in hexed] == AWKWARD
    text = kafkalog.export(awkward, tmp_path / "utf8.csv", encoding="utf8", columns=["key", "headers"], end_offset=8)
    assert text.n_records == 8
    rows = list(parse_csv((tmp_path / "utf8.csv").read_bytes().decode(), ""))[1:]
    assert [None if row[0] is None else row[0].encode() for row in rows] == AWKWARD[:8]
    for row, expected in zip(rows, want, strict=False):
        assert row[1] is not None
        assert [(name, None if value is None else value.encode()) for name, value in json.loads(row[1])] == [
            (header["key"], header["value"]) for header in expected["headers"]
        ]
    kafkalog.export(awkward, tmp_path / "utf8-null.csv", encoding="utf8", columns=["key"], end_offset=8, null=r"\N")
    lines = (tmp_path / "utf8-null.csv").read_text().split("\n")
    assert lines[1:6] == [r"\N", '""', "null", "NULL", r'"\N"']


def test_bytes_that_are_no_text_are_tagged(awkward, tmp_path):
    tagged = {"base64": base64.b64encode(AWKWARD[8] or b"").decode()}
    kafkalog.export(awkward, tmp_path / "x.jsonl", encoding="utf8")
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text("utf-8").split("\n")[:-1]]
    assert rows[8]["key"] == tagged
    assert rows[9]["key"] == "é\u2028"
    kafkalog.export(awkward, tmp_path / "x.csv", encoding="utf8", columns=["key"])
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert json.loads([*csv.reader(file)][9][0]) == tagged


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
def test_text_with_tagged_bytes_is_read_as_it_was(name, tmp_path):
    data = [None, b"", b"a", b"\xff", b"\x00\xfe", b"{", b'{"base64":', b'{"base64": "QQ=="}', b'{"base64": 1}']
    data += [b'{"base64": "QQ==", "a": 1}', b'{"base64":"*"}', b'"{""base64"": ""QQ==""}"', "é,\n".encode()]
    kafkalog.write_table({"key": data, "value": data[::-1]}, tmp_path / "log", topic="t")
    kafkalog.export(tmp_path / "log", tmp_path / name, encoding="utf8")
    kafkalog.load(tmp_path / name, tmp_path / "again", encoding="utf8")
    one, other = (kafkalog.read_table(tmp_path / log, columns=["offset", "key", "value"]) for log in ("log", "again"))
    assert one["key"].to_pylist() == data
    assert other.equals(one)


def test_other_readers_read_csv_with_null_and_empty_apart(awkward, tmp_path):
    import duckdb

    path = tmp_path / "x.csv"
    kafkalog.export(awkward, path)
    want = [None if value is None else base64.b64encode(value).decode() for value in AWKWARD]
    assert want[:2] == [None, ""]
    options = pa.csv.ConvertOptions(
        strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""], column_types={"key": pa.string()}
    )
    assert pa.csv.read_csv(path, convert_options=options)["key"].to_pylist() == want
    query = f"select key from read_csv('{path}', nullstr='', allow_quoted_nulls=false, all_varchar=true)"
    assert [row[0] for row in duckdb.sql(query).fetchall()] == want
    kafkalog.export(awkward, path, null=r"\N", overwrite=True)
    with open(path, newline="") as file:
        texts = [row["key"] for row in csv.DictReader(file)]
    assert [None if text == r"\N" else text for text in texts] == want
    import pandas as pd

    frame = pd.read_csv(path, na_values=[r"\N"], keep_default_na=False, dtype={"key": str})
    assert [None if pd.isna(value) else value for value in frame["key"]] == want


def test_a_null_that_base64_can_be_is_told_from_it(awkward, tmp_path):
    # "MA==" is the base64 of one of the values
    kafkalog.export(awkward, tmp_path / "x.csv", columns=["key"], null="MA==")
    lines = (tmp_path / "x.csv").read_text().split("\n")
    assert (lines[1], lines[-2]) == ("MA==", '"MA=="')


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (
            pa.array([Decimal("-0.0000000001"), Decimal(0), None], pa.decimal128(20, 10)),
            ["-0.0000000001", "0.0000000000", None],
        ),
        (pa.array([Decimal("1e40")], pa.decimal256(60, 1)), ["1" + "0" * 40 + ".0"]),
        (pa.array([0.1, None, float("nan"), 16777216.0, 1e-45], pa.float32()), [0.1, None, "NaN", 16777216.0, 1e-45]),
        (pa.array([0.1, 1e-10], pa.float64()), [0.1, 1e-10]),
    ],
)
def test_numbers_have_the_digits_that_a_reader_expects(array, texts):
    assert plain_values(array) == texts
