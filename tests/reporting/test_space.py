"""`kafkalog.space`: sums are all bytes, the top is exact, and what-if holds the result of `convert`."""

import json
import random
import re
from collections import Counter

import builder
import numpy as np
import pytest
from effort import thinned
from golden_sets import shared_log_dir, unpacked

import kafkalog
from kafkalog.cli import main
from kafkalog.reporting.space_meter import HeavyHitters, SpaceMeter, shortened, stored_bytes
from kafkalog.reporting.what_if import Change


def rows(found, name):
    return [*found.tables[name].objects()]


@pytest.mark.parametrize("damage", [False, True])
def test_sums_are_all_bytes(damage, tmp_path):
    root = tmp_path / "data"
    kafkalog.write_table(
        {"value": [b"v" * 300] * 500, "partition": np.arange(500, dtype=np.int32) % 3}, root, topic="t"
    )
    if damage:
        log = next((root / "t-1").glob("*.log"))
        log.write_bytes(log.read_bytes()[:-30] + b"\xff" * 400)
    for path in (root, *([] if damage else [unpacked("k44")])):
        found = kafkalog.space(path, top=2)
        files = [one for one in path.glob("*-*/*") if one.is_file()]
        n_log_bytes = sum(one.stat().st_size for one in files if one.suffix == ".log")
        n_bytes = sum(stored_bytes(one.stat()) for one in files)
        assert found.summary["n_bytes"] == n_log_bytes
        assert found.summary["n_file_bytes"] == n_bytes
        for name in ("topics", "partitions", "days", "codecs", "producers"):
            assert sum(row["n_bytes"] for row in rows(found, name)) == n_log_bytes, name
        for name, column in (("topics", "n_file_bytes"), ("partitions", "n_file_bytes"), ("files", "n_bytes")):
            assert sum(row[column] for row in rows(found, name)) == n_bytes
        assert bool(found.findings.n_damage) == damage


def exact(path):
    keys = Counter()
    headers = Counter()
    for record in kafkalog.cat(path):
        size = 0
        for name, value in record.headers:
            headers[name] += len(name.encode()) + len(value or b"")
            size += len(name.encode()) + len(value or b"")
        keys[record.key] += len(record.key or b"") + len(record.value or b"") + size
    return keys, headers


@pytest.mark.parametrize("seed", thinned(range(20), 5))
def test_the_top_is_exact_in_bounded_memory(seed, tmp_path):
    rng = random.Random(seed)
    n = rng.randrange(200, 1500)
    # a few keys have most of the bytes, and many have one record
    keys = [
        None if rng.random() < 0.02 else f"k{int(rng.paretovariate(rng.choice([0.4, 0.8])))}".encode() for _ in range(n)
    ]
    table = {
        "key": keys,
        "value": [bytes(rng.randrange(60)) for _ in keys],
        "headers": [[(f"h{rng.randrange(9)}", b"x" * rng.randrange(5))] * rng.randrange(3) for _ in keys],
    }
    kafkalog.write_table(table, tmp_path / "log", topic="t", compression=rng.choice(["none", "lz4"]))
    found = kafkalog.space(tmp_path / "log", records=True, top=5, capacity=40)
    by_key, by_header = exact(tmp_path / "log" / "t-0")
    assert found.summary["n_record_bytes"] == sum(by_key.values())
    assert found.summary["n_header_bytes"] == sum(by_header.values())
    assert found.summary["n_records"] == n
    for name, column, counts in (("keys", "key", by_key), ("headers", "header", by_header)):
        shown = {row[column]: row["n_bytes"] for row in rows(found, name)}
        assert shown == {key: counts[key and key.encode() if name == "keys" else key] for key in shown}
        if found.summary[f"{name}_are_exact"]:
            assert [*shown.values()] == [size for _, size in counts.most_common(5)]
    assert found.summary["headers_are_exact"]


def test_sums_are_short_by_at_most_the_error():
    rng = random.Random(1)
    keys = [f"{int(rng.paretovariate(0.7))}".encode() for _ in range(20_000)]
    held = HeavyHitters(capacity=50)
    held.add(keys, [1] * len(keys), [3] * len(keys))
    for key in keys:
        held.add([key], [1], [3])
    assert len(held.sums) <= 100
    assert held.total == [40_000, 120_000]
    true = Counter(keys)
    for key, (_, size) in held.sums.items():
        assert 6 * true[key] - held.error <= size <= 6 * true[key]
    assert all(6 * n <= held.error for key, n in true.items() if key not in held.sums)
    long = [b"x" * 1000 + bytes([n]) for n in range(3)]
    held = HeavyHitters(only=map(shortened, long[:2]))
    held.add(long, [1, 1, 1], [5, 6, 7])
    assert [size for _, _, size in held.largest(9)] == [6, 5]


def varied_log(root, seed):
    """Two topics that compress differently, in batches of different sizes."""
    rng = random.Random(seed)
    words = [bytes(rng.randrange(97, 123) for _ in range(rng.randrange(3, 9))) for _ in range(300)]
    for topic, n_words in (("text", 300), ("repeated", 9)):
        values = [b" ".join(rng.choices(words[:n_words], k=rng.randrange(5, 60))) for _ in range(8000)]
        options = {"compression": rng.choice(["none", "lz4"]), "batch_size": rng.choice([500, 4000, 16_384])}
        kafkalog.write_table({"value": values}, root, topic=topic, **options)


@pytest.mark.parametrize("seed", thinned(range(5), 5))
def test_the_interval_holds_the_result_of_convert(seed, tmp_path):
    varied_log(tmp_path / "log", seed)
    changes = ["zstd", "zstd:9:4096", "::2048", "gzip:1"]
    found = kafkalog.space(tmp_path / "log", what_if=changes, sample_bytes=1_000_000, seed=seed)
    for text, row in zip(changes, rows(found, "what_if"), strict=True):
        change = Change.parse(text)
        options = {"compression": change.compression, "compression_level": change.level}
        report = kafkalog.convert(
            tmp_path / "log", tmp_path / "out", **options, batch_size=change.batch_size, dry_run=True
        )
        assert row["n_bytes_before"] == report.total("n_bytes_before")
        assert row["low"] <= report.total("n_bytes_after") <= row["high"]
        assert row["high"] - row["low"] < row["n_bytes"] / 2, "an interval that says something"
        assert 0 < row["n_sampled"] < row["n_bytes_before"]


def test_a_small_log_is_converted_as_a_whole():
    found = kafkalog.space(shared_log_dir(), what_if="zstd")
    report = kafkalog.convert(shared_log_dir(), "/nowhere", compression="zstd", dry_run=True)
    (row,) = rows(found, "what_if")
    assert row["low"] == row["n_bytes"] == row["high"] == report.total("n_bytes_after")
    assert row["saved"] == pytest.approx(1 - row["n_bytes"] / row["n_bytes_before"])


@pytest.mark.parametrize("text", ["", "zstd:x", ":6", "none:1:2:3", "zstd:99", "brotli", "::0"])
def test_changes_that_are_none(text):
    with pytest.raises(ValueError):
        Change.parse(text)


def test_the_command(capsys):
    assert main(["space", str(shared_log_dir()), "--records", "--what-if", "lz4", "--top", "3"]) == 0
    out = capsys.readouterr().out
    assert "BYTES BY TOPIC" in out
    assert "\x1b" not in out
    assert re.search(r", compression ratio: \d\.\d$", out.strip())
    assert main(["space", str(shared_log_dir()), "--json", "-t", "p-multi"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], [row["topic"] for row in found["topics"]]) == (1, ["p-multi"])
    assert main(["space", str(shared_log_dir()), "--what-if", "zstd:99"]) == 2


def test_days_codecs_and_bytes_in_no_batch(tmp_path):
    path = tmp_path / "t-0"
    path.mkdir()
    times = (-1, 0, 86_399_999, 86_400_000, 2**62)
    batches = [
        builder.batch_v2(base_offset=row, records_count=1, last_offset_delta=0, base_timestamp=one, max_timestamp=one)
        for row, one in enumerate(times)
    ]
    log = b"".join(batches) + batches[0][:30]
    (path / f"{0:020d}.log").write_bytes(log)
    (path / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    meter = SpaceMeter()
    partition = kafkalog.open_partition(path)
    for _, one in partition.iter_batches(on_corruption="skip"):
        meter.add(one)
    assert meter.add_files(path, partition.size_in_bytes) == len(log) + 4
    size = len(batches[0])
    days = meter.rows("days")
    assert days[:3] == [("no timestamp", 1, size), ("1970-01-01", 2, 2 * size), ("1970-01-02", 1, size)]
    assert days[-1] == ("no batch", 0, 30)
    assert meter.rows("codecs") == [("none", 5, 5 * size), ("no batch", 0, 30)]
    assert meter.rows("files") == [(".log", 1, len(log)), ("other", 1, 4)]


def test_holes_of_sparse_files_take_no_bytes(tmp_path):
    """As those of preallocated indexes and segments."""
    with kafkalog.PartitionWriter(tmp_path / "t-0") as writer:
        writer.append({"value": [b"v" * 100] * 50})
    before = kafkalog.report(tmp_path / "t-0").summary["n_file_bytes"]
    with (tmp_path / "t-0" / f"{0:020d}.index").open("r+b") as file:
        file.truncate(2**27)
    assert before <= kafkalog.report(tmp_path / "t-0").summary["n_file_bytes"] < before + 2**20
