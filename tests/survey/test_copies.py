"""A copy of a batch is returned once and loses nothing, wherever the original is, and for every command."""

import random

import builder
import pytest
from effort import trials
from loss_reports import counts, of_convert, of_merge, of_salvage, of_scan, of_verify, ranges

import kafkalog
from kafkalog.format import segment_file_name


def v2(base):
    return builder.batch_v2(
        [builder.record_v2(i, 0, b"k", b"%d" % (base + i) * 20) for i in range(3)], base_offset=base
    )


def legacy(base):
    return b"".join(builder.message(base + i, b"k", b"%d" % (base + i) * 20, magic=1) for i in range(3))


def wrapped(base):
    inner = [builder.message(i, b"k", b"%d" % (base + i) * 20, magic=1) for i in range(3)]
    return builder.wrapper(inner, offset=base + 2, magic=1, codec=builder.GZIP)


KINDS = {"v2": v2, "legacy": legacy, "compressed messages": wrapped}
CASES = {
    # batches of each segment by their base offsets, negative for a damaged one; offsets that are lost
    "the last batch": ({0: (0, 3, 6, 6)}, []),
    "the last batch, twice": ({0: (0, 3, 6, 6, 6)}, []),
    "a batch after itself": ({0: (0, 3, 3, 6)}, []),
    "a batch in the middle": ({0: (0, 3, 6, 9, 3, 12, 15)}, []),
    "an early batch at the end": ({0: (0, 3, 6, 9, 3)}, []),
    "two batches at the end": ({0: (0, 3, 6, 9, 3, 6)}, []),
    "the whole segment": ({0: (0, 3, 6, 0, 3, 6)}, []),
    "the whole segment three times": ({0: (0, 3, 6) * 3}, []),
    "the whole first segment": ({0: (0, 3, 6, 0, 3, 6), 9: (9, 12)}, []),
    "the whole last segment": ({0: (0, 3, 6), 9: (9, 12, 9, 12)}, []),
    "first batches of the next segment": ({0: (0, 3, 6, 9), 9: (9, 12, 15)}, []),
    "first two batches of the next segment": ({0: (0, 3, 6, 9, 12), 9: (9, 12, 15)}, []),
    "all batches of the next segment": ({0: (0, 3, 6, 9, 12, 15), 9: (9, 12, 15), 18: (18,)}, []),
    "all batches of the last segment": ({0: (0, 3, 6, 9, 12, 15), 9: (9, 12, 15)}, []),
    "last batches of the segment before": ({0: (0, 3, 6), 9: (6, 9, 12)}, []),
    "last two batches of the segment before": ({0: (0, 3, 6), 9: (3, 6, 9, 12)}, []),
    "a batch of the first segment at the end": ({0: (0, 3, 6), 9: (9, 12), 15: (15, 18, 3)}, []),
    "a batch of the segment before at the end": ({0: (0, 3, 6), 9: (9, 12, 6)}, []),
    "of a damaged batch, at the end of the segment before": ({0: (0, 3, 6, 9), 9: (-9, 12, 15)}, []),
    "of two batches, one of them damaged": ({0: (0, 3, 6, 9, 12), 9: (9, -12, 15)}, []),
    "after a lost batch": ({0: (0, 3, 9, 9, 12), 15: (15, 18)}, None),
    "next to damage": ({0: (0, 3, 3, -6, 9)}, [(6, 9, 3)]),
    "next to damage at the end": ({0: (0, 3, 6, -9, 3)}, None),
    "of a segment that begins with copies": ({0: (0, 3, 6), 9: (6, 9, 12, 15, 12, 15)}, []),
    "of a segment that begins with damage": ({0: (0, 3, 6), 9: (-9, 12, 15, 18, 12, 15, 18)}, [(9, 12, 3)]),
    "among other copies": ({0: (0, 3, 6, 9), 12: (3, 12, 15, 3, 18, 12, 15, 18), 21: (15, 21)}, []),
}


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
def test_damage_whose_size_leads_into_copies_returns_nothing_twice(tmp_path):
    """The damaged batch before the copies proves no offset; the one before it does."""
    path = tmp_path / segment_file_name(0)
    path.write_bytes(b"".join([*map(v2, (0, 3, 6, 9)), damaged(v2(12)), b"?" * 70, v2(15), v2(6)]))
    assert of_scan(path).kept == [*range(12), 15, 16, 17]
    path.write_bytes(b"".join([v2(0), v2(3), v2(6), damaged(v2(9)), b"?" * 70, damaged(v2(12)), v2(0), v2(3)]))
    assert of_scan(path).kept == [*range(9)]


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize(
    ("bases", "kept"),
    [
        # x: a damaged batch
        ("x0 3 6 9 12 15 0 3 6", "3 6 9 12 15 0"),
        ("0 x3 6 9 12 15 18 3 6 9", "0 6 9 12 15 18 3"),
        ("0 3 x6 9 12 6 9", "0 3 9 12 6"),
        ("x0 3 6 9 12 0 3 6 9 12 15", "0 3 6 9 12 15"),
        ("0 x3 6 9 12 15 18 3 6 9 21 24", "0 6 9 12 15 18 3 21 24"),
        ("0 x3 6 9 12 15 3 6 18 21", "0 6 9 12 15 3 18 21"),
        ("0 x3 6 9 12 15 18 3 21 24", "0 6 9 12 15 18 3 21 24"),
    ],
)
def test_a_copied_range_whose_first_batch_is_damaged_before_returns_nothing_twice_and_loses_it_once(
    tmp_path, bases, kept
):
    path = tmp_path / segment_file_name(0)
    batches = [damaged(v2(int(base[1:]))) if base.startswith("x") else v2(int(base)) for base in bases.split()]
    path.write_bytes(b"".join(batches))
    found = of_scan(path)
    assert found.kept == [offset for base in map(int, kept.split()) for offset in range(base, base + 3)]
    lost = int(bases[bases.index("x") + 1 :].split()[0])
    assert counts(found.losses) in ([], [(lost, lost + 3, 3)])
    scan = kafkalog.scan(path, on_corruption="skip")
    scan.count_rows()
    assert min(one.n_records for one in scan.findings) == 0
    assert sum(one.n_records for one in scan.losses.values()) == sum(one.n_records for one in found.losses)


def damaged(data):
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


def _trials():
    """All cases in all formats; a plain run has each case in one format, and each format in a third of the cases."""
    for number, case in enumerate(CASES):
        for which, kind in enumerate(KINDS):
            yield pytest.param(case, kind, marks=() if number % len(KINDS) == which else pytest.mark.slow)


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize(("case", "kind"), list(_trials()))
def test_a_copy_is_returned_once_and_loses_nothing(tmp_path, kind, case):
    segments, lost = CASES[case]
    root = tmp_path / "logs"
    (root / "t-0").mkdir(parents=True)
    gone = set()
    for base, batches in segments.items():
        data = b"".join(KINDS[kind](one) if one >= 0 else damaged(KINDS[kind](-one)) for one in batches)
        (root / "t-0" / segment_file_name(base)).write_bytes(data)
        # of single messages, the last of three is damaged
        gone |= {-one + i for one in batches if one < 0 for i in ((2,) if kind == "legacy" else range(3))}
    readable = {abs(one) + i for batches in segments.values() for one in batches for i in range(3)} - gone
    readable |= {one + i for batches in segments.values() for one in batches if one >= 0 for i in range(3)}
    if kind == "legacy" and lost:
        lost = [(end - 1, end, 1) for _, end, _ in lost]
    reports = {
        "verify": of_verify(root),
        "salvage": of_salvage(root),
        "merge": of_merge(root),
        "scan": of_scan(root),
        "convert": of_convert(root),
    }
    if lost is None:
        lost = counts(reports["verify"].losses)
    assert {name: counts(one.losses) for name, one in reports.items()} == dict.fromkeys(reports, lost)
    kept = sorted(readable)
    assert {name: reports[name].kept for name in ("scan", "salvage", "merge")} == dict.fromkeys(
        ("scan", "salvage", "merge"), kept
    )
    assert reports["convert"].kept == len(kept)


def with_size(data, size):
    """A batch with another size field, which no checksum covers."""
    return data[:8] + size.to_bytes(4, "big") + data[12:]


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [8000, 2**28, 2**31 + 40])
def test_a_last_batch_whose_size_alone_is_wrong_is_lost_and_a_copy_of_one_loses_nothing(tmp_path, kind, size):
    """Its checksum is right, so no write was torn there: a broker cuts it off, and says nothing."""
    make = KINDS[kind]
    last = with_size(make(6)[: len(make(6)) // (3 if kind == "legacy" else 1)], size)
    reports = {}
    for name, batches in (("lost", [make(0), make(3), last]), ("copy", [make(0), make(3), make(6), make(3), last])):
        root = tmp_path / name / "logs"
        (root / "t-0").mkdir(parents=True)
        (root / "t-0" / segment_file_name(0)).write_bytes(b"".join(batches))
        commands = (of_verify, of_scan, of_salvage, of_merge, of_convert)
        reports[name] = [[one[:2] for one in ranges(command(root).losses)] for command in commands]
        assert not kafkalog.verify(root).ok
    assert reports == {"lost": [[(6, 9 if kind != "legacy" else 7)]] * 5, "copy": [[]] * 5}


def small_log(root, rng):
    """A log of a few batches, some of them twice: intact copies before the originals, or after them and one damaged.

    Returns the number of its records.
    """
    n, size = rng.randrange(4, 12), rng.choice([1, 3])
    batches = [
        builder.batch_v2(
            [builder.record_v2(i, 0, b"k", b"%d" % (size * number + i) * 8) for i in range(size)],
            base_offset=size * number,
        )
        for number in range(n)
    ]
    first_of_second = rng.choice([n, rng.randrange(1, n)])
    segments = [batches[:first_of_second], batches[first_of_second:]]
    copied = segments[rng.randrange(2)] or segments[0]
    begin = rng.randrange(len(copied))
    end = min(len(copied), begin + rng.choice([1, 2, 3, len(copied)]))
    is_ahead = rng.random() < 0.3
    at = rng.randrange(begin + 1) if is_ahead else rng.randrange(end, len(copied) + 1)
    copied[at:at] = copied[begin:end]
    if not is_ahead:
        at, kind = rng.randrange(len(copied)), rng.choice(["size", "record", "garbage"])
        data = bytearray(copied[at])
        if kind == "garbage":
            copied.insert(at, rng.randbytes(rng.choice([9, 70])))
        else:
            data[rng.randrange(8, 12) if kind == "size" else rng.randrange(62, len(data))] ^= 1 << rng.randrange(8)
            copied[at] = bytes(data)
    (root / "t-0").mkdir(parents=True)
    for base, parts in zip((0, first_of_second * size), segments, strict=True):
        if parts:
            (root / "t-0" / segment_file_name(base)).write_bytes(b"".join(parts))
    return n * size


FOUND = (13, 147, 158, 218, 261, 268, 326, 384, 861, 978, 1169)
"""Seeds of damage right next to copies about which readers and salvage once differed."""


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("seed", sorted({*range(min(trials(5, 200), 200)), *FOUND}))
def test_what_is_returned_is_not_lost_and_all_else_is(tmp_path, seed):
    n = small_log(tmp_path / "logs", random.Random(seed))
    reports = {command.__name__: command(tmp_path / "logs") for command in (of_verify, of_scan, of_salvage, of_merge)}
    losses = ranges(reports["of_verify"].losses)
    assert {name: ranges(one.losses) for name, one in reports.items()} == dict.fromkeys(reports, losses)
    lost = {offset for first, end, *_ in losses for offset in range(first, n if end is None else end)}
    for name in ("of_scan", "of_salvage", "of_merge"):
        kept = reports[name].kept
        assert len(kept) == len({*kept}), name
        assert {*kept} <= {*range(n)}, name
        assert {*kept} | lost >= {*range(n)}, name
        assert not {*kept} & lost, name
