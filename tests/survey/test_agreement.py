"""Commands that survey the same damaged log report the same losses, and what is lost and what is kept is what existed.

A command is a function in `COMMANDS`; add another one with what it covers.
"""

from __future__ import annotations

import random
import warnings

import builder
import pytest
from effort import trials
from loss_reports import counts, of_convert, of_merge, of_recover, of_salvage, of_scan, of_verify, ranges

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import CorruptionWarning, Reason
from kafkalog.format import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, segment_file_name
from kafkalog.state.checkpoints import encode_offset_checkpoint

COPIES = ("copy to the end", "copy of the rest", "copy into the next segment", "zero tail")
N = 260
"""Records that existed: offsets 0 to 259."""

COMMANDS = {
    "salvage": (of_salvage, True),
    "merge": (of_merge, True),
    "scan": (of_scan, False),
    "convert": (of_convert, False),
}
"""The function, and whether it covers what verify does: readers do not look for what is left of a missing segment."""


def v2_segments(rng):
    """Segments of dense batches, as a producer and a broker make them."""
    size, codec = rng.choice([1, 3, 10]), rng.choice([builder.NONE, builder.GZIP, builder.LZ4])
    batches = []
    for base in range(0, N, size):
        records = [builder.record_v2(i, 0, None, rng.randbytes(rng.randrange(60))) for i in range(min(size, N - base))]
        batches.append((base, builder.batch_v2(records, base_offset=base, codec=codec)))
    return rolled(batches)


def legacy_segments(rng):
    """Segments of messages of v0 or v1, single or compressed together."""
    magic, size = rng.choice([0, 1]), rng.choice([1, 3, 10])
    codec = rng.choice([builder.GZIP, builder.SNAPPY, builder.LZ4]) if size > 1 else builder.NONE
    batches = []
    for base in range(0, N, size):
        offsets = range(base, min(base + size, N))
        inner = [
            builder.message(offset - base * (magic if codec else 0), b"k%d" % offset, rng.randbytes(40), magic=magic)
            for offset in offsets
        ]
        data = builder.wrapper(inner, offset=offsets[-1], magic=magic, codec=codec) if codec else inner[0]
        batches.append((base, data))
    return rolled(batches)


def compacted_segments(rng):
    """Segments of batches of v2 from which the cleaner took records, and whole batches; the last is as it was."""
    size, batches = rng.choice([3, 10]), []
    for base in range(0, N, size):
        n = min(size, N - base)
        kept = [i for i in range(n) if rng.random() < 0.6 or base > N - 60]
        records = [builder.record_v2(i, 0, b"k%d" % (base + i), rng.randbytes(40)) for i in kept]
        if kept:
            batches.append((base, builder.batch_v2(records, base_offset=base, last_offset_delta=n - 1)))
    return rolled(batches)


def transactional_segments(rng):
    """Segments of transactions that commit and abort, next to batches of other producers."""
    size, batches, base = rng.choice([3, 10]), [], 0
    while base < N:
        n = min(size, N - base - 1)
        records = [builder.record_v2(i, 0, None, rng.randbytes(40)) for i in range(n)]
        producer = rng.choice([-1, 7, 8])
        given = {"producer_id": producer, "producer_epoch": 0, "base_sequence": base} if producer > 0 else {}
        if n and producer > 0:
            data = builder.batch_v2(records, base_offset=base, transactional=True, **given)
            end = rng.random() < 0.7
            marker = builder.control_batch(end, base_offset=base + n, producer_id=producer, producer_epoch=0)
            batches += [(base, data), (base + n, marker)]
            base += n + 1
        else:
            n = min(size, N - base)
            records = [builder.record_v2(i, 0, None, rng.randbytes(40)) for i in range(n)]
            batches.append((base, builder.batch_v2(records, base_offset=base)))
            base += n
    return rolled(batches)


def rolled(batches):
    """Batches in segments of about 4 KiB, each by its base offset."""
    segments = {}
    for base, data in batches:
        last = max(segments, default=None)
        if last is None or len(segments[last]) + len(data) > 2**12:
            segments[base] = data
        else:
            segments[last] += data
    return segments


LOGS = {
    "v2": v2_segments,
    "v0 and v1": legacy_segments,
    "compacted": compacted_segments,
    "transactional": transactional_segments,
}


def write_log(root, rng, kind):
    """A log dir with one partition of several segments, and with their indexes."""
    for base, data in LOGS[kind](rng).items():
        path = root / "t-0" / segment_file_name(base)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    kinds = ("offset", "time", "snapshot", "epochs")
    kafkalog.reindex(root / "t-0", kinds=kinds, in_place=True, backup=False, index_interval_bytes=512)
    checkpoints = [] if rng.random() < 0.5 else [RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT]
    if checkpoints:
        (root / ".kafka_cleanshutdown").touch()
    if kind == "compacted":
        checkpoints.append("cleaner-offset-checkpoint")
    for name in checkpoints:
        end = {kafkalog.TopicPartition("t", 0): N}
        (root / name).write_bytes(encode_offset_checkpoint(end))
    (root / ".lock").unlink(missing_ok=True)
    return root / "t-0"


def damage(partition, rng):
    """Damage a file, or lose some."""
    log = rng.choice(sorted(partition.glob("*.log")) or [partition / "0.log"])
    data = bytearray(log.read_bytes()) if log.exists() else bytearray()
    if not data:
        return "nothing is left to damage"
    at, n = rng.randrange(len(data)), rng.choice([1, 8, 61, 300, 1200])
    kinds = ["flip", "zeros", "noise", "cut", "insert", "delete", "lose log", "lose segment", "empty", *COPIES]
    kind = rng.choice(kinds)
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "zeros":
        data[at : at + n] = bytes(len(data[at : at + n]))
    elif kind == "noise":
        n = max(n, 61)
        data[at : at + n] = rng.randbytes(len(data[at : at + n]))
    elif kind == "insert":
        data[at:at] = rng.randbytes(n)
    elif kind == "delete":
        del data[at : at + n]
    elif kind in ("cut", "empty"):
        del data[at if kind == "cut" else 0 :]
    elif kind == "zero tail":
        data += bytes(n)
    elif kind in COPIES:
        logs = sorted(partition.glob("*.log"))
        other = logs[min(logs.index(log) + 1, len(logs) - 1)] if kind == "copy into the next segment" else log
        batches = [bytes(data[start:stop]) for start, stop in builder.batch_positions(bytes(data))]
        first = rng.randrange(len(batches)) if batches else 0
        copied = b"".join(batches[first : first + rng.choice([1, 2, 5])])
        if other != log:
            other.write_bytes(copied + other.read_bytes())
            return f"{kind}: {len(copied)} bytes of {log.name}"
        data += copied if kind == "copy to the end" else b"".join(batches[first:])
    if kind == "lose log":
        log.unlink()
    elif kind == "lose segment":
        for path in partition.glob(f"{log.stem}.*"):
            path.unlink()
    else:
        log.write_bytes(data)
    return f"{kind} {n} bytes at {at} in {log.name}"


def damage_copies(partition, rng):
    """Copy batches of a segment behind its end, or before those of the next one, and damage some of the copies."""
    logs = sorted(partition.glob("*.log"))
    number = rng.randrange(len(logs))
    data = logs[number].read_bytes()
    batches = [data[start:stop] for start, stop in builder.batch_positions(data)]
    first = rng.randrange(len(batches))
    copies = [bytearray(copy) for copy in batches[first : first + rng.choice([2, 5, len(batches)])]]
    for _ in range(rng.choice([1, 2, 3])):
        copy = rng.choice(copies)
        # no checksum covers an offset, and a size field may make the end of a log look like an incomplete append
        copy[rng.randrange(12, len(copy))] ^= 1 << rng.randrange(8)
    copied = b"".join(copies)
    other = logs[min(number + rng.choice([0, 0, 1]), len(logs) - 1)]
    other.write_bytes(other.read_bytes() + copied if other == logs[number] else copied + other.read_bytes())
    return f"{len(copied)} damaged bytes of {logs[number].name} copied into {other.name}"


def covered(losses, bases):
    """The offsets that existed and are lost, from the first segment on."""
    return {
        offset
        for one in losses
        if one.first_offset is not None
        for offset in range(max(one.first_offset, bases[0]), N if one.end_offset is None else min(one.end_offset, N))
    }


def is_among(offset, losses):
    return any((one.first_offset or 0) <= offset < (one.end_offset or N) for one in losses)


def check_recovery(report, readable, lost):
    """What a recovery loses is all that it does not keep, and includes all that is lost already."""
    if report.kept is None:
        return
    assert isinstance(report.kept, list)
    assert {*report.kept} <= {*readable}
    assert [one for one in readable if one not in {*report.kept} and not is_among(one, report.losses)] == []
    known = [one for one in lost if one.first_offset is not None and one.end_offset is not None]
    for one in known:
        assert all(is_among(offset, report.losses) for offset in (one.first_offset, one.end_offset - 1))
    if all(one.certainty == "exact" for one in (*lost, *report.losses)):
        n_lost, n_recovered = (sum(one.n_records or 0 for one in losses) for losses in (lost, report.losses))
        assert n_recovered + len(report.kept) == n_lost + len(readable)


def check(folder, kind, seed, damaging=damage):
    """Damage a log of a kind, ask all commands, and compare what they say."""
    rng = random.Random(seed)
    partition = write_log(folder / "logs", rng, kind)
    root = partition.parent
    existed = kafkalog.read_table(root, columns=["offset"])["offset"].to_pylist()
    what = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        what.append(damaging(partition, rng))
    bases = sorted(int(path.stem) for path in partition.glob("*.log"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorruptionWarning)
        verified = of_verify(root)
        reports = {name: command(root) for name, (command, _) in COMMANDS.items()}
        recovered = of_recover(root)
    for name, report in reports.items():
        if COMMANDS[name][1]:
            assert ranges(report.losses) == ranges(verified.losses), (what, name)
        elif bases:
            lost = covered(verified.losses, bases)
            assert covered(report.losses, bases) <= lost, (what, name)
            # in a compacted topic only what is left of a missing segment tells of it, which readers do not look for
            if kind != "compacted" or not any(one.startswith(("empty", "lose")) for one in what):
                assert lost <= covered(report.noted, bases), (what, name)
    kept = reports["scan"].kept
    assert isinstance(kept, list)
    assert {*kept} <= {*existed}, what
    assert reports["salvage"].kept == reports["merge"].kept == kept, what
    assert reports["convert"].kept == len(kept), what
    check_recovery(recovered, kept, verified.losses)
    gone = [offset for offset in existed if offset not in {*kept}]
    # only leader epochs tell that a log began before its first segment
    if bases and bases[0] and (kind == "v0 and v1" or not (root / ".kafka_cleanshutdown").exists()):
        gone = [offset for offset in gone if offset >= bases[0]]  # retention may have deleted them
    torn = [one for one in kafkalog.verify(root).findings if one.reason is Reason.PARTIAL_TAIL and not one.damage]
    gone = [] if torn else gone  # an incomplete last batch is what a crash leaves
    # a note is enough where nothing tells that offsets were not compacted away; where they may be, there is none
    known = [*verified.losses, *verified.noted]
    if kind == "compacted" and any(one.startswith("lose segment") for one in what):
        return
    assert [offset for offset in gone if not is_among(offset, known)] == [], what
    if all(one.n_records is not None and one.certainty == "exact" for one in verified.losses):
        assert sum(one.n_records or 0 for one in verified.losses) == len(gone), what


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("seed", range(trials(1, 15)))
def test_commands_agree_and_nothing_is_lost_silently(tmp_path, seed, kind):
    check(tmp_path, kind, seed)


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("seed", range(trials(1, 15)))
def test_commands_agree_about_several_damages_within_copies(tmp_path, seed, kind):
    check(tmp_path, kind, seed, damage_copies)


FOUND = [("compacted", 2041), ("transactional", 1121), ("v0 and v1", 337), ("compacted", 362), ("v2", 209)]
"""Inputs about which commands disagreed, of longer runs."""


@pytest.mark.parametrize(("kind", "seed"), FOUND)
def test_commands_agree_about_inputs_of_longer_runs(tmp_path, kind, seed):
    check(tmp_path, kind, seed)


def batch(base, n=3):
    records = [builder.record_v2(i, 0, b"k", b"v" * 30) for i in range(n)]
    return builder.batch_v2(records, base_offset=base)


DENSE = [batch(base) for base in (0, 3, 6, 9)]
FILES = {
    # files, log end of a clean stop, readable records, what is lost
    # compaction may leave any gap, also one that a flipped bit would explain
    "an offset that is far away, but not too far": (
        {segment_file_name(0): b"".join([*DENSE, batch(12 + 2**25)])},
        None,
        15,
        [],
    ),
    "an offset with one flipped bit next to damage": (
        {segment_file_name(0): b"".join([*DENSE, bytes(80), batch(12 ^ 64), batch(90), batch(93)])},
        None,
        21,
        [(12, 76, 64)],
    ),
    "an offset that is too far for an index": (
        {segment_file_name(0): b"".join([*DENSE, batch(12 + 3 * 2**32)])},
        None,
        15,
        [],
    ),
    "an offset that a snapshot contradicts": (
        {segment_file_name(0): b"".join([*DENSE[:3], batch(12)]), segment_file_name(12, ".snapshot"): b""},
        None,
        9,
        [(9, 12, 3)],
    ),
    "a name above the first batch": (
        {segment_file_name(0): b"".join(DENSE[:2]), segment_file_name(8): b"".join([DENSE[2], DENSE[3]])},
        None,
        9,
        [(6, 9, 3)],
    ),
    "a name above all of the first batches": ({segment_file_name(5): b"".join(DENSE)}, None, 6, [(5, 6, 1)]),
    "a batch that reaches into the next segment": (
        {segment_file_name(0): b"".join(DENSE[:3]), segment_file_name(8): DENSE[3]},
        None,
        12,
        [],
    ),
    "zeros after a clean stop": ({segment_file_name(0): b"".join([*DENSE, bytes(500)])}, 12, 12, []),
    "zeros after a clean stop of a longer log": (
        {segment_file_name(0): b"".join([*DENSE[:3], bytes(500)])},
        12,
        9,
        [(9, 12, 3)],
    ),
    "a name of few digits": ({"0.log": b"".join(DENSE[:2]), segment_file_name(6): DENSE[2]}, None, 9, []),
}


@pytest.mark.parametrize("case", FILES)
def test_commands_agree_about_odd_files(tmp_path, case):
    files, end, n_readable, lost = FILES[case]
    root = tmp_path / "logs"
    (root / "t-0").mkdir(parents=True)
    for name, data in files.items():
        (root / "t-0" / name).write_bytes(data)
    if end is not None:
        (root / ".kafka_cleanshutdown").touch()
        (root / RECOVERY_POINT_CHECKPOINT).write_bytes(encode_offset_checkpoint({kafkalog.TopicPartition("t", 0): end}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorruptionWarning)
        verified, scanned, salvaged, merged = (one(root) for one in (of_verify, of_scan, of_salvage, of_merge))
    assert ranges(verified.losses) == ranges(salvaged.losses) == ranges(merged.losses)
    assert counts(verified.losses) == lost
    # readers do not look for what other files know of the end
    assert counts(scanned.losses) == [one for one in lost if end is None]
    assert scanned.kept == salvaged.kept == merged.kept
    assert len(scanned.kept or ()) == n_readable
    assert kafkalog.verify(root).ok == ("too far" in case)


def broken(data):
    """A batch with a bit flipped in its last record."""
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


def wrapped(base):
    inner = [builder.message(i, b"k", b"v" * 20, magic=1) for i in range(3)]
    return builder.wrapper(inner, offset=base + 2, magic=1, codec=builder.GZIP)


MARKER = builder.control_batch(True, base_offset=3, producer_id=7, producer_epoch=0)
COUNTED = {
    # segments; what every command says is lost
    # a marker is no record, and a loss
    "the last batch, a transaction marker": (
        {0: [batch(0), broken(MARKER)], 4: [batch(4), batch(7)]},
        [(3, 4, 0, "exact")],
    ),
    "a marker, and what came after it": (
        {0: [batch(0), broken(MARKER)], 9: [batch(9), batch(12)]},
        [(3, 9, 6, "at_most")],
    ),
    "two neighbours, of which the second lacks a byte": (
        {0: [batch(0), broken(batch(3)), batch(6)[:-9] + batch(6)[-8:], batch(9)], 12: [batch(12)]},
        [(3, 9, 6, "exact")],
    ),
    "a marker next to noise": (
        {0: [batch(0), broken(MARKER), b"\xff" * 70], 9: [batch(9), batch(12)]},
        [(3, 9, 6, "at_most")],
    ),
    "a damaged batch, and bytes that were inserted": (
        {0: [batch(0), broken(batch(3)), b"\x07" * 9, batch(6)], 9: [batch(9)]},
        [(3, 6, 3, "exact")],
    ),
    "copies before a gap that the cleaner explains": (
        {0: [batch(base) for base in (0, 6, 12, 18, 6, 12, 18)], 40: [batch(base) for base in (40, 48, 60)]},
        [],
    ),
    "a wrong offset before a compressed message": (
        {0: [wrapped(0), b"\xee" * 8 + wrapped(3)[8:], wrapped(6), wrapped(9)], 12: [wrapped(12)]},
        [(3, 6, 3, "at_most")],
    ),
}


@pytest.mark.parametrize("case", COUNTED)
def test_commands_count_the_records_of_a_hole_alike(tmp_path, case):
    segments, lost = COUNTED[case]
    root = tmp_path / "logs"
    (root / "t-0").mkdir(parents=True)
    for base, batches in segments.items():
        (root / "t-0" / segment_file_name(base)).write_bytes(b"".join(batches))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorruptionWarning)
        reports = [one(root) for one in (of_verify, of_scan, of_salvage, of_merge, of_convert)]
    assert [ranges(one.losses) for one in reports] == [lost] * len(reports)
    [partition] = kafkalog.salvage(root, output=tmp_path / "saved", dry_run=True).partitions
    assert sum(hole.n_records or 0 for hole in partition.lost) == sum(n for *_, n, _ in lost)


@pytest.mark.parametrize("bases", [(0, 3, 9), (0,)])
def test_a_log_without_a_byte_has_lost_what_its_files_prove(tmp_path, bases):
    root = tmp_path / "logs"
    for base in bases:
        write(root / "t-0", base=base)
    if len(bases) == 1:
        (root / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 9\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorruptionWarning)
        reports = [one(root) for one in (of_verify, of_salvage, of_merge)]
    assert [ranges(one.losses) for one in reports] == [[(0, 9, 9, "at_most")]] * 3
    assert kafkalog.preflight(root).partitions[0].losses


@pytest.mark.parametrize("has_usual", [False, True])
def test_a_broker_does_not_read_a_log_whose_name_has_few_digits(tmp_path, has_usual):
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / "0.log").write_bytes(b"".join(DENSE))
    if has_usual:
        (partition / segment_file_name(0)).write_bytes(b"".join(DENSE[:2]))
    plan = kafkalog.preflight(partition)
    [row] = plan.partitions
    assert counts(row.losses) == ([] if has_usual else [(0, 12, 12)])
    assert row.log_end_offset == (6 if has_usual else 0)
    assert plan.ok == has_usual
    assert kafkalog.recover(partition, dry_run=True).ok == has_usual
    assert not kafkalog.verify(partition).ok


def exits(capsys, *paths):
    """The exit code and the output of each command for the same paths; recover takes the first one."""
    found = {}
    for command in ("ls", "verify", "preflight", "recover", "salvage", "cat"):
        names = [str(path) for path in (paths[:1] if command == "recover" else paths)]
        more = ["--dry-run"] if command in ("recover", "salvage") else []
        code = main([command, *names, *more])
        found[command] = code, "".join(capsys.readouterr())
    return found


def write(directory, *batches, base=0):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / segment_file_name(base)).write_bytes(b"".join(batches))
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: e4rNbTcjT_elpYRxU0Jgtw\n")
    return directory


def test_a_directory_that_holds_log_dirs_stands_for_them_where_nothing_is_changed(tmp_path, capsys):
    for name, meant in (("data-0/kafka-log0/t-0", "data-0/kafka-log0"), ("t-0/t-0", "t-0")):
        root = tmp_path / name.replace("/", "_")
        write(root / name, *DENSE)
        for command, (code, text) in exits(capsys, root).items():
            assert (command, code) == (command, 3 if command == "recover" else 0)
            assert code == 0 or f"here, but {root / meant} " in text


def test_a_directory_with_segments_under_another_name_is_none_for_any_command(tmp_path, capsys):
    write(tmp_path / "orders", *DENSE)
    for command, (code, text) in exits(capsys, tmp_path).items():
        assert (command, code) == (command, 3)
        assert f"here, but {tmp_path / 'orders'} " in text


def test_segments_that_no_command_reads_are_named(tmp_path, capsys):
    for name in ("t-0", "u-0.bak", f"t-0.{'0' * 32}-stray", f"t-1.{'0' * 32}-future"):
        write(tmp_path / name, *DENSE)
    found = exits(capsys, tmp_path)
    assert all("u-0.bak: " in found[command][1] for command in ("ls", "verify", "preflight", "salvage", "cat"))
    for name in ("-stray", "-future"):
        assert all(f"{name}: left_out: not read" in found[command][1] for command in ("salvage", "cat")), name
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=a\n")
    assert {command: code for command, (code, _) in exits(capsys, tmp_path).items()} == {
        **dict.fromkeys(("ls", "salvage", "cat"), 0),
        **dict.fromkeys(("verify", "preflight", "recover"), 1),  # a broker does not start
    }


def test_log_dirs_of_one_broker_are_checked_together(tmp_path, capsys):
    for number, (node, cluster) in enumerate([(1, "a"), (1, "b"), (2, "b")]):
        write(tmp_path / str(number) / f"t-{number}", *DENSE)
        (tmp_path / str(number) / "meta.properties").write_text(f"version=1\nnode.id={node}\ncluster.id={cluster}\n")
    found = exits(capsys, tmp_path / "0", tmp_path / "1")
    assert all(code == 1 and "cluster.id is 'b'" in text for code, text in (found["verify"], found["preflight"]))
    assert kafkalog.verify([tmp_path / "0", tmp_path / "2"]).ok


@pytest.mark.parametrize("name", [".log.gz", ".log.bak", ".log.filepart", None])
def test_files_that_may_have_what_is_missing_are_named(tmp_path, capsys, name):
    partition = write(tmp_path / "t-0", *DENSE)
    write(partition / "later", batch(12), base=12)
    other = f".{segment_file_name(12)}.Xy12ab" if name is None else segment_file_name(12, name)
    (partition / "later" / segment_file_name(12)).rename(partition / other)
    (partition / segment_file_name(15, ".snapshot")).write_bytes(b"")
    for path in (partition / "later").iterdir():
        path.unlink()
    (partition / "later").rmdir()
    found = exits(capsys, tmp_path)
    for command in ("verify", "preflight", "recover", "salvage"):
        assert f"{other} may have them" in found[command][1]


def test_what_a_link_hides_is_said_by_preflight(tmp_path, capsys):
    write(tmp_path / "logs" / "t-0", *DENSE)
    (tmp_path / "logs" / "u-0").symlink_to(write(tmp_path / "other" / "u-0", *DENSE))
    found = exits(capsys, tmp_path / "logs")
    assert {command: code for command, (code, _) in found.items() if code} == {"recover": 1}
    assert all("link_outside" in text for _, text in found.values())


def test_a_start_past_the_end_is_a_loss_for_recover_and_preflight(tmp_path, capsys):
    write(tmp_path / "t-0", *DENSE)
    starts = encode_offset_checkpoint({kafkalog.TopicPartition("t", 0): 90})
    (tmp_path / "log-start-offset-checkpoint").write_bytes(starts)
    found = exits(capsys, tmp_path)
    assert {code for code, _ in found.values()} == {1}
    assert all("12 records, offsets 0..12" in found[command][1] for command in ("preflight", "recover"))
