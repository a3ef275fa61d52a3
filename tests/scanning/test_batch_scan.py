"""The batch table of log dirs, and `kafkalog batches`: which batches there are, and who sends what."""

import json
import warnings

import builder
import golden_sets
import numpy as np
import pyarrow as pa
import pytest

import kafkalog
from kafkalog.format import CODEC_NAMES
from kafkalog.scanning.batch_scan import BATCH_COLUMNS
from kafkalog.scanning.batch_summary import MAX_GROUPS, BatchSummary


@pytest.mark.parametrize("set_name", golden_sets.SETS)
def test_the_table_is_that_of_all_segments(set_name):
    root = golden_sets.unpacked(set_name)
    table = kafkalog.batches(root).to_table()
    assert table.schema.names == list(BATCH_COLUMNS)
    log_dir = kafkalog.open(root)
    assert isinstance(log_dir, kafkalog.LogDir)
    want = []
    for key, partition in log_dir.items():
        for segment in partition.segments:
            for row in segment.batches.to_arrow().to_pylist():
                row |= {"topic": key.topic, "partition": key.partition, "segment": segment.path.name}
                want.append(row | {"compression": CODEC_NAMES[row["codec"]]})
    assert len(want) > 100
    assert [dict(sorted(row.items())) for row in table.to_pylist()] == [dict(sorted(row.items())) for row in want]


def test_a_batch_scan_is_an_arrow_stream(log_dir):
    import duckdb

    batches = kafkalog.batches(log_dir, columns=["topic", "size_in_bytes", "compression"])
    assert pa.table(batches).equals(batches.to_table())
    assert duckdb.sql(
        "select topic, sum(size_in_bytes)::bigint from batches where compression = 'zstd' group by all order by 2 desc"
    ).fetchall()[0] == ("p-zstd-java", 66686)
    frame = batches.to_pandas()
    assert list(frame.columns) == ["topic", "size_in_bytes", "compression"]
    assert len(frame) == 687
    assert repr(batches).startswith("BatchScan(LogDir(")


def test_topics_partitions_and_columns_are_chosen(log_dir):
    table = kafkalog.batches(log_dir, topics=["p-multi", "p-txn"], partitions=[0, 1], columns=["topic", "partition"])
    assert sorted({tuple(row.values()) for row in table.to_table().to_pylist()}) == [
        ("p-multi", 0),
        ("p-multi", 1),
        ("p-txn", 0),
    ]
    assert kafkalog.batches(log_dir, partitions=2).to_table()["partition"].unique().to_pylist() == [2]
    for columns, message in ((["nope"], "no column"), (["crc", "crc"], "twice")):
        with pytest.raises(ValueError, match=message):
            kafkalog.batches(log_dir, columns=columns)
    with pytest.raises(TypeError):
        kafkalog.batches(log_dir, columns="crc")
    with pytest.raises(ValueError):
        kafkalog.batches(log_dir, topics="nope")
    with pytest.raises(TypeError, match="batches has no option 'nrows'"):
        kafkalog.batches(log_dir, nrows=3)
    assert kafkalog.batches(log_dir, topic="p-multi", partition=0).to_table()["topic"].unique().to_pylist() == [
        "p-multi"
    ]


@pytest.mark.parametrize("name", ["p-multi-0", "p-txn-0", "p-v1-lz4-0", "p-v0v1v2-mixed-0", "p-compact-0"])
def test_a_range_of_offsets_keeps_the_batches_that_hold_them(log_dir, name):
    records = kafkalog.read_table(
        log_dir / name, columns=["offset", "batch_position", "segment"], include_control=True
    ).to_pylist()
    end = records[-1]["offset"] + 1
    for start, stop in [(0, 1), (7, 60), (60, 61), (end - 1, end + 10), (end // 2, None), (None, end // 3), (5, 5)]:
        kept = {
            (row["segment"], row["position"])
            for row in kafkalog.batches(log_dir / name, start_offset=start, end_offset=stop).to_table().to_pylist()
        }
        want = {
            (row["segment"], row["batch_position"])
            for row in records
            if (start or 0) <= row["offset"] < (end if stop is None else stop)
        }
        assert want <= kept
        # beside those, at most a batch a side whose offsets are hidden, compacted away, or a bound in its middle
        assert len(kept - want) <= 2
    by_partition = kafkalog.batches(log_dir, start_offset={("p-txn", 0): 400}, topics="p-txn").to_table()
    assert min(by_partition["last_offset"].to_pylist()) >= 400


def test_a_partition_yields_its_batches_by_segment(log_dir):
    partition = kafkalog.open(log_dir / "p-txn-0")
    assert isinstance(partition, kafkalog.Partition)
    done = []
    found = [(segment.base_offset, len(batches)) for segment, batches in partition.iter_batches(progress=done.append)]
    assert found == [(segment.base_offset, len(segment.batches)) for segment in partition.segments]
    assert sum(done) == partition.size_in_bytes


def test_progress_reaches_the_size(log_dir):
    for scan in (kafkalog.batches(log_dir), kafkalog.scan(log_dir, include_deleted=True)):
        done = []
        scan.progress = done.append
        assert sum(batch.num_rows for batch in scan.to_batches()) > 600
        assert sum(done) == 436651


@pytest.fixture
def damaged(log_dir_copy):
    """A log dir with a bad magic in one partition, and another that is cut off in the middle of its log."""
    log = log_dir_copy / "p-zstd-java-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[int(kafkalog.Segment(log).batches.position[5]) + 16] ^= 0x40
    log.write_bytes(data)
    return log_dir_copy


def test_a_partition_that_cannot_be_read_is_a_finding(log_dir_copy):
    log = log_dir_copy / "p-multi-1" / "00000000000000000000.log"
    log.unlink()
    log.mkdir()
    with pytest.raises(kafkalog.ReadError):
        kafkalog.batches(log_dir_copy).to_table()
    batches = kafkalog.batches(log_dir_copy, on_corruption="skip", columns=["topic"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        assert batches.to_table().num_rows > 600
    assert [finding.reason.value for finding in batches.findings] == ["not_a_file"]


# the command


def test_json_has_every_column_as_the_library_has_it(run_lines, log_dir):
    code, out, err = run_lines("batches", log_dir, "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out] == kafkalog.batches(log_dir).to_table().to_pylist()
    _, out, _ = run_lines(
        "batches", log_dir, "--json", "--columns", "crc,segment", "-t", "p-txn", "-n", 2, "--start-offset", 9
    )
    columns = ["crc", "segment"]
    table = kafkalog.batches(log_dir, topics="p-txn", columns=columns, start_offset=9).to_table()
    assert [json.loads(line) for line in out] == table.slice(0, 2).to_pylist()
    assert run_lines("batches", log_dir, "--json", "-n", 0)[1] == []


def test_the_command_shows_everything_readable_and_then_is_1(run_lines, damaged):
    code, out, err = run_lines("batches", damaged, "--json")
    assert (code, len(out)) == (1, 686)
    assert err.startswith("kafkalog: damage: ")
    assert "bad_magic" in err
    assert "Warning" not in err
    code, out, err = run_lines("batches", damaged, "--json", "--on-corruption", "stop")
    assert (code, len(out)) == (1, 633)
    code, out, err = run_lines("batches", damaged, "--json", "--on-corruption", "raise")
    assert code == 1
    assert len(out) == 633
    assert "--on-corruption skip" in err
    code, out, _ = run_lines("batches", damaged, "--summary")
    assert (code, out[-1].split()[:2]) == (1, ["total", "686"])


def test_a_summary_is_what_the_table_says(run_lines, log_dir):
    code, out, err = run_lines("batches", log_dir, "--summary", "--json")
    assert (code, err) == (0, "")
    table = kafkalog.batches(log_dir).to_table().to_pylist()
    groups = {}
    for row in table:
        groups.setdefault((row["producer_id"], row["compression"], row["magic"]), []).append(row)
    found = [json.loads(line) for line in out]
    assert [row["n_bytes"] for row in found] == sorted((row["n_bytes"] for row in found), reverse=True)
    assert len(found) == len(groups) > 10
    for line in found:
        rows = groups[line["producer_id"], line["compression"], line["magic"]]
        sizes = np.array([row["size_in_bytes"] for row in rows])
        counted = [row["records_count"] for row in rows if not row["is_control"] and row["records_count"] >= 0]
        assert (line["n_batches"], line["n_bytes"]) == (len(rows), sizes.sum())
        assert (line["min_bytes"], line["max_bytes"]) == (sizes.min(), sizes.max())
        assert line["n_records"] == sum(counted)
        assert line["n_records_is_minimum"] == any(row["records_count"] < 0 for row in rows)
        assert line["mean_records"] == (pytest.approx(np.mean(counted), abs=0.01) if counted else None)
        assert line["mean_bytes"] == pytest.approx(sizes.mean(), abs=0.1)
        assert line["n_control"] == sum(row["is_control"] for row in rows)
        assert line["n_transactional"] == sum(row["is_transactional"] and not row["is_control"] for row in rows)
        plain = [row for row in rows if not row["is_transactional"] and not row["is_control"]]
        assert line["n_idempotent"] == sum(row["producer_id"] >= 0 for row in plain)
        for percent in (50, 90, 99):
            exact = np.percentile(sizes, percent, method="inverted_cdf")
            assert exact * (1 - 1 / 64) <= line[f"p{percent}_bytes"] <= exact
    assert {row["n_idempotent"] > 0 for row in found} == {row["n_transactional"] > 0 for row in found} == {False, True}


def test_as_many_producers_as_batches_are_counted_in_bounded_memory(tmp_path, run_lines, monkeypatch):
    partition = tmp_path / "orders-0"
    partition.mkdir()
    batches = [builder.batch_v2(base_offset=i, producer_id=i, records_count=1, last_offset_delta=0) for i in range(300)]
    (partition / f"{0:020d}.log").write_bytes(b"".join(batches))
    assert MAX_GROUPS >= 100_000
    monkeypatch.setattr("kafkalog.scanning.batch_summary.MAX_GROUPS", 100)
    code, out, err = run_lines("batches", partition, "--summary", "-n", 3)
    assert code == 0
    assert "200 batches" in err
    assert [line.split()[0] for line in out[-2:]] == ["98", "total"]
    assert out[-1].split()[1:4] == ["300", "300", f"{300 * 61:,}"]
    summary = BatchSummary(["producer_id"])
    for rows in kafkalog.batches(partition).iter_rows():
        summary.add(rows)
    assert (len(summary), summary.n_unlisted) == (100, 200)
