"""Two logs by content: equal records are found whatever their offsets, and what differs is counted exactly."""

import json
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from effort import examples, trials

import kafkalog
from kafkalog.cli import main
from kafkalog.comparing import record_pairs
from kafkalog.comparing.content import compare
from kafkalog.comparing.digests import Database
from kafkalog.comparing.record_pairs import longest_rising
from kafkalog.errors import CorruptionError, CorruptionWarning, NotKafkaError


def write(directory, records, *, topic="t", **options):
    """Write records, each a partition and a value, with one key and time."""
    partitions, values = zip(*records, strict=True)
    n = len(records)
    columns = {"partition": pa.array(partitions, pa.int32()), "key": pa.array([b"k"] * n, pa.binary())}
    columns |= {"value": pa.array(values, pa.binary()), "timestamp": pa.array([1000] * n, pa.int64())}
    kafkalog.write_table(pa.table(columns), directory, topic=topic, **options)
    return directory


def common_subsequence(a, b):
    """The length of the longest one, slowly."""
    best = [0] * (len(b) + 1)
    for one in a:
        before = best[:]
        for i, other in enumerate(b):
            best[i + 1] = before[i] + 1 if one == other else max(before[i + 1], best[i])
    return best[-1]


@pytest.mark.parametrize("seed", range(trials(2, 12)))
def test_each_record_is_the_same_moved_missing_or_repeated(seed, tmp_path, monkeypatch):
    if seed % 2:
        # as if the records did not fit into memory together
        monkeypatch.setattr(record_pairs, "_BYTES_OF_ROW", 2**26)
    rng = random.Random(seed)
    n_values = rng.choice([3, 10, 10_000])
    a = [(rng.randrange(2), b"%d" % rng.randrange(n_values)) for _ in range(rng.randrange(2, 60))]
    b = [one for one in a if rng.random() > 0.1] or a[:1]
    if rng.random() < 0.5:
        b.insert(rng.randrange(len(b)), b.pop(rng.randrange(len(b))))
    if rng.random() < 0.5 and len(b) > 4:
        at = rng.randrange(len(b) - 3)
        b[at:at] = b[at : at + 3]
    codec = rng.choice(["none", "zstd"])
    found = compare(write(tmp_path / "a", a), write(tmp_path / "b", b, compression=codec)).topics[0]
    in_a, in_b = (Counter(value for _, value in side) for side in (a, b))
    assert found.n_same + found.n_moved == (in_a & in_b).total()
    assert found.n_missing_in_b == sum(n for value, n in in_a.items() if value not in in_b)
    assert found.n_missing_in_a == 0
    assert found.n_repeated_in_a == sum(max(n - in_b[value], 0) for value, n in in_a.items() if value in in_b)
    assert found.n_repeated_in_b == sum(max(n - in_a[value], 0) for value, n in in_b.items())
    in_order = sum(
        common_subsequence(*([value for at, value in side if at == number] for side in (a, b))) for number in range(2)
    )
    assert found.n_same <= in_order
    if n_values > len(a) ** 2 and not found.n_repeated_in_b:
        assert found.n_same == in_order
    for side, counts in (("a", found.n_missing_in_b + found.n_repeated_in_a), ("b", found.n_repeated_in_b)):
        assert sum(one.n_records for one in found.ranges if one.side == side) == counts + found.n_moved
    assert found.ok == (found.n_same == len(a) == len(b))


def test_ranges_name_the_offsets(tmp_path):
    records = [(0, b"%d" % number) for number in range(100)]
    a = write(tmp_path / "a", records)
    b = write(tmp_path / "b", records[:20] + records[30:60] + records[50:60] + records[60:] + [(0, b"new")])
    (found,) = compare(a, b).topics
    ranges = [(one.kind, one.side, one.first_offset, one.last_offset, one.n_records) for one in found.ranges]
    assert ranges == [("missing", "a", 20, 29, 10), ("repeated", "b", 50, 59, 10), ("missing", "b", 100, 100, 1)]
    assert not found.ok


def test_a_record_in_another_partition_has_moved(tmp_path):
    a = write(tmp_path / "a", [(0, b"x"), (0, b"y"), (1, b"z")])
    b = write(tmp_path / "b", [(0, b"x"), (1, b"y"), (1, b"z")])
    (found,) = compare(a, b).topics
    assert (found.n_same, found.n_moved) == (2, 1)
    assert {(one.side, one.partition) for one in found.ranges} == {("a", 0), ("b", 1)}


def test_fields_without_meaning_are_left_out(tmp_path, log_dir):
    table = kafkalog.read_table(
        log_dir, topics="p-headers", columns=["key", "value", "headers", "timestamp", "partition"]
    )
    kafkalog.write_table(table, tmp_path / "same", topic="p-headers")
    assert compare(log_dir, tmp_path / "same", topics="p-headers").ok
    kafkalog.write_table(table.drop_columns("headers"), tmp_path / "without", topic="p-headers")
    assert not compare(log_dir, tmp_path / "without", topics="p-headers").ok
    assert compare(log_dir, tmp_path / "without", topics="p-headers", ignore=["headers"]).ok
    with pytest.raises(ValueError, match="nothing is left"):
        compare(log_dir, log_dir, ignore=["key", "value", "headers", "timestamp"])


def test_null_and_empty_differ(tmp_path):
    for name, value in (("null", None), ("empty", b"")):
        write(tmp_path / name, [(0, value), (0, b"x")])
    assert not compare(tmp_path / "null", tmp_path / "empty").ok


def test_tables_and_mirrored_names_are_compared(tmp_path, log_dir):
    kafkalog.export(log_dir, tmp_path / "exported.parquet", topics=["p-multi"])
    assert compare(log_dir, tmp_path / "exported.parquet", topics="p-multi").ok
    table = kafkalog.read_table(
        log_dir, topics="p-multi", columns=["key", "value", "headers", "timestamp", "partition"]
    )
    kafkalog.write_table(table, tmp_path / "mirror", topic="primary.p-multi")
    kafkalog.write_table(table, tmp_path / "mirror", topic="heartbeats")
    found = compare(log_dir, tmp_path / "mirror", topics=["p-multi", "p-headers"])
    assert [(one.topic_a, one.topic_b, one.ok) for one in found.topics] == [("p-multi", "primary.p-multi", True)]
    assert found.only_in_a == ["p-headers"]
    assert not found.ok
    with pytest.raises(NotKafkaError, match="no topic is also in"):
        compare(log_dir, tmp_path / "mirror", topics="p-compact")


def test_transactions_batches_and_codecs_make_no_difference(tmp_path, log_dir):
    table = kafkalog.read_table(log_dir, topics="p-txn", columns=["key", "value", "headers", "timestamp", "partition"])
    kafkalog.write_table(table, tmp_path / "copy", topic="p-txn", compression="gzip")
    assert compare(log_dir, tmp_path / "copy", topics="p-txn").ok


def test_the_command_prints_ranges_and_ends_with_one(tmp_path, capsys):
    a = write(tmp_path / "a", [(0, b"x"), (0, b"y")])
    b = write(tmp_path / "b", [(0, b"x")])
    assert main(["diff", "--content", str(a), str(b)]) == 1
    out = capsys.readouterr().out
    assert "a: t-0 offsets 1..2: 1 record only here" in out
    report = tmp_path / "report.json"
    assert main(["diff", "--content", str(a), str(b), "--report", str(report)]) == 1
    assert [one["reason"] for one in json.loads(report.read_text())["findings"]] == ["content_differs"]
    capsys.readouterr()
    assert main(["diff", "--content", str(a), str(a), "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["topics"][0]["n_same"] == 2
    assert main(["diff", str(a), str(b), "--ignore", "key"]) == 2
    assert "--ignore needs --content" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(examples(20)))
def test_the_longest_rising_run(seed):
    rng = random.Random(seed)
    numbers = rng.sample(range(100), rng.randrange(1, 9))
    best = max(
        sum(kept)
        for bits in range(2 ** len(numbers))
        if (kept := [bits >> i & 1 for i in range(len(numbers))])
        and (chosen := [one for one, keep in zip(numbers, kept, strict=True) if keep]) == sorted(chosen)
    )
    found = longest_rising(np.array(numbers))
    assert len(found) == best
    assert np.all(np.diff(np.array(numbers)[found]) > 0)


def test_intact_records_of_a_damaged_log_are_compared(tmp_path, capsys):
    a, b = (write(tmp_path / name, [(0, b"%d" % number) for number in range(9)]) for name in "ab")
    (segment,) = b.glob("t-0/*.log")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptionError, match="crc_mismatch"):
        compare(a, b, temporary_directory=tmp_path, on_corruption="raise")
    with pytest.warns(CorruptionWarning, match="crc_mismatch"):
        found = compare(a, b, temporary_directory=tmp_path)
    assert not found.ok
    assert (found.findings_a.n_damage, found.findings_b.n_damage) == (0, 1)
    assert [step.command for step in found.next] == [("kafkalog", "verify", str(b))]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert main(["diff", "--content", str(a), str(b)]) == 1
    assert "crc_mismatch" in capsys.readouterr().err


def test_tables_that_cannot_be_compared_say_why(tmp_path, log_dir, capsys):
    table = tmp_path / "records.parquet"
    kafkalog.export(log_dir, table, topics=["p-txn"], columns=["partition", "offset", "key", "timestamp", "headers"])
    with pytest.raises(NotKafkaError, match="no column 'value': leave it out"):
        compare(log_dir, table, topics="p-txn")
    assert compare(log_dir, table, topics="p-txn", ignore=["value"]).ok
    table.write_bytes(b"PAR1" + table.read_bytes()[:100])
    with pytest.raises(NotKafkaError, match=r"records\.parquet: not_kafka: the table cannot be read"):
        compare(log_dir, table, topics="p-txn")
    assert main(["diff", "--content", str(log_dir), str(tmp_path / "none.parquet")]) == 3
    assert "no such file or directory" in capsys.readouterr().err


def test_too_little_memory_is_no_bug(tmp_path, capsys):
    a = write(tmp_path / "a", [(0, b"x")])
    assert main(["diff", "--content", str(a), str(a), "--memory", "1M"]) == 2
    assert "at least 64M" in capsys.readouterr().err


def test_a_topic_of_both_sides_is_no_copy_of_another(tmp_path):
    for side, topics in (("a", ("orders", "eu.orders", "x")), ("b", ("eu.orders", "x", "new"))):
        for topic in topics:
            write(tmp_path / side, [(0, topic.encode())], topic=topic)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert [(one.topic_a, one.topic_b) for one in found.topics] == [("eu.orders", "eu.orders"), ("x", "x")]
    assert (found.only_in_a, found.only_in_b) == (["orders"], ["new"])


def test_a_long_query_writes_nothing_between_the_results(capfd):
    with Database(["key"], None, None) as database:
        database.run("set progress_bar_time = 1")
        ((n,),) = database.run("select count(*) from range(30_000_000) where range % 7 = 1").fetchall()
    assert n
    assert capfd.readouterr().out == ""
