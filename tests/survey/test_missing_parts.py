"""Whole batches are gone from the middle of a `.log`: its offset index proves it, and every command says the same.

Logs and indexes are those of `index_twin`: of single appends, and of appends of several batches as followers and older
brokers write them.
"""

import itertools
import random

import builder
import index_twin
import pytest
from effort import examples, trials
from loss_reports import of_convert, of_merge, of_recover, of_salvage, of_scan, of_verify, ranges

import kafkalog
from kafkalog.errors import Reason
from kafkalog.format import CLEANER_OFFSET_CHECKPOINT, segment_file_name
from kafkalog.scanning.planning import plan
from kafkalog.scanning.tasks import read_task
from kafkalog.state.checkpoints import encode_offset_checkpoint
from kafkalog.survey.losses import losses_of

INTERVAL = 400
N_BATCHES = 90
pytestmark = pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")


def drafts(rng, *, gaps=False):
    """Batches of one size or of many, without missing offsets unless there are to be gaps between them."""
    is_uniform = rng.random() < 0.3
    return [
        (
            rng.choice([0, 0, 1, 7]) if gaps else 0,
            3 if is_uniform else rng.choice([1, 2, 5]),
            20 if is_uniform else rng.randrange(60),
            1000 + 10 * number,
        )
        for number in range(N_BATCHES)
    ]


def write(root, data, batches, indexes, *, base=0):
    """A log dir of one partition: a segment of these bytes and indexes, and a small one after it."""
    partition = root / "t-0"
    partition.mkdir(parents=True)
    end = batches[-1].last_offset + 1
    following, _ = index_twin.make_log([(0, 2, 10, 9000)], end)
    for offset, content in ((base, data), (end, following)):
        (partition / segment_file_name(offset)).write_bytes(content)
    (partition / segment_file_name(base, ".index")).write_bytes(indexes.offset_bytes(base))
    (partition / segment_file_name(base, ".timeindex")).write_bytes(indexes.time_bytes(base))
    (partition / segment_file_name(end, ".index")).write_bytes(b"")
    (partition / segment_file_name(end, ".timeindex")).write_bytes(b"")
    return partition


def without(data, batches, rows):
    """The bytes without some batches."""
    return b"".join(
        data[one.position : one.position + one.size] for number, one in enumerate(batches) if number not in rows
    )


def n_witnesses(indexes, batches, first, stop):
    """Entries of the offset index that lie after the beginning of a cut, and whose appends do not begin before it."""
    return sum(position >= batches[first].position for _, position in indexes.offset)


def losses_of_scan(root):
    scan = kafkalog.scan(root, columns=["offset"], on_corruption="skip")
    scan.to_table()
    return losses_of(scan.findings)


def losses_of_tasks(root, task_bytes):
    found = []
    tasks = plan(root, task_bytes=task_bytes, on_corruption="skip")
    list(itertools.chain(*(read_task(task, report=found.append) for task in tasks.tasks)))
    return losses_of(found)


@pytest.mark.parametrize("calls", [(), (1, 3), (2, 6, 1)], ids=["single appends", "some of several", "of several"])
@pytest.mark.parametrize("seed", range(trials(1, 100)))
def test_batches_that_are_gone_from_the_middle_of_a_segment_are_a_loss_for_every_command(tmp_path, seed, calls):
    rng = random.Random(seed)
    data, batches = index_twin.make_log(drafts(rng))
    indexes = index_twin.write_indexes(batches, INTERVAL, calls=calls)
    first = rng.randrange(N_BATCHES - 30)
    stop = first + rng.choice([8, 15, 25])
    root = tmp_path / "logs"
    write(root, without(data, batches, range(first, stop)), batches, indexes)
    assert n_witnesses(indexes, batches, first, stop) > 2
    start, end = batches[first].base_offset, batches[stop].base_offset
    expected = [(start, end, end - start, "at_most")]
    verified = of_verify(root)
    assert ranges(verified.losses) == expected
    for command in (of_salvage, of_merge, of_scan, of_convert):
        assert ranges(command(root).losses) == expected, command
    for task_bytes in (2**10, 2**12, 2**26):  # a segment is cut into parts, or read as a whole
        assert ranges(losses_of_tasks(root, task_bytes)) == expected
    assert ranges(kafkalog.preflight(root, clean=True).losses) == expected
    assert ranges(kafkalog.preflight(root, clean=False).losses) == expected
    assert (start, end) in [(one.first_offset, one.end_offset) for one in of_recover(root).losses]


@pytest.mark.parametrize("calls", [(), (1, 3)], ids=["single appends", "some of several"])
@pytest.mark.parametrize("seed", range(examples(200)))
def test_nothing_is_lost_in_a_compacted_log_with_its_own_index(tmp_path, seed, calls):
    rng = random.Random(seed)
    data, batches = index_twin.make_log(drafts(rng, gaps=True))
    write(tmp_path / "logs", data, batches, index_twin.write_indexes(batches, INTERVAL, calls=calls))
    assert of_verify(tmp_path / "logs").losses == losses_of_scan(tmp_path / "logs") == []


@pytest.mark.parametrize("surroundings", ["nothing", "cleaned"])
@pytest.mark.parametrize("seed", range(examples(200)))
def test_the_index_of_the_log_before_the_cleaner_came_proves_nothing(tmp_path, seed, surroundings):
    rng = random.Random(seed)
    data, batches = index_twin.make_log(drafts(rng))
    indexes = index_twin.write_indexes(batches, INTERVAL)
    rows = {row for row in range(N_BATCHES - 1) if rng.random() < rng.choice([0.05, 0.2, 0.5])} | {20, 60}
    root = tmp_path / "logs"
    write(root, without(data, batches, rows), batches, indexes)
    if surroundings == "cleaned":
        cleaned = {kafkalog.TopicPartition("t", 0): batches[-1].last_offset + 1}
        (root / CLEANER_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(cleaned))
    assert [one for one in of_verify(root).losses if one.reason is Reason.LOG_PART_MISSING] == []
    assert losses_of_scan(root) == []


@pytest.mark.parametrize("gaps", [False, True], ids=["dense", "compacted"])
@pytest.mark.parametrize("seed", range(examples(400)))
def test_a_damaged_index_proves_nothing(tmp_path, seed, gaps):
    rng = random.Random(seed)
    data, batches = index_twin.make_log(drafts(rng, gaps=gaps))
    partition = write(tmp_path / "logs", data, batches, index_twin.write_indexes(batches, INTERVAL))
    path = partition / segment_file_name(0, ".index")
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.choice([rng.randrange(len(content)), rng.randrange(len(content) - 16, len(content))])
        kind = rng.choice(["flip", "noise", "zeros", "cut", "copy"])
        if kind == "flip":
            content[at] ^= 1 << rng.randrange(8)
        elif kind in ("noise", "zeros"):
            n = len(content[at : at + 9])
            content[at : at + n] = rng.randbytes(n) if kind == "noise" else bytes(n)
        elif kind == "cut" and len(content) > 40:
            del content[at // 8 * 8 : at // 8 * 8 + 8]
        elif kind == "copy":
            content[at // 8 * 8 : at // 8 * 8] = content[at // 8 * 8 : at // 8 * 8 + 8]
    path.write_bytes(content)
    found = [*of_verify(tmp_path / "logs").losses, *losses_of_scan(tmp_path / "logs")]
    assert [one for one in found if one.reason is Reason.LOG_PART_MISSING] == []


@pytest.mark.parametrize("seed", range(examples(200)))
def test_a_cut_of_a_compacted_log_is_a_loss_next_to_the_gaps_of_the_cleaner(tmp_path, seed):
    rng = random.Random(seed)
    data, batches = index_twin.make_log(drafts(rng, gaps=True))
    indexes = index_twin.write_indexes(batches, INTERVAL)
    first = rng.randrange(10, N_BATCHES - 40)
    stop = first + rng.choice([15, 25])
    root = tmp_path / "logs"
    write(root, without(data, batches, range(first, stop)), batches, indexes)
    cleaned = {kafkalog.TopicPartition("t", 0): batches[-1].last_offset + 1}
    (root / CLEANER_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(cleaned))
    start, end = batches[first - 1].last_offset + 1, batches[stop].base_offset
    expected = [(start, end, end - start, "at_most")]
    for command in (of_verify, of_salvage, of_merge, of_scan, of_convert):
        assert ranges(command(root).losses) == expected, command


@pytest.mark.parametrize("seed", range(examples(100)))
def test_several_cuts_of_a_log_that_nobody_cleaned_are_each_a_loss(tmp_path, seed):
    rng = random.Random(seed)
    data, batches = index_twin.make_log(drafts(rng))
    indexes = index_twin.write_indexes(batches, INTERVAL)
    cuts = [(10, 10 + rng.choice([5, 12])), (50, 50 + rng.choice([5, 12]))]
    root = tmp_path / "logs"
    write(root, without(data, batches, {row for cut in cuts for row in range(*cut)}), batches, indexes)
    # the checkpoint of a broker whose cleaner never came here
    cleaned = {kafkalog.TopicPartition("other", 0): 1}
    (root / CLEANER_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(cleaned))
    expected = [(batches[first].base_offset, batches[stop].base_offset) for first, stop in cuts]
    for command in (of_verify, of_salvage, of_merge, of_scan, of_convert):
        assert [(one.first_offset, one.end_offset) for one in command(root).losses] == expected, command


@pytest.mark.parametrize("seed", range(trials(1, 50)))
def test_a_cut_of_compressed_messages_of_old_formats_is_a_loss(tmp_path, seed):
    """Their headers hide where they begin."""
    rng, parts, batches, base, position = random.Random(seed), [], [], 0, 0
    magic, codec = rng.choice([0, 1]), rng.choice([builder.GZIP, builder.SNAPPY, builder.LZ4])
    for _ in range(N_BATCHES):
        n = rng.choice([2, 3, 5])
        inner = [
            builder.message(i if magic else base + i, b"k", rng.randbytes(rng.randrange(40)), magic=magic)
            for i in range(n)
        ]
        parts.append(builder.wrapper(inner, offset=base + n - 1, magic=magic, codec=codec))
        batches.append(index_twin.Batch(base, base + n - 1, position, len(parts[-1]), 0))
        base, position = base + n, position + len(parts[-1])
    first = rng.randrange(N_BATCHES - 40)
    stop = first + rng.choice([8, 15, 25])
    root = tmp_path / "logs"
    indexes = index_twin.write_indexes(batches, INTERVAL)
    write(root, without(b"".join(parts), batches, range(first, stop)), batches, indexes)
    start, end = batches[first].base_offset, batches[stop].base_offset
    for command in (of_verify, of_salvage, of_scan, of_convert, of_merge):
        assert ranges(command(root).losses) == [(start, end, end - start, "at_most")], command


def test_a_cut_does_not_make_a_missing_segment_look_compacted(tmp_path):
    rng = random.Random(1)
    data, batches = index_twin.make_log(drafts(rng))
    indexes = index_twin.write_indexes(batches, INTERVAL)
    root = tmp_path / "logs"
    partition = write(root, without(data, batches, range(20, 40)), batches, indexes)
    end = batches[-1].last_offset + 1
    # the next segment is gone, and another one begins later
    for path in partition.glob(f"{end:020d}.*"):
        path.rename(path.with_name(segment_file_name(end + 50, path.suffix)))
    later, _ = index_twin.make_log([(0, 2, 10, 9000)], end + 50)
    (partition / segment_file_name(end + 50)).write_bytes(later)
    expected = [(batches[20].base_offset, batches[40].base_offset), (end, end + 50)]
    for command in (of_verify, of_salvage, of_scan):
        report = command(root)
        found = [*report.losses, *report.noted]
        assert {(one.first_offset, one.end_offset) for one in found} == {*expected}, command


@pytest.mark.parametrize("moved", [-1, 1, 64, 4096])
def test_one_entry_next_to_the_only_gap_of_a_log_proves_nothing(tmp_path, moved):
    """It may be damaged: two have to agree."""
    plan = drafts(random.Random(3))
    _, batches = index_twin.make_log(plan)
    last, _ = index_twin.write_indexes(batches, INTERVAL).offset[-1]
    row = next(number for number, batch in enumerate(batches) if batch.last_offset == last)
    plan[row] = (7, *plan[row][1:])
    data, batches = index_twin.make_log(plan)
    indexes = index_twin.write_indexes(batches, INTERVAL)
    offset, position = indexes.offset[-1]
    assert offset == batches[row].last_offset
    indexes.offset[-1] = offset, position + moved
    write(tmp_path / "logs", data, batches, indexes)
    assert of_verify(tmp_path / "logs").losses == losses_of_scan(tmp_path / "logs") == []
