"""Committed offsets in another cluster: an exact one misses nothing and reads nothing twice, and the others say why."""

import csv
import random
from collections import Counter

import pyarrow as pa
import pytest
from effort import examples
from golden_sets import unpacked

import kafkalog
from kafkalog.booting.coordinators import read_commits_file
from kafkalog.cli import main
from kafkalog.comparing import translation
from kafkalog.comparing.translation import translate
from kafkalog.system_topics.groups import Group, GroupOffset


def write(directory, records):
    """Write records, each a partition and a value, with one key and time."""
    partitions, values = zip(*records, strict=True)
    columns = {"partition": pa.array(partitions, pa.int32()), "value": pa.array(values, pa.binary())}
    kafkalog.write_table(pa.table(columns | {"timestamp": pa.array([1000] * len(records))}), directory, topic="t")
    return directory


def translated(monkeypatch, a, b, *groups):
    """Translate offsets that nobody has committed; each group is a dict of partitions and offsets."""
    known = [
        Group(f"group-{number}", offsets=[GroupOffset("t", *one) for one in offsets.items()])
        for number, offsets in enumerate(groups)
    ]
    monkeypatch.setattr(translation, "_groups", lambda *_: known)
    return translate(a, b).offsets


def damage(rng, records, kind):
    """What mirrors and restores do to records: equal ones stand for each other."""
    kept = [*records]
    if kind == "lost":
        kept = [one for one in kept if rng.random() > 0.1]
    if kind == "sent again" and len(kept) > 4:
        first = rng.randrange(len(kept) - 3)
        last = rng.randrange(first + 1, len(kept))
        kept[last:last] = kept[first:last]
    if kind == "without its beginning":
        kept = kept[len(kept) // 3 :]
    if kind == "swapped" and len(kept) > 2:
        at = rng.randrange(len(kept) - 1)
        kept[at : at + 2] = kept[at : at + 2][::-1]
    return kept or records[:1]


@pytest.mark.parametrize("seed", range(examples(4)))
@pytest.mark.parametrize("kind", ["lost", "sent again", "without its beginning", "swapped", "whole"])
def test_nothing_is_missed_and_exact_offsets_read_nothing_twice(kind, seed, tmp_path, monkeypatch):
    rng = random.Random(f"{kind} {seed}")
    n_values = rng.choice([2, 3, 10, 1000])
    a = [(rng.randrange(2), b"%d" % rng.randrange(n_values), number) for number in range(rng.randrange(2, 50))]
    b = damage(rng, a, kind)
    sides = {name: [[one for one in side if one[0] == at] for at in (0, 1)] for name, side in (("a", a), ("b", b))}
    groups = [{at: rng.randrange(len(sides["a"][at]) + 1) for at in (0, 1) if sides["a"][at]} for _ in range(4)]
    for name, side in (("a", a), ("b", b)):
        write(tmp_path / name, [one[:2] for one in side])
    found = translated(monkeypatch, tmp_path / "a", tmp_path / "b", *groups)
    assert len(found) == sum(map(len, groups))
    assert kind != "whole" or {one.certainty for one in found} == {"exact"}
    for one in found:
        if one.offset is None:
            assert not sides["b"][one.partition]
            continue
        here, there = sides["a"][one.partition], sides["b"][one.partition]
        numbers = {record[2] for record in there}
        unread = [record for record in here[one.from_offset :] if record[2] in numbers]
        wanted = Counter(record[1] for record in unread)
        copies = Counter(record[1] for record in there if record[2] in {other[2] for other in unread})
        for offset in (one.offset, one.earliest):
            read = Counter(record[1] for record in there[offset:])
            assert wanted <= read, (one, offset)
        if one.certainty == "exact":
            assert Counter(record[1] for record in there[one.offset :]) <= copies, one
        else:
            assert one.why


def test_offsets_move_with_what_is_missing(tmp_path, monkeypatch):
    records = [(0, b"%d" % number) for number in range(50)]
    a, b = write(tmp_path / "a", records), write(tmp_path / "b", records[10:20] + records[25:])
    groups = [{0: 5}, {0: 15}, {0: 22}, {0: 25}, {0: 50}]
    found = [(one.offset, one.certainty, one.n_absent) for one in translated(monkeypatch, a, b, *groups)]
    assert found == [(0, "exact", 10), (5, "exact", 5), (10, "exact", 3), (10, "exact", 0), (35, "exact", 0)]


def test_records_that_are_only_there_are_said(tmp_path, monkeypatch):
    a = write(tmp_path / "a", [(0, b"2"), (0, b"3")])
    b = write(tmp_path / "b", [(0, b"0"), (0, b"1"), (0, b"2"), (0, b"new"), (0, b"3")])
    first, second = translated(monkeypatch, a, b, {0: 0}, {0: 1})
    assert (first.offset, first.certainty, first.earliest, first.latest) == (2, "bounded", 0, 2)
    assert (second.offset, second.certainty, second.earliest, second.latest) == (3, "bounded", 3, 4)
    assert "only there" in first.why


def test_what_is_not_there_is_impossible(tmp_path, monkeypatch):
    a, b = write(tmp_path / "a", [(0, b"x")]), write(tmp_path / "b", [(0, b"y")])
    (one,) = translated(monkeypatch, a, b, {0: 1})
    assert (one.offset, one.certainty) == (None, "impossible")
    assert "none of the records" in one.why


def test_the_command_writes_what_boot_and_kafka_take(tmp_path, capsys):
    source, output = str(unpacked("k44")), tmp_path / "groups.csv"
    assert main(["groups", source, "--translate-to", source, "-g", "p-g-classic"]) == 0
    assert "exact" in capsys.readouterr().out
    assert main(["groups", source, "--translate-to", source, "-o", str(output)]) == 0
    rows = [*csv.reader(output.read_text().splitlines())]
    assert all(len(row) == 4 for row in rows)
    expected = {
        (group.name, one.topic, one.partition, one.offset)
        for group in kafkalog.groups(source)
        if group.type != "share"
        for one in group.offsets
    }
    assert {(one.group, *one.key, one.offset) for one in read_commits_file(output)} == expected
