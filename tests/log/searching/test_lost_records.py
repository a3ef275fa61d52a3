"""What a damaged batch held is said the same however its segment is cut into windows and tasks."""

import contextlib
import random
import tempfile
import warnings
from pathlib import Path

import builder
import pytest
import strategies
from effort import examples
from files import broker_on
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans import batch, make, read
from searches import dense

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import Reason
from kafkalog.log.searching.consistent_batches import agreeing
from kafkalog.log.searching.missing import end_finding, missing_end
from kafkalog.log.searching.resync import IntactRuns, find_batches
from kafkalog.scanning import execution
from kafkalog.scanning.planning import plan
from kafkalog.state.checkpoints import encode_offset_checkpoint
from kafkalog.storage.source import BufferSource


@contextlib.contextmanager
def windows_of(window_bytes):
    """Scans in windows of a size, and without warnings."""
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        if window_bytes is not None:
            patched.setattr(execution, "WINDOW_BYTES", window_bytes)
            patched.setattr(execution, "_MIN_WINDOW_BYTES", window_bytes)
            patched.setattr(execution, "_ALONE_BYTES", window_bytes)
            patched.setattr(execution, "_TOGETHER_BYTES", 0)
        yield


def findings(path, window_bytes=None, **options):
    """Those of a scan, in windows of a size."""
    scan = kafkalog.scan(path, on_corruption="skip", **options)
    with windows_of(window_bytes):
        scan.to_table()
    # what is said of a transaction comes before or behind what is said of the batches of its window
    return sorted(scan.findings, key=lambda one: (one.position or 0, str(one)))


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.integers(1, 3), st.sampled_from([1, 2**7, 2**9, 2**12]))
def test_windows_and_threads_change_no_finding(tmp_path, isolation_level, data, threads, window_bytes):
    segment = data.draw(strategies.segments(min_batches=2))
    content = data.draw(strategies.damaged(segment)).data
    # with bytes repeated or left out, a second damage next to them may make a search begin elsewhere
    is_moved = len(content) != len(segment.data)
    for _ in range(0 if is_moved else data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(content) - 1))
        content = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / f"{segment.base_offset:020d}.log"
    path.write_bytes(content)
    following = data.draw(st.none() | st.integers(1, 300))
    if following is not None:
        path.with_name(f"{segment.base_offset + following:020d}.log").write_bytes(b"")
    found = findings(path, window_bytes, threads=threads, isolation_level=isolation_level)
    assert found == findings(path, isolation_level=isolation_level)


def test_a_batch_beside_the_border_of_two_windows_or_tasks_is_said_to_have_held_the_same(tmp_path):
    chance = random.Random(3)
    offset, batches, starts = 0, [], []
    for _ in range(300):
        offset += chance.choice((0, 0, 3))
        starts.append(offset)
        batches.append(batch(offset, 2, 20))
        offset += 2
    log = make(tmp_path, {0: batches}, interval=64)
    path = log / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    places = [start for start, _ in builder.batch_positions(bytes(content))]
    damaged = chance.sample(range(300), 60)
    for row in damaged:
        # in the payload, or the number of records: the checksum tells of both, and the walk goes on
        content[places[row] + chance.choice((60, 57, 70))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    expected = findings(log)
    assert [one.position for one in expected] == [places[row] for row in sorted(damaged)]
    assert len({one.n_records for one in expected}) > 2
    for window_bytes in (1, 200, 1000):
        assert findings(log, window_bytes) == expected, window_bytes
    for task_bytes in (2**10, 2**12):
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
            read(plan(log, task_bytes=task_bytes, on_corruption="skip"), report=found.append)
        assert found == expected, task_bytes
    report = kafkalog.verify(log)
    said = {one.position: one.n_records for one in report.findings if one.path == str(path)}
    assert said == {one.position: one.n_records for one in expected}


@pytest.mark.parametrize("n_plain", [1, 3])
def test_an_offset_that_a_header_hides_is_followed_by_offsets_that_go_back(tmp_path, n_plain):
    # plain messages are decoded in runs if windows are small
    hidden = builder.wrapper([builder.message(2**48, b"k", b"v", magic=0)], offset=0, magic=0)
    plain = [builder.message(2 + number, b"k", b"v", magic=0) for number in range(n_plain)]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join([hidden, *plain]))
    expected = findings(path)
    assert [(one.reason, one.position, one.base_offset) for one in expected] == [(Reason.OFFSET_ORDER, len(hidden), 2)]
    for window_bytes in (1, 2**7):
        assert findings(path, window_bytes) == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_compressed_messages_that_go_back_are_noted_in_windows_of_any_size(tmp_path, magic):
    inner = [builder.message(offset, b"k", b"v" * 9, magic=magic) for offset in (0, 230, 2)]
    within = builder.wrapper(inner, offset=2, magic=magic, codec=builder.GZIP)
    # its last offset is above the message before, and its first one is not
    inner = [builder.message(offset, b"k", b"v" * 9, magic=magic) for offset in range(2, 6)]
    across = builder.wrapper(inner, offset=5, magic=magic, codec=builder.GZIP)
    after = builder.message(9, magic=magic)
    for name, parts in (("t-0", [within, after]), ("u-0", [builder.message(3, magic=magic), across, after])):
        path = tmp_path / name / f"{0:020d}.log"
        path.parent.mkdir()
        path.write_bytes(b"".join(parts))
        expected = findings(path)
        assert [one.reason for one in expected] == [Reason.OFFSET_ORDER]
        for window_bytes in (1, 2**7, 2**12):
            for threads in (1, 3):
                assert findings(path, window_bytes, threads=threads) == expected


def empty(base):
    return builder.batch_v2([], base_offset=base, last_offset_delta=0)


def plain_batch(base, *offsets):
    return builder.batch_v2([builder.record_v2(n - base, 0, None, b"v") for n in offsets], base_offset=base)


def compressed(*offsets, header=None):
    """A compressed message of v0, whose header may have another offset than that of its last record."""
    inner = [builder.message(offset, b"k", b"v" * 9, magic=0) for offset in offsets]
    return builder.wrapper(inner, offset=offsets[-1] if header is None else header, magic=0, codec=builder.GZIP)


HIDDEN = {
    # batches; the number of the one that is reported, None if no records go back
    "within a message, next to batches without records": (
        [empty(0), empty(1), compressed(2, 514, 213, header=4), empty(5)],
        2,
    ),
    "before a batch without records": ([compressed(2, 514, header=3), empty(4), plain_batch(5, 5, 6)], 2),
    "before messages": ([compressed(2, 514, header=3), compressed(4, 5), compressed(6, 7)], 1),
    "only of batches without records": ([plain_batch(0, 0, 1), empty(2), compressed(2, 3, header=4)], None),
    "within a message that another one follows": ([compressed(0, 9, 2), compressed(3, 4), plain_batch(5, 5)], 0),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_records_that_go_back_are_noted_in_their_batch(tmp_path, case):
    parts, number = HIDDEN[case]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(parts))
    expected = [] if number is None else [sum(map(len, parts[:number]))]
    for columns in (None, ["offset"], ["offset", "key"]):
        for window_bytes in (None, 1, 2**7, 2**9):
            for options in ({}, {"threads": 3}, {"isolation_level": "read_committed"}):
                found = findings(path, window_bytes, columns=columns, **options)
                assert [one.position for one in found if one.reason is Reason.OFFSET_ORDER] == expected


def kept(*parts, base_offset=0, end_offset=2**63 - 1):
    """The first offsets of the runs that agree."""
    source = BufferSource(b"".join(parts))
    found = IntactRuns.concatenate([part.joined() for part in find_batches(source)])
    runs = agreeing(source, found, base_offset=base_offset, end_offset=end_offset).kept
    return [int(offset) for offset in runs.first_offset]


def test_readers_do_not_question_the_epoch_of_a_batch():
    batches = dense(6)
    batches[3] = batches[3][:12] + (8124).to_bytes(4, "big") + batches[3][16:]
    assert kept(*batches) == [0, 9, 12]


@pytest.mark.parametrize(("offset", "is_kept"), [(1, True), (20, True), (900, False), (2**40, False)])
def test_behind_damage_a_lone_batch_far_away_is_not_believed(offset, is_kept):
    first, last = builder.message(0, b"k", b"v", magic=0), builder.message(offset, b"k", b"v", magic=0)
    assert kept(first, b"\xff" * 100, last) == [0, offset][: 1 + is_kept]


def test_relative_offsets_behind_a_lost_header_are_not_believed():
    inner = b"".join(builder.message(n, None, b"v" * 20, magic=1) for n in range(1, 4))
    whole = builder.wrapper([builder.message(0)], offset=0)
    # the header of a compressed message is lost, and its content was stored as it was
    assert kept(whole, b"\xff" * 90, inner, bytes(4), builder.wrapper([builder.message(0)], offset=9)) == [0, 9]
    # messages that were not compressed lead to the next one
    assert kept(whole, b"\xff" * 90, inner, builder.wrapper([builder.message(0)], offset=4)) == [0, 1, 4]


KEY = kafkalog.TopicPartition("t", 0)


def test_the_end_that_checkpoints_know_of_is_told_unless_a_broker_runs(tmp_path):
    partition = tmp_path / "t-0"
    partition.mkdir()
    assert missing_end(partition, KEY, 5) is None
    for name, offset in zip(kf.END_CHECKPOINTS, (4, 9), strict=True):
        (tmp_path / name).write_bytes(encode_offset_checkpoint({KEY: offset}))
    finding = missing_end(partition, KEY, 5)
    assert finding == end_finding(str(partition), 5, {kf.END_CHECKPOINTS[1]: 9}, damage=False)
    assert finding is not None
    assert (finding.base_offset, finding.last_offset, finding.n_records) == (5, 8, 4)
    assert missing_end(partition, KEY, 9) is missing_end(partition, None, 5) is None
    with broker_on(tmp_path):
        assert missing_end(partition, KEY, 5) is None
