"""Committed offsets in another cluster: an exact one misses nothing and reads nothing twice, and the others say why."""

import csv
import random
import shutil
from collections import Counter

import pyarrow as pa
import pytest
from effort import trials
from golden_sets import unpacked

import kafkalog
from kafkalog.cli import main
from kafkalog.comparing import translation
from kafkalog.comparing.content import compare
from kafkalog.comparing.translation import translate
from kafkalog.system_topics.commits_file import read_commits_file
from kafkalog.system_topics.groups import Group, GroupOffset, Groups


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
    monkeypatch.setattr(translation, "_groups", lambda *_: Groups(known))
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


@pytest.mark.parametrize("seed", range(trials(1, 12)))
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


def test_partitions_without_records_have_an_answer(tmp_path, monkeypatch):
    records = [(0, b"x"), (0, b"y"), (1, b"z")]
    a, b = write(tmp_path / "a", records), write(tmp_path / "b", records)
    for side, end in ((a, 7), (b, 4)):
        with kafkalog.PartitionWriter(side / "t-2", start_offset=end):
            pass
    with kafkalog.PartitionWriter(a / "t-3", start_offset=9):
        pass
    with kafkalog.PartitionWriter(b / "t-3") as log:
        log.append(pa.table({"value": [b"v", b"w"]}))
    with kafkalog.PartitionWriter(a / "t-4", start_offset=9):
        pass
    first, second, third, last = translated(monkeypatch, a, b, {0: 1, 2: 7, 3: 9, 4: 9})
    assert (first.offset, first.certainty) == (1, "exact")
    assert (second.partition, second.offset, second.certainty) == (2, 4, "exact")
    assert (third.offset, third.certainty, third.earliest, third.latest) == (0, "bounded", 0, 2)
    assert "no record is left" in third.why
    assert (last.partition, last.certainty) == (4, "impossible")


def test_what_a_mirror_sends_again_is_read_from_the_last_copy(tmp_path, monkeypatch):
    # equal records, as of a producer that sends a file again; the mirror was killed and began again
    records = [(0, b"%d" % (number % 20)) for number in range(60)]
    a, b = write(tmp_path / "a", records), write(tmp_path / "b", records[:45] + records)
    found = translated(monkeypatch, a, b, {0: 0}, {0: 5}, {0: 30}, {0: 59})
    assert [(one.offset, one.n_again) for one in found] == [(0, 0), (50, 0), (75, 0), (104, 0)]


def test_equal_records_in_any_partitions_are_not_exact(tmp_path, monkeypatch):
    rng = random.Random(5)
    for name in ("a", "b"):
        write(tmp_path / name, [(rng.randrange(3), b"%d" % (number % 4)) for number in range(40)])
    found = translated(monkeypatch, tmp_path / "a", tmp_path / "b", {0: 3, 1: 5, 2: 2})
    assert {one.certainty for one in found} == {"bounded"}


def test_damage_in_the_topic_of_groups_is_reported(tmp_path, capsys):
    source = tmp_path / "source"
    shutil.copytree(unpacked("k44"), source)
    log = max(source.glob("__consumer_offsets-*/*.log"), key=lambda path: path.stat().st_size)
    with log.open("r+b") as file:
        file.seek(40)
        byte = file.read(1)[0]
        file.seek(40)
        file.write(bytes([byte ^ 1]))
    expected = [str(one) for one in kafkalog.groups(source).findings]
    assert expected
    assert [str(one) for one in translate(source, unpacked("k44")).findings] == expected
    assert main(["groups", str(source), "--translate-to", str(unpacked("k44"))]) == 1
    assert "crc_mismatch" in capsys.readouterr().err


def test_aborted_records_may_be_left_out_on_both_sides(tmp_path, capsys):
    source, mirror = unpacked("k44"), tmp_path / "mirror"
    topic = "p-txn-now" if (source / "p-txn-now-0").is_dir() else "p-txn"
    committed = kafkalog.read_table(
        source,
        topics=topic,
        isolation_level="read_committed",
        columns=["key", "value", "headers", "timestamp", "partition"],
    )
    kafkalog.write_table(committed, mirror, topic=topic)
    all_of_it = compare(source, mirror, topics=topic).topics[0]
    assert all_of_it.n_missing_in_b > 0
    assert compare(source, mirror, topics=topic, isolation_level="read_committed").ok
    assert main(["groups", str(source), "--isolation-level", "read_committed"]) == 2
    assert "--isolation-level needs --translate-to" in capsys.readouterr().err


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


def test_partitions_of_another_number_are_followed(tmp_path, monkeypatch):
    a = write(
        tmp_path / "a", [(0, value) for value in (b"a", b"b", b"c", b"d")] + [(1, value) for value in (b"e", b"f")]
    )
    there = [(0, b"a"), (0, b"e"), (1, b"f"), (2, b"b"), (0, b"c"), (2, b"d")]
    b = write(tmp_path / "b", there)
    found = translated(monkeypatch, a, b, {0: 2, 1: 1}, {0: 4, 1: 0})
    assert [(one.group, one.partition, one.offset, one.certainty) for one in found] == [
        ("group-0", 0, 2, "exact"),
        ("group-0", 1, 0, "exact"),
        ("group-0", 2, 1, "exact"),
        ("group-1", 0, 1, "bounded"),  # e is unread, c is read
        ("group-1", 1, 0, "exact"),
        ("group-1", 2, 2, "exact"),
    ]
    merged = write(tmp_path / "merged", [(0, value) for _, value in there])
    assert [(one.partition, one.certainty) for one in translated(monkeypatch, a, merged, {0: 4, 1: 2})] == [
        (0, "exact")
    ]


@pytest.mark.parametrize("seed", range(trials(1, 12)))
def test_nothing_is_missed_in_partitions_of_another_number(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    n_here, n_there = rng.sample([1, 2, 3, 4], 2)
    keys = [rng.randrange(rng.choice([3, 1000])) for _ in range(rng.randrange(2, 40))]
    a = [(key * 7 % n_here, b"%d" % key, number) for number, key in enumerate(keys)]
    b = [(key * 7 % n_there, b"%d" % key, number) for number, key in enumerate(keys)]
    b = damage(rng, b, rng.choice(["lost", "sent again", "whole"]))
    for name, side in (("a", a), ("b", b)):
        write(tmp_path / name, [one[:2] for one in side])
    here, there = ({at: [one for one in side if one[0] == at] for at, *_ in side} for side in (a, b))
    committed = {at: rng.randrange(len(records) + 1) for at, records in here.items()}
    read = {record[2] for at, records in here.items() for record in records[: committed[at]]}
    found = {one.partition: one for one in translated(monkeypatch, tmp_path / "a", tmp_path / "b", committed)}
    for at, records in there.items():
        wanted = {record[2]: record[1] for record in records if record[2] not in read}
        one = found[at]
        assert one.offset is not None
        got = Counter(record[1] for record in records[one.offset :])
        assert Counter(wanted.values()) <= got, one
        if one.certainty == "exact":
            assert got <= Counter(record[1] for record in records if record[2] in wanted), one


def test_a_record_that_is_there_again_further_on_is_read_twice(tmp_path, monkeypatch):
    a = write(tmp_path / "a", [(0, value) for value in (b"x", b"y", b"z", b"w")])
    b = write(tmp_path / "b", [(0, value) for value in (b"x", b"y", b"x", b"z", b"w")])
    first, second = translated(monkeypatch, a, b, {0: 1}, {0: 2})
    assert (first.offset, first.certainty, first.latest, first.n_again) == (1, "bounded", 3, 1)
    assert (second.offset, second.certainty) == (3, "exact")


@pytest.mark.parametrize(
    ("here", "committed", "out_of_range", "expected"),
    [
        (b"abcd", 6, "past_end", (4, "bounded", 4, 8)),
        (b"efgh", 6, "past_end", (8, "exact", 8, 8)),
        (b"cd", 0, None, (2, "bounded", 0, 2)),
        (b"cd", 0, "before_start", (0, "bounded", 0, 2)),
    ],
)
def test_an_offset_outside_of_the_log_is_exact_only_at_the_same_end(
    here, committed, out_of_range, expected, tmp_path, monkeypatch
):
    sides = {"a": here, "b": b"abcdefgh"}
    for name, values in sides.items():
        write(tmp_path / name, [(0, bytes([value])) for value in values])
    offset = GroupOffset("t", 0, committed, out_of_range=out_of_range)
    monkeypatch.setattr(translation, "_groups", lambda *_: Groups([Group("g", offsets=[offset])]))
    (one,) = translate(tmp_path / "a", tmp_path / "b").offsets
    assert (one.offset, one.certainty, one.earliest, one.latest) == expected


def test_the_command_knows_the_other_options_of_groups(capsys):
    source = str(unpacked("k44"))
    assert main(["groups", source, "--translate-to", source, "--end-timestamp", "2001-01-01T00:00Z"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "no committed offsets" in err
    assert main(["groups", source, "--translate-to", source, "--memory", "1M"]) == 2
    assert "at least 64M" in capsys.readouterr().err
    for option in ("--members", "--history"):
        assert main(["groups", source, "--translate-to", source, option]) == 2
        assert "do not go with --translate-to" in capsys.readouterr().err
