"""Names of decoded fields: each output has the values under these names, or refuses them with the names."""

import csv
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import spared
from lakes import LAKES

import kafkalog
from kafkalog.errors import UnwritableError

STEPS = [
    "a",
    "A",
    "b",
    "a.b",
    "element",
    "list",
    "key",
    "item",
    "1",
    "_1",
    "007",
    "7",
    "a_x20b",
    "é",
    "É",
    "ß",
    "offset",
    "Value",
    "{x}",
    "I",
    "i",
    "topic",
    "a__text",
    "=c",
    "%41",
    "`",
    "null",
]
STEPS += ["", "a b", '"q"', "a,b", "a\tb", "a\nb", "x" * 300, "\u0131", " ", "a ", "\U0001f600", "a\0b"]
OPTIONS = {"decode": {"value": "json"}, "columns": ["offset", "value"]}


def an_object(draw, depth=0):
    inner = [1, "s", {"b": 1}, [{"b": 1}], {"": 1}, {"a": 1, "A": 2}]
    names = draw.sample(STEPS, draw.randint(1, 4))
    return {name: an_object(draw, 1) if depth == 0 and draw.random() < 0.25 else draw.choice(inner) for name in names}


def written(root, value):
    with kafkalog.PartitionWriter(root / "t-0") as writer:
        writer.append({"value": [json.dumps(value).encode()]})


def of_file(root, out, suffix):
    path = out / f"x.{suffix}"
    kafkalog.export(root, path, **OPTIONS)
    if suffix == "jsonl":
        return json.loads(path.read_text())["value"]
    if suffix == "csv":
        with path.open(newline="") as file:
            return json.loads(next(csv.DictReader(file))["value"])
    table = pq.ParquetFile(path).read() if suffix == "parquet" else pa.ipc.open_file(path).read_all()
    return table["value"][0].as_py()


def of_lake(root, out, format):
    lake = LAKES[format](out / format)
    lake.path.mkdir()
    for _ in range(2):
        lake.run(root, partition_by=(), **OPTIONS)
    if format == "iceberg":
        return lake.output.scan().to_arrow()["value"][0].as_py()
    file = next(lake.output.rglob("*.parquet")) if format == "directory" else lake.files()[0]
    return pq.ParquetFile(file).read()["value"][0].as_py()


def of_polars(root, out):
    pytest.importorskip("polars", reason="not tested here: polars is not installed")
    return kafkalog.scan(root, **OPTIONS).to_polars()["value"][0]


def of_sql(root, out):
    result = kafkalog.sql("select value from t", root, decode=OPTIONS["decode"])
    found = result.arrow()["value"][0].as_py()
    renamed = [finding.detail for finding in result.findings if "no empty name" in finding.detail]
    return without_renamed(found) if renamed else found


def without_renamed(value):
    if isinstance(value, dict):
        names = (("" if name.startswith("element") and name != "element" else name) for name in value)
        return dict(zip(names, map(without_renamed, value.values()), strict=True))
    return [*map(without_renamed, value)] if isinstance(value, list) else value


OUTPUTS = {
    **{name: lambda *a, name=name: of_file(*a, name) for name in ("parquet", "arrow", "csv", "jsonl")},
    **{name: lambda *a, name=name: of_lake(*a, name) for name in LAKES},
    "polars": of_polars,
    "sql": of_sql,
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", spared(range(30), 3))
def test_random_names_are_written_or_refused(tmp_path, seed):
    pytest.importorskip("duckdb")
    pytest.importorskip("deltalake", reason="not tested here: deltalake is not installed")
    pytest.importorskip("pyiceberg_core", reason="not tested here: pyiceberg is not installed")
    value = an_object(random.Random(seed))
    root = tmp_path / "log"
    root.mkdir()
    written(root, value)
    names = {name.replace("\0", "\\0") or '""' for name in json_names(value)}
    refused = {}
    for output, read in OUTPUTS.items():
        try:
            found = read(root, tmp_path)
        except UnwritableError as error:
            refused[output] = str(error)
        else:
            assert found == value, output
    assert refused.keys().isdisjoint(("csv", "jsonl", "arrow"))
    assert all(any(name in text for name in names) for text in refused.values()), refused


def json_names(value):
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from json_names(part)
    if isinstance(value, dict):
        yield from value


def test_a_name_with_nul_is_refused_where_c_libraries_cut_it(tmp_path):
    written(tmp_path, {"a": [{"b\0c": 1}], "x": 2})
    for suffix in ("parquet", "jsonl"):
        to = tmp_path / f"x.{suffix}"
        if suffix == "jsonl":
            assert kafkalog.export(tmp_path / "t-0", to, **OPTIONS).n_records == 1
            assert json.loads(to.read_text())["value"] == {"a": [{"b\0c": 1}], "x": 2}
            continue
        with pytest.raises(UnwritableError, match=r"value\.a\.b\\0c"):
            kafkalog.export(tmp_path / "t-0", to, **OPTIONS)
        assert not to.exists()
