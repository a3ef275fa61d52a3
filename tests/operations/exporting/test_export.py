"""Exports: what is read back is what was in the log, memory is bounded, and it is all or nothing."""

import base64
import io
import os
import warnings
from pathlib import Path

import builder
import golden_sets
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from exported import (
    BYTES,
    from_json,
    read_arrow,
    read_csv_rows,
    read_parquet,
    read_stream,
    rows_of,
)
from refusals import fails_with

import kafkalog
from kafkalog.column_names import ALL_COLUMNS
from kafkalog.errors import UnsafePathError, WriteError
from kafkalog.interchange.input_paths import NULL_DIRECTORY
from kafkalog.operations.exporting.partitioned_files import MAX_OPEN_FILES

DAY = 86_400_000


LOG_DIRS = [("k44", "clean"), ("k28", "clean"), ("k44_extra", "clean"), ("k44", "unclean"), ("k28", "unclean")]


@pytest.mark.parametrize(
    ("set_name", "archive"),
    [pytest.param(*one, marks=pytest.mark.slow if one != ("k44_extra", "clean") else []) for one in LOG_DIRS],
)
def test_all_golden_partitions_come_back_from_every_format(set_name, archive, tmp_path):
    scan = kafkalog.scan(golden_sets.unpacked(set_name, archive), columns=ALL_COLUMNS, include_control=True)
    table = scan.to_table()
    assert table.num_rows > 500
    readers = {
        "x.parquet": read_parquet,
        "x.arrow": read_arrow,
        "x.arrows": read_stream,
    }
    for name, read in readers.items():
        result = kafkalog.export(scan, tmp_path / name)
        assert result.n_records == table.num_rows
        assert result.n_bytes == (tmp_path / name).stat().st_size
        back = read(tmp_path / name)
        assert back.schema.equals(table.schema)
        assert back.equals(table)
    want = rows_of(table)
    kafkalog.export(scan, tmp_path / "x.jsonl")
    assert [from_json(line) for line in (tmp_path / "x.jsonl").read_text("utf-8").split("\n")[:-1]] == want
    for null in ("", r"\N"):
        kafkalog.export(scan, tmp_path / "x.csv", null=null, overwrite=True)
        assert read_csv_rows(tmp_path / "x.csv", table.schema, null) == want


def test_other_readers_read_the_same_records(log_dir, tmp_path):
    import duckdb
    import pandas as pd
    import polars

    table = kafkalog.read_table(log_dir)
    for name in ("x.parquet", "x.arrow", "x.jsonl"):
        kafkalog.export(log_dir, tmp_path / name)
    columns = ["topic", "partition", "offset", *BYTES]
    want = table.select(columns).to_pylist()
    frame = pd.read_parquet(tmp_path / "x.parquet", dtype_backend="pyarrow")
    assert pa.Table.from_pandas(frame[columns], preserve_index=False).to_pylist() == want
    assert duckdb.sql(f'select topic, "partition", "offset", key, value from \'{tmp_path}/x.parquet\'').fetchall() == [
        tuple(row.values()) for row in want
    ]
    assert polars.read_parquet(tmp_path / "x.parquet").select(columns).to_dicts() == want
    assert polars.read_ipc(tmp_path / "x.arrow").select(columns).to_dicts() == want
    kinds = "columns={'offset': 'BIGINT', 'value': 'VARCHAR', 'headers': 'JSON'}"
    rows = duckdb.sql(f"select * from read_json('{tmp_path}/x.jsonl', {kinds})").fetchall()
    assert [(offset, None if value is None else base64.b64decode(value)) for offset, value, _ in rows] == [
        (row["offset"], row["value"]) for row in want
    ]


# partitioned


def hive(root):
    fields = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("date", pa.string())])
    partitioning = pa.dataset.partitioning(fields, flavor="hive")
    return pa.dataset.dataset(root, format="parquet", partitioning=partitioning).to_table()


def test_a_partitioned_directory_reads_as_one_table(log_dir, tmp_path):
    result = kafkalog.export(log_dir, tmp_path / "lake", partition_by=["topic", "partition", "date"])
    table = kafkalog.read_table(log_dir)
    files = sorted(path.relative_to(tmp_path / "lake") for path in (tmp_path / "lake").rglob("*") if path.is_file())
    assert result.n_files == len(files) == 11
    assert Path("topic=p-multi/partition=1/date=2023-11-14/part-0.parquet") in files
    assert Path(f"topic=p-v0v1v2-mixed/partition=0/date={NULL_DIRECTORY}/part-0.parquet") in files
    assert "topic" not in pq.read_schema(tmp_path / "lake" / files[0]).names
    back = hive(tmp_path / "lake").sort_by(
        [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    )
    assert back.select(table.schema.names).equals(table)
    for row in back.select(["timestamp", "date"]).to_pylist():
        assert row["date"] == (None if row["timestamp"] is None else row["timestamp"].date().isoformat())
    import duckdb

    query = f"select topic, \"partition\", count(*) from '{tmp_path}/lake/**/*.parquet' group by all order by all"
    counts = table.group_by(["topic", "partition"]).aggregate([("offset", "count")]).to_pylist()
    assert duckdb.sql(query).fetchall() == sorted(tuple(row.values()) for row in counts)


def log_of(root, timestamps, name="orders-0"):
    """A partition of a record a timestamp."""
    partition = root / name
    partition.mkdir(parents=True)
    batches = [
        builder.batch_v2(
            [builder.record_v2(0, 0, None, b"%d" % i)], base_offset=i, base_timestamp=stamp, max_timestamp=stamp
        )
        for i, stamp in enumerate(-1 if stamp is None else stamp for stamp in timestamps)
    ]
    (partition / f"{0:020d}.log").write_bytes(b"".join(batches))
    return partition


def test_dates_that_interleave_need_few_files_at_a_time(tmp_path):
    n_days = MAX_OPEN_FILES + 6
    stamps = [day * DAY + turn for turn in range(3) for day in range(n_days)]
    partition = log_of(tmp_path, stamps)
    # a batch a record batch, so that the days come one after the other
    kafkalog.export(partition, tmp_path / "out", partition_by="date", batch_size=1)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) == 3 * n_days
    assert {path.name for path in files} == {f"part-{i}.parquet" for i in range(3)}
    table = hive(tmp_path / "out")
    assert sorted(table["offset"].to_pylist()) == list(range(len(stamps)))
    # together in one record batch, each day is one file, in order
    kafkalog.export(partition, tmp_path / "together", partition_by="date")
    files = [path for path in (tmp_path / "together").rglob("*") if path.is_file()]
    assert len(files) == n_days
    for path in files:
        offsets = pq.ParquetFile(path).read()["offset"].to_pylist()
        assert offsets == sorted(offsets)
        assert len(offsets) == 3


def test_dates_that_no_calendar_has_are_null(tmp_path):
    stamps = [None, 2**63 - 1, -(2**62), 253_402_300_800_000, 253_402_300_799_999, -62_135_596_800_000, -2, 0]
    partition = log_of(tmp_path, stamps)
    kafkalog.export(partition, tmp_path / "out", partition_by="date")
    found = {
        path.name.removeprefix("date="): pq.ParquetFile(path / "part-0.parquet").read()["offset"].to_pylist()
        for path in (tmp_path / "out").iterdir()
    }
    assert found == {
        NULL_DIRECTORY: [0, 1, 2, 3],
        "9999-12-31": [4],
        "0001-01-01": [5],
        "1969-12-31": [6],
        "1970-01-01": [7],
    }


def test_too_many_directories_are_refused(tmp_path):
    partition = log_of(tmp_path, [day * DAY for day in range(20)])
    with fails_with("too_many_directories"):
        kafkalog.export(partition, tmp_path / "out", partition_by="date", limits=kafkalog.Limits(max_directories=10))
    assert sorted(os.listdir(tmp_path)) == ["orders-0"]


def test_a_lone_segment_has_no_topic(log_dir, tmp_path):
    lone = tmp_path / "lone.log"
    lone.write_bytes((log_dir / "p-multi-1" / "00000000000000000000.log").read_bytes())
    kafkalog.export(lone, tmp_path / "out", partition_by=["topic", "partition"])
    (file,) = (path for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert file.parent == tmp_path / "out" / f"topic={NULL_DIRECTORY}" / f"partition={NULL_DIRECTORY}"
    assert hive(tmp_path / "out").num_rows == 99
    kafkalog.export(lone, tmp_path / "lone.parquet")  # beside it is no log dir


# all or nothing


@pytest.fixture
def damaged(log_dir_copy):
    """A partition with a wrong checksum in its fourth batch."""
    partition = log_dir_copy / "p-multi-0"
    log = partition / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[int(kafkalog.Segment(log).batches.position[3]) + 80] ^= 0x10
    log.write_bytes(data)
    return partition


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.arrows", "x.csv", "x.csv.gz", "x.jsonl", "lake"])
def test_damage_leaves_nothing_unless_it_is_passed_over(damaged, tmp_path, name):
    place = tmp_path / "place"
    place.mkdir()
    options = {"partition_by": "date"} if name == "lake" else {}
    with fails_with("crc_mismatch"):
        kafkalog.export(damaged, place / name, **options)
    assert os.listdir(place) == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        result = kafkalog.export(damaged, place / name, on_corruption="skip", **options)
        assert result.n_records == kafkalog.read_table(damaged, on_corruption="skip").num_rows > 50
    assert [finding.reason.value for finding in result.findings] == ["crc_mismatch"]
    before = sorted(path.read_bytes() for path in place.rglob("*") if path.is_file())
    with pytest.raises(kafkalog.CorruptionError):
        kafkalog.export(damaged, place / name, overwrite=True, **options)
    assert sorted(path.read_bytes() for path in place.rglob("*") if path.is_file()) == before
    assert os.listdir(place) == [name]


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.csv", "x.csv.gz", "lake"])
def test_the_nth_failing_write_is_told_and_leaves_nothing(log_dir, tmp_path, name, monkeypatch):
    write = os.write
    n_failures = 0
    for n in (1, 2, 3, 5, 8, 13, 21):
        left = [n]

        def fail(descriptor, data, left=left):
            left[0] -= 1
            if not left[0]:
                raise OSError(28, os.strerror(28))
            return write(descriptor, data)

        monkeypatch.setattr("kafkalog.storage.staging.os.write", fail)
        try:
            kafkalog.export(
                log_dir, tmp_path / name, partition_by="topic" if name == "lake" else (), topics=["p-multi", "p-txn"]
            )
        except WriteError:
            n_failures += 1
            assert os.listdir(tmp_path) == []
        else:
            assert left[0] > 0
            break
    assert n_failures >= 1


def test_output_is_refused_in_the_log_dir_that_is_read(log_dir_copy, tmp_path):
    before = sorted(log_dir_copy.rglob("*"))
    for path, to in [
        (log_dir_copy, log_dir_copy / "x.parquet"),
        (log_dir_copy / "p-txn-0", log_dir_copy / "x.parquet"),
        (log_dir_copy / "p-txn-0" / "00000000000000000000.log", log_dir_copy / "p-txn-0" / "x.parquet"),
        (kafkalog.open(log_dir_copy), log_dir_copy / "p-txn-0" / "x.csv"),
        (kafkalog.scan(log_dir_copy), log_dir_copy / "x.csv"),
    ]:
        with pytest.raises(UnsafePathError):
            kafkalog.export(path, to)
    log = tmp_path / "s.log"
    log.write_bytes(b"")
    with fails_with("unsafe_path"):
        kafkalog.export(log, log, format="csv", overwrite=True)
    assert sorted(log_dir_copy.rglob("*")) == before


def test_a_directory_is_replaced_only_if_an_export_made_it(log_dir, tmp_path):
    home = tmp_path / "home"
    (home / "letters").mkdir(parents=True)
    (home / "letters" / "dear.txt").touch()
    with fails_with("output_exists"):
        kafkalog.export(log_dir, home, partition_by="topic", overwrite=True)
    assert (home / "letters" / "dear.txt").exists()
    to = tmp_path / "lake"
    kafkalog.export(log_dir, to, partition_by=["topic", "date"])
    with fails_with("output_exists") as raised:
        kafkalog.export(log_dir, to, partition_by="topic")
    assert raised.value.__notes__ == ["use overwrite=True (--overwrite) to replace it, or name another output"]
    kafkalog.export(log_dir, to, partition_by="topic", topics="p-txn", format="csv", overwrite=True)
    assert [str(path.relative_to(to)) for path in to.rglob("*")] == ["topic=p-txn", "topic=p-txn/part-0.csv"]
    assert sorted(os.listdir(tmp_path)) == ["home", "lake"]


def test_no_records_are_an_empty_table(log_dir, tmp_path):
    for name in ("x.parquet", "x.arrow", "x.arrows", "x.csv", "x.jsonl"):
        assert kafkalog.export(log_dir, tmp_path / name, limit=0).n_records == 0
    schema = kafkalog.scan(log_dir).schema
    for read, name in [(read_parquet, "x.parquet"), (read_arrow, "x.arrow"), (read_stream, "x.arrows")]:
        assert read(tmp_path / name).equals(schema.empty_table())
    assert (tmp_path / "x.csv").read_text() == ",".join(schema.names) + "\n"
    assert (tmp_path / "x.jsonl").read_bytes() == b""


# options


def test_partitioning_needs_no_column_to_be_written(log_dir, tmp_path):
    kafkalog.export(log_dir, tmp_path / "a", partition_by=["date", "topic"], columns=["offset"])
    files = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert {tuple(pq.read_schema(path).names) for path in files} == {("offset",)}
    assert any("date=2023-11-14/topic=p-txn" in str(path) for path in files)
    with pytest.raises(ValueError, match="partition_by"):
        kafkalog.export(log_dir, tmp_path / "b", partition_by="topic", columns=["topic"])
    with pytest.raises(ValueError, match="partition_by"):
        kafkalog.export(kafkalog.scan(log_dir, columns=["offset"]), tmp_path / "b", partition_by="date")


@pytest.mark.parametrize(
    ("to", "options", "message"),
    [
        ("x", {}, "unknown format"),
        ("x.gz", {}, "unknown format"),
        ("x.parquet", {"format": "xml"}, "format must be one of"),
        ("x.parquet", {"compression": "lzo"}, "compression of parquet must be"),
        ("x.csv", {"compression": "snappy"}, "compression of csv must be"),
        ("x.csv.gz", {"compression": "zstd"}, "the name ends in gzip"),
        ("x.parquet", {"encoding": "hex"}, "encoding is for csv and jsonl"),
        ("x.csv", {"encoding": "ascii"}, "encoding must be one of"),
        ("x.jsonl", {"null": "x"}, "null is for csv"),
        ("x.csv", {"null": '"'}, "without quotes"),
        ("x.csv", {"row_group_rows": 10}, "no row groups"),
        ("x.parquet", {"row_group_rows": 0}, "at least 1"),
        ("x.parquet", {"limit": -1}, "limit must be at least 0, not -1"),
        ("x", {"partition_by": "offset"}, "partition_by .* takes"),
        ("x", {"partition_by": ["date", "date"]}, "twice"),
        ("x.parquet", {"columns": ["offset", "offset"], "partition_by": "date"}, "twice"),
        ("x.parquet", {"columns": ["nope"]}, "no column 'nope'"),
        (io.BytesIO(), {}, "format is required"),
        (io.BytesIO(), {"format": "csv", "partition_by": "date"}, "writes a directory"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(log_dir, tmp_path, to, options, message):
    with pytest.raises(ValueError, match=message):
        kafkalog.export(log_dir, tmp_path / to if isinstance(to, str) else to, **options)
    assert os.listdir(tmp_path) == []


# memory


def test_what_is_small_holds_little_memory(tmp_path):
    # an export to Parquet, and a table, keep the record batches of all segments for a while
    table = {"value": [b"v"] * 40, "timestamp": list(range(40))}
    with kafkalog.PartitionWriter(
        tmp_path / "t-0", config=kafkalog.LogConfig(segment_bytes=100), max_records_per_batch=5
    ) as writer:
        writer.append(table)
    batches = list(kafkalog.scan(tmp_path / "t-0").to_batches())
    assert len(batches) > 5
    assert max(batch.get_total_buffer_size() for batch in batches) < 2000
