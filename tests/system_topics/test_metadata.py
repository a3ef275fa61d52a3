"""What the metadata log of a cluster adds up to, in log dirs that real brokers wrote."""

import itertools
import json
import random
import shutil
import sys

import numpy as np
import pytest
from golden_sets import LOG_DIR, partitions, unpacked
from refusals import fails_with

import kafkalog
from kafkalog._kernels.replay import LastRows
from kafkalog.cli import main
from kafkalog.cli.system_topics.metadata import _cell
from kafkalog.records.byte_columns import BinaryColumn, ViewColumn, as_views
from kafkalog.records.columns import RecordColumns
from kafkalog.system_topics import replay
from kafkalog.system_topics.metadata import TABLES
from kafkalog.system_topics.reading import OF_TRANSACTIONS, TopicRecords, listed
from kafkalog.system_topics.replay import LastRecords


def test_topics_and_their_ids_are_those_of_the_partitions_beside_it():
    found = kafkalog.metadata(unpacked("k44"))
    assert not found.findings
    on_disk = {name: kafkalog.open_partition(path).topic_id for name, path in partitions("k44").items()}
    listed = {f"{row['topic']}-{row['partition']}": row["topic_id"] for row in found.partitions}
    for name, topic_id in on_disk.items():
        if not name.startswith("__cluster_metadata") and not name.endswith(("-delete", "-stray", "-future")):
            assert listed[name] == topic_id, name
    assert [row["level"] for row in found.features if row["name"] == "metadata.version"] == [33]
    assert {(row["id"], row["role"]) for row in found.brokers} == {(1, "broker"), (1, "controller")}
    configs = {(row["resource_name"], row["name"]): row["value"] for row in found.configs}
    assert configs["p-mixcodec", "index.interval.bytes"] == "2048"
    assert [row["topic"] for row in kafkalog.metadata(unpacked("k44"), topics="p-mix*").topics] == ["p-mixcodec"]
    for name in TABLES:
        assert found.to_arrow(name).num_rows == len(getattr(found, name))


@pytest.mark.parametrize("name", ["k30", "k32"])
def test_brokers_of_3_0_and_3_2_say_the_same_of_their_topics(name):
    path = unpacked(name, "metadata")
    found = kafkalog.metadata(path)
    assert not found.findings
    described = json.loads((path / "topics.json").read_text())
    assert {row["topic"]: {key: row[key] for key in described["orders"]} for row in found.topics} == described
    assert [(row["entity"], row["value"]) for row in found.quotas] == [({"user": "alice"}, 1024)]
    (log,) = path.glob("__cluster_metadata-0/*.log")
    lines = "".join(map(bytes.decode, kafkalog.dump(log, topic_decoder="cluster-metadata").chunks())).splitlines()
    payloads = [payload for _, found, payload in (line.partition(" payload: ") for line in lines) if found]
    assert payloads == (path / "payloads.txt").read_text().splitlines()


@pytest.mark.parametrize(("name", "archive"), [("k44", "clean"), ("k30", "metadata"), ("k32", "metadata")])
def test_each_snapshot_is_what_the_log_before_it_adds_up_to(name, archive, tmp_path):
    source = unpacked(name, archive) / "__cluster_metadata-0"
    shutil.copytree(source, tmp_path / source.name, ignore=shutil.ignore_patterns("*.checkpoint"))
    offsets = sorted(int(path.name[:20]) for path in source.glob("*.checkpoint"))
    assert len(offsets) > 3
    for offset in offsets[1:]:
        snapshot = kafkalog.metadata(source.parent, end_offset=offset).as_dict()
        replayed = kafkalog.metadata(tmp_path, end_offset=offset).as_dict()
        for one in (snapshot, replayed):
            # the log may end with control records and with no-ops, which change nothing
            del one["path"], one["timestamp"], one["end_offset"]
        assert snapshot == replayed, offset


def test_as_of_a_time_is_as_of_its_offset(tmp_path):
    path = unpacked("k44")
    created = [one for one in kafkalog.history(path, "__cluster_metadata") if one.type == "Topic"]
    assert len(created) > 20
    log = kafkalog.read_table(path, topics="__cluster_metadata", columns=["timestamp"])
    latest = max(log[0].cast("int64").to_pylist())
    for one in (created[3], created[20]):
        assert one.value is not None
        before = kafkalog.metadata(path, end_timestamp=one.timestamp)
        assert one.value["name"] not in {row["topic"] for row in before.topics}
        assert kafkalog.metadata(path, end_timestamp=f"end-{latest - one.timestamp}ms").topics == before.topics
        after = kafkalog.metadata(path, end_offset=one.offset + 1)
        assert one.value["name"] in {row["topic"] for row in after.topics}


def test_a_damaged_snapshot_makes_way_for_the_one_before_it(tmp_path):
    shutil.copytree(unpacked("k44") / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    newest = max((tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 0xFF
    newest.write_bytes(data)
    found = kafkalog.metadata(tmp_path)
    assert [finding.path for finding in found.findings] == [str(newest)]
    assert found.topics == kafkalog.metadata(unpacked("k44")).topics


def test_no_metadata_log_and_a_state_that_is_not_in_the_files_any_more(tmp_path):
    with fails_with("not_kafka"):
        kafkalog.metadata(LOG_DIR)
    shutil.copytree(unpacked("k44") / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    log = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
    log.rename(log.with_name(f"{500:020d}.log"))
    for path in (tmp_path / "__cluster_metadata-0").glob("*.checkpoint"):
        if int(path.name[:20]) < 500:
            path.unlink()
    with pytest.raises(ValueError, match="offset 500"):
        kafkalog.metadata(tmp_path, end_offset=450)


def test_a_snapshot_alone_has_no_earlier_state(tmp_path, capsys):
    """As a new broker begins with."""
    directory = tmp_path / "__cluster_metadata-0"
    shutil.copytree(unpacked("k44") / directory.name, directory)
    newest = max(directory.glob("*.checkpoint"))
    for path in directory.iterdir():
        if path != newest:
            path.unlink()
    oldest = int(newest.name[:20])
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    for as_of in (["--end-offset", str(oldest - 1)], ["--end-timestamp", "2020-01-01T00:00Z"]):
        for form in ([], ["--json"]):
            assert main(["metadata", str(tmp_path), *as_of, *form]) == 2
            out, err = capsys.readouterr()
            assert (out, f"the oldest is of offset {oldest}" in err) == ("", True)
    assert main(["metadata", str(tmp_path), "--history"]) == 0
    assert "has only a snapshot, up to offset" in capsys.readouterr().err
    assert main(["metadata", str(LOG_DIR), "--history"]) == 3


def test_the_command_says_the_same(capsys):
    path = str(unpacked("k44"))
    found = kafkalog.metadata(path)
    assert main(["metadata", path, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"kind": name, **row} for name in TABLES for row in getattr(found, name)]
    assert main(["metadata", path, "-t", "p-multi"]) == 0
    out = capsys.readouterr().out
    assert f"{path}: up to offset {found.end_offset}, " in out
    assert "\ntopics: 1\n" in out
    assert main(["metadata", path, "-t", "p-mult"]) == 2
    assert "did you mean 'p-multi'?" in capsys.readouterr().err
    assert main(["metadata", path, "--show", "acls"]) == 0
    assert "acls: none" in capsys.readouterr().out
    assert main(["metadata", str(LOG_DIR)]) != 0
    assert main(["metadata", path, "--history", "--end-offset", "2"]) == 0
    assert all(json.loads(line)["offset"] < 2 for line in capsys.readouterr().out.splitlines())


COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


def part(*rows):
    """Rows of offset, key, value, producer id, is transactional, is control."""
    offset, key, value, *of_transactions = zip(*rows, strict=True) if rows else ((),) * 6
    columns = {"offset": np.array(offset, np.int64), "timestamp": np.array(offset, np.int64) + 1000}
    columns |= {"key": binary(key), "value": binary(value)}
    if any(map(any, of_transactions[1:])):
        columns |= {name: np.array(one) for name, one in zip(OF_TRANSACTIONS, of_transactions, strict=True)}
    return TopicRecords(0, RecordColumns(len(rows), columns))


def binary(values):
    texts = [value or b"" for value in values]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    validity = np.array([value is not None for value in values])
    return BinaryColumn(offsets, np.frombuffer(b"".join(texts), np.uint8), None if validity.all() else validity)


def values(*parts):
    last = LastRecords()
    last.feed(parts)
    return {key: record.value for key, record in last.records() if not record.is_pending}


def test_random_transactions_against_one_record_after_the_other(monkeypatch):
    rng = random.Random(18)
    for _ in range(150):
        monkeypatch.setattr(replay, "_AT_ONCE", rng.choice((1, 8, 2**30)))
        rows = []
        for offset in range(rng.randint(1, 60)):
            producer, kind = rng.randint(0, 3), rng.random()
            if kind < 0.25:
                rows.append((offset, rng.choice((COMMIT, ABORT)), b"", producer, True, True))
            else:
                key = rng.choice((b"a", b"b", b"c", None)) if kind < 0.9 else b"d"
                value = rng.choice((None, str(offset).encode()))
                rows.append((offset, key, value, producer, kind < 0.7, False))
        expected = {}
        pending = {}
        for offset, key, value, producer, is_transactional, is_control in rows:
            if is_control:
                for one in pending.pop(producer, []):
                    if key == COMMIT and expected.get(one[1], (-1, None))[0] < one[0]:
                        expected[one[1]] = one[0], one[2]
            elif key is not None and is_transactional:
                pending.setdefault(producer, []).append((offset, key, value))
            elif key is not None:
                expected[key] = offset, value
        cuts = sorted({0, len(rows), *(rng.randint(0, len(rows)) for _ in range(rng.randint(0, 4)))})
        last = LastRecords()
        last.feed([part(*rows[begin:end]) for begin, end in itertools.pairwise(cuts)])
        records = list(last.records())
        assert {key: (one.offset, one.value) for key, one in records if not one.is_pending} == expected
        open_ones = {(one[0], one[1], one[2]) for lasts in pending.values() for one in lasts}
        assert {(one.offset, key, one.value) for key, one in records if one.is_pending} <= open_ones
        assert {key for key, one in records if one.is_pending} == {key for _, key, _ in open_ones}


def test_keys_of_one_hash_are_told_apart_by_their_bytes():
    # a first word like the second seed makes the hash that of the last 8 bytes, whatever lies between
    other = 0x0123456789ABCDEF
    word = other.to_bytes(8, sys.byteorder)
    made = [word + middle + b"the-end." for middle in (b"middle-A", b"middle-B", b"middle-AB", b"middle-ABCDEFG", b"")]
    made += [word + b"middle-A" + b"the-END."]
    column = binary([*made, *made])
    rows, n = LastRows(7, other), len(made)
    feed(rows, column, column)
    assert [key for key, *_ in content(rows)] == made
    assert [offset for *_, offset in content(rows)] == list(range(n, 2 * n))


def feed(rows, keys, values, **given):
    """Rows whose offsets are their numbers, unless they are given."""
    number = np.arange(len(keys))
    options = {"offset": number, "timestamp": number, "partition": 0, "wanted": None} | given
    rows.feed(replay._views(keys), replay._views(values), **{"only_newer": False} | options)


def content(rows):
    """The key, value and offset of each row."""
    return list(zip(*(listed(replay._columns(rows)[name]) for name in ("key", "value", "offset")), strict=True))


def test_a_string_lies_within_its_buffer():
    good, nothing = as_views(binary([b"of thirteen..", b""])), np.empty(0, np.int64)
    views = good.views.view(np.int32).reshape(2, 4)
    for word, wrong in ((0, -1), (0, 14), (0, 2**31 - 1), (2, 1), (2, 2), (2, -1), (3, 1), (3, -1)):
        changed = views.copy()
        changed[0, word] = wrong
        bad = ViewColumn(changed.view(np.uint8).ravel(), good.buffers)
        for pair in ((bad, good), (good, bad)):
            in_order = LastRows(1, 2)
            for _ in range(2):
                feed(in_order, good, good)
            for rows in (LastRows(1, 2), in_order):
                with pytest.raises(IndexError):
                    feed(rows, *pair)
    for name in ("offset", "timestamp"):
        with pytest.raises(ValueError):
            feed(LastRows(1, 2), good, good, **{name: nothing})
    with pytest.raises(ValueError):
        feed(LastRows(1, 2), good, good, wanted=np.empty(0, np.uint8))
    rows, no_bytes, one = LastRows(1, 2), np.empty(0, np.uint8), np.zeros(1, np.int64)
    with pytest.raises(ValueError):
        rows.copy(nothing, no_bytes, one, no_bytes, no_bytes, nothing, nothing, np.empty(0, np.int32))
    assert rows.copy(one, no_bytes, one, no_bytes, no_bytes, nothing, nothing, np.empty(0, np.int32)) == 0


def test_values_of_all_sizes_replace_each_other():
    rng = random.Random(19)
    keys = [b"%d" % number * (1 + number % 20) for number in range(300)]
    rows, expected, offset = LastRows(1, 2), dict[bytes, tuple[bytes | None, int]](), 0
    for turn in range(30):
        fed = [(rng.choice(keys), rng.choice((None, rng.randbytes(rng.randrange(20 * turn + 1))))) for _ in range(400)]
        offsets = (
            np.arange(offset, offset + len(fed)) if turn % 3 else np.array([rng.randrange(offset + 1) for _ in fed])
        )
        for one, (key, value) in zip(offsets.tolist(), fed, strict=True):
            if turn % 3 or key not in expected or expected[key][1] < one:
                expected[key] = value, one
        columns = [binary(column) for column in zip(*fed, strict=True)]
        feed(rows, *columns, offset=offsets, timestamp=offsets, only_newer=turn % 3 == 0)
        offset += len(fed)
    assert [(key, (value, one)) for key, value, one in content(rows)] == [*expected.items()]


def test_keys_in_the_same_order_again_and_out_of_it_have_their_numbers():
    rng = random.Random(18)
    runs = [[b"%d-%d" % (group, partition) * (1 + group % 3) for partition in range(12)] for group in range(60)]
    runs += [[b"", b"a", b"ba"], [b"aa", b"a", b"aa", b"a"]]
    rows, known, expected = LastRows(1, 2), dict[bytes, int](), dict[bytes, tuple[bytes, int]]()
    for turn in range(40):
        keys = [key for _ in range(rng.randrange(1, 40)) for key in rng.choice(runs)[rng.randrange(3) :]]
        if rng.random() < 0.3:
            rng.shuffle(keys)
        wanted = [turn % 2 == 0 or rng.random() < 0.9 for _ in keys]
        values = [rng.randbytes(rng.choice((0, 5, 15, 16, 28, 32, 33, 3 * turn))) for _ in keys]
        last = {key: (values[row], row) for row, key in enumerate(keys) if wanted[row]}
        first = list(dict.fromkeys(key for key, one in zip(keys, wanted, strict=True) if one))
        for key in first:
            known.setdefault(key, len(known))
        feed(rows, binary(keys), binary(values), wanted=np.array(wanted, np.uint8) if turn % 2 else None)
        expected |= last
        assert content(rows) == [(key, *expected[key]) for key in known]


@pytest.mark.parametrize("size", range(1, 50))
def test_keys_that_differ_in_one_byte_are_others_in_a_known_order_too(size):
    key = bytes(range(size))
    others = [key[:at] + b"\xff" + key[at + 1 :] for at in range(size)]
    rows = LastRows(1, 2)
    for made in ([key, b"next"] * 40, [key, b"next"] * 40, [one for other in others for one in (key, other)]):
        feed(rows, binary(made), binary(made))
    assert [found for found, *_ in content(rows)] == [key, b"next", *others]


def test_the_default_quota_is_not_that_of_a_user_called_default():
    users = (None, "default", "<default>", "(default)", "None")
    assert len({_cell({"user": user}) for user in users}) == len(users)
