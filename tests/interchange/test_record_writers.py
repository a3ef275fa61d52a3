"""Files of every format and compression, with the row groups asked for."""

import io

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from exported import (
    read_arrow,
)

import kafkalog
from kafkalog.interchange.file_types import FORMATS, file_type


@pytest.mark.parametrize(
    ("name", "compression"),
    [
        *((f"{codec}.parquet", codec) for codec in ("none", "snappy", "gzip", "lz4", "zstd", "brotli")),
        *((f"{codec}.arrow", codec) for codec in ("none", "lz4", "zstd")),
        ("x.csv.gz", None),
        ("x.csv.zst", None),
        ("x.jsonl.gz", "gzip"),
        ("packed.jsonl", "zstd"),
    ],
)
def test_compression(log_dir, tmp_path, name, compression):
    to = tmp_path / name
    options = {"topics": "p-multi"}
    kafkalog.export(log_dir, to, compression=compression, **options)
    table = kafkalog.read_table(log_dir, **options)
    if name.endswith(".parquet"):
        assert pq.read_table(to).equals(table)
        codec = pq.ParquetFile(to).metadata.row_group(0).column(6).compression
        assert codec == {"none": "UNCOMPRESSED"}.get(str(compression), str(compression).upper())
    elif name.endswith(".arrow"):
        assert read_arrow(to).equals(table)
    else:
        packed = "gzip" if name.endswith("gz") else "zstd"
        with pa.CompressedInputStream(pa.OSFile(str(to)), packed) as stream:
            text = stream.read().decode()
        plain = tmp_path / ("plain" + (".csv" if "csv" in name else ".jsonl"))
        kafkalog.export(log_dir, plain, **options)
        assert text == plain.read_text("utf-8")
        assert to.stat().st_size < plain.stat().st_size / 2


def test_row_groups_have_the_rows_asked_for(log_dir, tmp_path):
    kafkalog.export(log_dir, tmp_path / "x.parquet", row_group_rows=1000)
    kafkalog.export(log_dir, tmp_path / "x.arrow", row_group_rows=100)
    table = kafkalog.read_table(log_dir)
    metadata = pq.ParquetFile(tmp_path / "x.parquet").metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1000, 1000, 1000, 257]
    assert pq.read_table(tmp_path / "x.parquet").equals(table)
    with pa.ipc.open_file(str(tmp_path / "x.arrow")) as file:
        assert max(file.get_batch(i).num_rows for i in range(file.num_record_batches)) == 100
        assert file.read_all().equals(table)


def test_a_binary_file_takes_any_format(log_dir):
    table = kafkalog.read_table(log_dir, topics="p-multi")
    for format in ("parquet", "arrow", "arrows", "csv", "jsonl"):
        file = io.BytesIO()
        result = kafkalog.export(log_dir, file, format=format, topics="p-multi")
        assert not file.closed
        assert len(file.getvalue()) == result.n_bytes
        if format == "parquet":
            assert pq.read_table(io.BytesIO(file.getvalue())).equals(table)
        if format == "arrows":
            assert pa.ipc.open_stream(file.getvalue()).read_all().equals(table)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((f"x.{name}", (name, None)) for name in FORMATS),
        ("x.PQ", ("parquet", None)),
        ("x.parq", ("parquet", None)),
        ("x.feather", ("arrow", None)),
        ("x.ipc", ("arrow", None)),
        ("x.ndjson.ZSTD", ("jsonl", "zstd")),
        ("orders.2026.csv.gz", ("csv", "gzip")),
        ("x.jsonl.bz2", ("jsonl", "bz2")),
        ("x.gz", (None, "gzip")),
        ("x.gz.gz", (None, "gzip")),
        ("x.txt", (None, None)),
        (".csv", (None, None)),
        ("x", (None, None)),
    ],
)
def test_suffixes_say_format_and_compression(name, expected):
    assert file_type(name) == expected
    assert file_type(f"/a.csv.gz/{name}") == expected
