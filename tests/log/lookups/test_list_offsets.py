"""Offsets for timestamps equal brute force over all records, and do not depend on index files."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

import builder
import golden_sets
import numpy as np
import pandas as pd
import pytest
from builder import batch_v2, record_v2
from effort import THOROUGH, examples, thinned
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import EARLIEST, LATEST, MAX_TIMESTAMP, BruteForce
from refusals import fails_with

import kafkalog
from kafkalog.log.lookups.list_offsets import ListOffsets
from kafkalog.log.lookups.timestamp_search import TimestampSearch, parse_timestamps
from kafkalog.operations.trace_lookup import trace_offset, trace_timestamp
from kafkalog.records.header_walk import walk
from kafkalog.records.readers import header_reader
from kafkalog.storage.source import BufferSource

NAMED = {EARLIEST: "earliest", LATEST: "latest", MAX_TIMESTAMP: "max-timestamp"}
GOLDEN_CASES = [(name, archive) for name in golden_sets.SETS for archive in ("clean", "unclean")][:5]


def named(questions):
    return [NAMED.get(question, question) for question in questions]


def without_epochs(questions, answers):
    """The oracle has no epoch for the earliest and the latest offset."""
    return [
        (stamp, offset, -1 if question in (EARLIEST, LATEST) else epoch)
        for question, (stamp, offset, epoch) in zip(questions, answers, strict=True)
    ]


def around(stamps, draw, most=40):
    chosen = [0, 2**62, *draw.sample(list(stamps), min(len(stamps), most))]
    questions = [stamp + more for stamp in chosen for more in (-1, 0, 1) if stamp + more >= 0]
    draw.shuffle(questions)
    return [*NAMED, *questions]


def check(partition, questions, slowly=None):
    """All at once, each alone, and each of a partition that has not seen any: always what brute force gives."""
    slowly = slowly or BruteForce(partition)
    expected = [slowly.answer(question) for question in questions]
    found = partition.find_timestamps(named(questions))
    assert without_epochs(questions, found.tolist()) == expected
    assert partition.offset_for_timestamp(named(questions)).tolist() == [offset for _, offset, _ in expected]
    for question, (_, offset, _) in zip(named(questions[:12]), expected, strict=False):
        assert partition.offset_for_timestamp(question) == offset
    fresh = kafkalog.Partition(partition.path, log_start_offset=partition.log_start_offset)
    for question, (_, offset, _) in zip(named(questions[-4:]), expected[-4:], strict=True):
        assert fresh.offset_for_timestamp(question) == offset
    return expected


@pytest.mark.parametrize(("name", "archive"), thinned(GOLDEN_CASES, 3))
def test_every_golden_partition_answers_as_brute_force_does(name, archive):
    opened = kafkalog.open(golden_sets.unpacked(name, archive))
    assert isinstance(opened, kafkalog.LogDir)
    draw = random.Random(name)
    n_found, magics = 0, set()
    for partition in opened.values():
        slowly = BruteForce(partition)
        stamps = [
            stamp
            for batches, _ in slowly.segments
            for batch in batches
            for stamp in [batch.max_timestamp, *(record.timestamp or 0 for record in batch.records)]
        ]
        magics |= {int(magic) for segment in partition.segments for magic in np.unique(segment.batches.magic)}
        n_found += sum(offset >= 0 for _, offset, _ in check(partition, around(stamps, draw), slowly))
    assert n_found > 200
    assert magics == ({0, 1, 2} if name == "k28" else {2})


class Drawn(NamedTuple):
    """Segments as bytes by base offset, and modification times in ms."""

    logs: dict[int, bytes]
    modified: list[int]
    start: int


@st.composite
def partitions(draw):
    """Small timestamps, so that they collide; every format; headers that promise too much; batches and segments left
    empty, as by the cleaner."""
    stamps = st.integers(-1, 12)
    logs = {}
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 4))):
        base, data = offset, b""
        for _ in range(draw(st.integers(0, 5))):
            kind = draw(st.sampled_from(["v2", "v2", "zstd", "append", "empty", "promise", "v1", "wrapped", "v0"]))
            found = draw(st.lists(stamps, min_size=1, max_size=4))
            data += _batch(kind, offset, found)
            offset += len(found) + draw(st.integers(0, 2))
        logs[base] = data
        offset = max(offset, base + 1)
    modified = [draw(st.integers(0, 14)) for _ in logs]
    return Drawn(logs, modified, draw(st.one_of(st.just(0), st.integers(0, offset + 2))))


def _batch(kind, offset, stamps):
    last = offset + len(stamps) - 1
    if kind == "v1":
        return b"".join(builder.message(offset + i, b"k", timestamp=stamp) for i, stamp in enumerate(stamps))
    if kind == "v0":
        return b"".join(builder.message(offset + i, b"k", magic=0) for i in range(len(stamps)))
    if kind == "wrapped":
        inner = [builder.message(i, b"k", timestamp=stamp) for i, stamp in enumerate(stamps)]
        return builder.wrapper(inner, offset=last, timestamp=max(stamps))
    if kind == "empty":
        return builder.batch_v2(
            base_offset=offset, max_timestamp=max(stamps), last_offset_delta=len(stamps) - 1, base_timestamp=-1
        )
    return builder.batch_v2(
        [builder.record_v2(i, stamp, b"k", b"v") for i, stamp in enumerate(stamps)],
        base_offset=offset,
        codec=builder.ZSTD if kind == "zstd" else 0,
        log_append_time=kind == "append",
        max_timestamp=max(stamps) + 2 * (kind == "promise"),
        leader_epoch=offset,
    )


@settings(max_examples=examples(150))
@given(drawn=partitions())
def test_generated_partitions_answer_as_brute_force_does(drawn, tmp_path_factory):
    directory = tmp_path_factory.mktemp("generated") / "t-0"
    directory.mkdir()
    for (base, data), modified in zip(drawn.logs.items(), drawn.modified, strict=True):
        path = directory / f"{base:020d}.log"
        path.write_bytes(data)
        os.utime(path, ns=(0, modified * 10**6 + 999_999))
    partition = kafkalog.Partition(directory, log_start_offset=drawn.start)
    slowly = BruteForce(partition)
    if partition.log_start_offset > slowly.end:
        assert partition.offset_for_timestamp([0, 3, "max-timestamp"]).tolist() == [-1, -1, -1]
    else:
        check(partition, [*NAMED, *range(16)])
    shutil.rmtree(directory)


def one_segment(directory, *batches, base=0):
    directory.mkdir(exist_ok=True)
    path = directory / f"{base:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def stamped(base, *stamps, **options):
    records = [builder.record_v2(i, stamp) for i, stamp in enumerate(stamps)]
    return builder.batch_v2(records, base_offset=base, max_timestamp=max(stamps), **options)


def test_questions_keep_their_shape(log_dir):
    partition = kafkalog.Partition(log_dir / "p-multi-0")
    assert type(partition.offset_for_timestamp(0)) is int
    assert type(partition.offset_for_timestamp("latest")) is int
    assert partition.offset_for_timestamp([]).shape == (0,)
    assert partition.offset_for_timestamp([[0, 1], [2, 3]]).tolist() == [[0, 0], [0, 0]]
    assert partition.offset_for_timestamp(np.array([2**62])).tolist() == [-1]
    assert partition.find_timestamps(2**62).tolist() == (-1, -1, -1)


def test_an_empty_directory_answers(tmp_path):
    (tmp_path / "t-0").mkdir()
    partition = kafkalog.Partition(tmp_path / "t-0")
    assert partition.offset_for_timestamp(["earliest", "latest", "max-timestamp", 0]).tolist() == [0, 0, -1, -1]


def test_epochs_come_from_the_checkpoint_and_a_malformed_one_costs_only_them(tmp_path):
    directory = tmp_path / "t-0"
    one_segment(directory, stamped(0, 5, 90, leader_epoch=4))
    checkpoint = directory / "leader-epoch-checkpoint"
    checkpoint.write_text("0\n2\n4 0\n6 2\n")
    questions = ["earliest", "latest", 0]
    assert kafkalog.Partition(directory).find_timestamps(questions)["leader_epoch"].tolist() == [4, 6, 4]
    assert kafkalog.Partition(directory).list_offsets.answer("earliest").tolist() == (-1, 0, 4)
    checkpoint.write_text("0\n1\n4 1\n")
    assert kafkalog.Partition(directory).find_timestamps(questions)["leader_epoch"].tolist() == [-1, 4, 4]
    checkpoint.write_text("nonsense\n")
    found = kafkalog.Partition(directory).find_timestamps(questions)
    assert found["leader_epoch"].tolist() == [-1, -1, 4]
    assert found["offset"].tolist() == [0, 2, 0]


def test_damage_before_the_answer_is_raised_and_damage_behind_it_is_not_met(tmp_path):
    directory = tmp_path / "t-0"
    one_segment(directory, stamped(0, 10), stamped(1, 20, crc=1), stamped(2, 30))
    partition = kafkalog.Partition(directory)
    assert partition.offset_for_timestamp([10, 30]).tolist() == [0, 2]
    with fails_with("crc_mismatch"):
        partition.offset_for_timestamp(15)
    assert isinstance(partition.list_offsets, ListOffsets)


def test_behind_the_last_offset_that_there_can_be_is_none(tmp_path):
    last = 2**63 - 1
    path = tmp_path / f"{last:020d}.log"
    path.write_bytes(builder.batch_v2([builder.record_v2(0, key=b"k", value=b"v")], base_offset=last))
    assert kafkalog.Partition(tmp_path).offset_for_timestamp("latest") == last
    assert kafkalog.lookup(path, timestamp="latest")[0].offset == last


def test_a_later_question_is_answered_as_if_it_were_the_first(tmp_path, monkeypatch):
    """What earlier searches walked ended where they had what they looked for: not where later ones begin or end."""
    monkeypatch.setattr(header_reader, "_LEAST_ROWS", 4)
    monkeypatch.setattr(header_reader, "_FIRST_WINDOW_BYTES", 1000)
    rng = random.Random(0)
    path, offset = tmp_path / "t-0", 0
    path.mkdir()
    for _ in range(2):
        batches, base = [], offset
        for _ in range(120):
            stamp = offset + rng.randrange(-9, 10) + 20
            record = builder.record_v2(0, 0, b"k", bytes(rng.choice([10, 900])))
            batches.append(builder.batch_v2([record], base_offset=offset, base_timestamp=stamp, max_timestamp=stamp))
            offset += 1
        (path / f"{base:020d}.log").write_bytes(b"".join(batches))
    for _ in range(examples(40)):
        partition = kafkalog.open_partition(path)
        for _ in range(3):
            questions = [rng.randrange(offset + 40) for _ in range(rng.randrange(1, 5))]
            expected = kafkalog.open_partition(path).find_timestamps(questions).tolist()
            assert partition.find_timestamps(questions).tolist() == expected, questions
            slowly = BruteForce(partition)
            assert expected == [slowly.answer(question) for question in questions]


MOMENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, 5),
        (np.int32(5), 5),
        (2**63 - 1, 2**63 - 1),
        ("latest", -1),
        ("earliest", -2),
        ("max-timestamp", -3),
        (MOMENT, MS),
        (MOMENT.astimezone(timezone(timedelta(hours=-7))), MS),
        (MOMENT + timedelta(microseconds=1), MS + 1),
        (MOMENT + timedelta(microseconds=1000), MS + 1),
        (pd.Timestamp(MOMENT), MS),
        ([], []),
        ([3, 1, 2], [3, 1, 2]),
        ((1, "latest", MOMENT), [1, -1, MS]),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (np.array([1, 2], np.uint16), [1, 2]),
        (np.array([7], ">i8"), [7]),
        (pd.Series([MOMENT, MOMENT]), [MS, MS]),
        (np.array(["earliest", MOMENT], object), [-2, MS]),
        (np.datetime64(MS, "ms"), MS),
        (np.array([[MS * 10**6, MS * 10**6 + 1]], "M8[ns]"), [[MS, MS + 1]]),
        (pd.DatetimeIndex([MOMENT, MOMENT]), [MS, MS]),
    ],
)
def test_milliseconds_names_and_moments_are_questions(given, expected):
    parsed = parse_timestamps(given)
    assert parsed.dtype == np.int64
    assert parsed.dtype.isnative
    assert parsed.tolist() == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (datetime(2023, 11, 14), "naive"),
        ([1, datetime(2023, 11, 14)], "naive"),
        (pd.Timestamp("2023-11-14"), "naive"),
        (np.datetime64("NaT"), "NaT"),
        (np.array(["2023-11-14", "NaT"], "M8[ms]"), "NaT"),
        (np.datetime64("1969-11-14"), "milliseconds from 0"),
        (-1, "milliseconds from 0"),
        ([5, -3], "milliseconds from 0"),
        (2**63, "milliseconds from 0"),
        ([1, 2**64], "milliseconds from 0"),
        (np.array([2**63], np.uint64), "milliseconds from 0"),
        (MOMENT.replace(year=1969), "milliseconds from 0"),
        ("newest", "not 'newest'; or one of earliest, latest, max-timestamp"),
    ],
)
def test_what_is_no_moment_is_a_value_error_that_says_why(given, message):
    with pytest.raises(ValueError, match=message):
        parse_timestamps(given)


@pytest.mark.parametrize("given", [1.5, [1.0, 2.0], None, True, [True, False], np.array([True]), b"latest", [object()]])
def test_what_is_no_timestamp_at_all_is_a_type_error(given):
    with pytest.raises(TypeError, match="timestamp"):
        parse_timestamps(given)


def searched(data, timestamps, **options):
    search = TimestampSearch(np.array(timestamps, np.int64), **options)
    for window in walk(BufferSource(data)):
        search.feed(window)
    return search


def batch(base_offset, stamps, largest=None, **options):
    records = [record_v2(i, stamp, b"k", b"v") for i, stamp in enumerate(stamps)]
    largest = max(stamps) if largest is None else largest
    return batch_v2(records, base_offset=base_offset, max_timestamp=largest, **options)


def test_batches_that_no_answer_needs_are_not_decoded():
    good, bad = batch(0, [10]), batch(1, [20], crc=7)
    search = searched(good + bad + batch(2, [30]), [5, 10, 21, 30])
    assert search.found["offset"].tolist() == [0, 0, 2, 2]
    assert search.is_done
    assert search.position.tolist() == [0, 0, len(good + bad), len(good + bad)]
    with fails_with("crc_mismatch"):
        searched(good + bad, [15])


def backwards(path):
    width = 12 if path.suffix == ".timeindex" else 8
    return np.frombuffer(path.read_bytes(), f"V{width}")[::-1].tobytes()


def far_ahead(path):
    """Each entry with the offset of the last one: all point behind what is asked for."""
    entry = np.dtype(
        [("key", "V8"), ("offset", "V4")] if path.suffix == ".timeindex" else [("offset", "V4"), ("position", "V4")]
    )
    rows = np.frombuffer(path.read_bytes(), entry).copy()
    for column in entry.names or ():
        if rows.size and column != "key":
            rows[column] = rows[column][-1]
    return rows.tobytes()


def zeroed(path):
    return bytes(path.stat().st_size)


DAMAGE = {
    "missing": lambda path: None,
    "empty": lambda path: b"",
    "zeroed": zeroed,
    "random": lambda path: np.random.default_rng(5).bytes(1200),
    "backwards": backwards,
    "far_ahead": far_ahead,
    "cut_in_half": lambda path: path.read_bytes()[: path.stat().st_size // 2],
}


def swap_among(paths):
    """Each index gets the content of the next one."""
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "suffixes"),
    thinned(itertools.product([*DAMAGE, "swapped"], [(".timeindex",), (".index",), (".timeindex", ".index")]), 5),
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_answers_stay_the_same_whatever_becomes_of_the_indexes(log_dir_copy, damage, suffixes):
    directories = sorted(path for path in log_dir_copy.iterdir() if path.is_dir())
    questions = {}
    before = {}
    for directory in directories:
        partition = kafkalog.Partition(directory)
        stamps = np.concatenate([segment.batches.max_timestamp for segment in partition.segments])
        questions[directory] = around(np.unique(stamps[stamps >= 0]).tolist(), random.Random(3))
        before[directory] = partition.find_timestamps(named(questions[directory])).tolist()
    n_changed = 0
    for directory in directories:
        for suffix in suffixes:
            paths = sorted(directory.glob(f"*{suffix}"))
            old = [path.read_bytes() for path in paths]
            if damage == "swapped":
                swap_among(paths)
            else:
                for path in paths:
                    content = DAMAGE[damage](path)
                    path.unlink() if content is None else path.write_bytes(content)
            n_changed += sum(
                not path.exists() or path.read_bytes() != was for path, was in zip(paths, old, strict=True)
            )
    assert n_changed > 8
    for directory in directories:
        partition = kafkalog.Partition(directory)
        assert partition.find_timestamps(named(questions[directory])).tolist() == before[directory]


@pytest.mark.parametrize("name", ["p-multi-1", "p-txn-0", "p-v0v1v2-mixed-0", "p-v1-lz4-0", "p-zstd-java-0"])
def test_damaged_bytes_end_in_our_errors_or_in_answers(log_dir_copy, name):
    """Any byte of a log or an index may be anything; in a log those of headers, as few others are looked at."""
    directory = log_dir_copy / name
    files = [path for path in sorted(directory.iterdir()) if path.suffix in (".log", ".index", ".timeindex")]
    draw = random.Random(name)
    looks = [
        lambda partition: partition.offset_for_timestamp([0, 1_700_000_200_000, 2**63 - 1]),
        lambda partition: trace_timestamp(partition, "max-timestamp"),
        lambda partition: trace_timestamp(partition, 1_700_000_200_000),
        lambda partition: trace_timestamp(partition, "latest"),
        lambda partition: trace_offset(partition, draw.randrange(500)),
    ]
    n_answers = n_errors = 0
    n_trials = 60 if THOROUGH else 8
    for _ in range(n_trials):
        path = draw.choice([path for path in files if path.stat().st_size])
        good = path.read_bytes()
        damaged = bytearray(good)
        for _ in range(draw.choice([1, 1, 4])):
            start = draw.randrange(len(damaged))
            if path.suffix == ".log":
                start = draw.choice(builder.batch_positions(good))[0] + draw.randrange(40)
            n = draw.choice([1, 4, 8])
            damaged[start : start + n] = draw.choice([draw.randbytes(n), bytes(n), b"\xff" * n])
        path.write_bytes(damaged[: len(good)])
        partition = kafkalog.Partition(directory)
        for look in looks:
            try:
                look(partition)
                n_answers += 1
            except kafkalog.KafkalogError as error:
                n_errors += error.path is not None
        path.write_bytes(good)
    assert n_answers > n_trials / 2
    assert n_errors
    assert n_answers + n_errors == 5 * n_trials, "every error says where"
