"""Nothing that stands inside of a damaged or torn compressed message of v0 or v1 is read as a message of the log.

No checksum covers the offset of a message. Compressors store bytes as they are if they do not repeat, so an inner
message may stand in the file with a right checksum, and with an offset that is relative, or bytes of the compressor.
"""

import warnings
import zlib

import builder
import cramjam
import golden_sets
import numpy as np
import pytest
from effort import THOROUGH, examples

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import CorruptionWarning, Reason

SNAPPY, LZ4, RAW_SNAPPY = 2, 3, 9
"""Codecs; the last is snappy without the frame of Java's library, as librdkafka writes it."""


def wrapper(magic, codec, records):
    """A compressed message; offsets inside count from the first one in v1."""
    first = records[0][0]
    inner = [builder.message(o - first * magic, k, v, magic=magic, timestamp=10**12 + o) for o, k, v in records]
    payload = bytes(cramjam.snappy.compress_raw(b"".join(inner))) if codec == RAW_SNAPPY else None
    codec = SNAPPY if codec == RAW_SNAPPY else codec
    return builder.wrapper(inner, offset=records[-1][0], magic=magic, codec=codec, payload=payload)


def made(rng, codecs=(1, SNAPPY, LZ4, RAW_SNAPPY)):
    """A segment of messages of one version, compressed by one codec or not at all; its records and boundaries."""
    magic, codec = int(rng.integers(2)), int(rng.choice([1, SNAPPY, LZ4, RAW_SNAPPY]))
    is_mixed, is_compacted, is_random = rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.8
    offset = base = int(rng.choice([0, 0, 3, 1000, 2**33]))
    data, records, ends = b"", [], [0]
    for _ in range(int(rng.integers(1, 8))):
        batch = []
        for _ in range(int(rng.integers(1, 9))):
            value = rng.bytes(int(rng.integers(60))) if is_random else b"v" * int(rng.integers(60))
            batch.append((offset, rng.bytes(8) if rng.random() < 0.5 else None, value))
            offset += 1 if not is_compacted or rng.random() < 0.5 else int(rng.integers(2, 9))
        records += batch
        if is_mixed and rng.random() < 0.6:
            data += b"".join(builder.message(o, k, v, magic=magic, timestamp=10**12 + o) for o, k, v in batch)
        else:
            data += wrapper(magic, codec, batch)
        ends.append(len(data))
    return base, data, records, ends


def flip(rng, data):
    offsets = {at for start, _ in builder.batch_positions(bytes(data)) for at in range(start, start + 8)}
    for at in rng.integers(len(data), size=int(rng.integers(1, 4))).tolist():
        if at not in offsets:  # no checksum covers these: nothing shows
            data[at] ^= 1 << int(rng.integers(8))


def size(rng, data):
    start = int(rng.choice([start for start, _ in builder.batch_positions(bytes(data))]))
    data[start + int(rng.integers(8, 12))] ^= 1 << int(rng.integers(8))


def block(rng, data):
    start = int(rng.integers(len(data)))
    n = min(int(rng.integers(9, 200)), len(data) - start)
    data[start : start + n] = bytes(n) if rng.random() < 0.5 else rng.bytes(n)


def missing(rng, data):
    start = int(rng.integers(len(data)))
    del data[start : start + int(rng.integers(1, 100))]


def inserted(rng, data):
    start = int(rng.integers(len(data)))
    data[start:start] = rng.bytes(int(rng.integers(1, 100)))


def cut(rng, data):
    del data[int(rng.integers(len(data))) :]


DAMAGES = (flip, size, block, missing, inserted, cut)


def read(path, **options):
    """The records that a read gives which skips damage, and its findings."""
    scan = kafkalog.scan(path, columns=["offset", "key", "value"], on_corruption="skip", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorruptionWarning)
        table = scan.to_table()
    columns = (table[name].to_pylist() for name in ("offset", "key", "value"))
    return list(zip(*columns, strict=True)), scan.findings


@pytest.fixture
def partition(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    return directory


def test_no_damage_makes_a_record_that_nobody_wrote(partition):
    n_read = 0
    for number in range(examples(1500)):
        rng = np.random.default_rng([20261126, number])
        base, data, records, _ = made(rng)
        damaged, damage = bytearray(data), DAMAGES[number % len(DAMAGES)]
        damage(rng, damaged)
        log = partition / kf.segment_file_name(base)
        log.write_bytes(damaged)
        given, _ = read(partition, threads=1)
        log.unlink()
        assert set(given) <= set(records), (number, damage.__name__)
        n_read += len(given)
    assert n_read > 5 * examples(1500)


@pytest.mark.parametrize("codec", [1, SNAPPY, LZ4, RAW_SNAPPY])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_message_that_is_cut_off_is_a_torn_tail(partition, magic, codec):
    rng = np.random.default_rng([magic, codec])
    sets = [[(3 * n + i, rng.bytes(8), rng.bytes(int(rng.integers(50)))) for i in range(3)] for n in range(3)]
    whole = [wrapper(magic, codec, one) for one in sets]
    for n_left in range(1, len(whole[2]), 1 if THOROUGH else 7):
        (partition / kf.segment_file_name(0)).write_bytes(b"".join(whole)[: -len(whole[2])] + whole[2][:n_left])
        assert kafkalog.read_table(partition, columns=["offset"])["offset"].to_pylist() == list(range(6))
        given, findings = read(partition, threads=1)
        assert given == [*sets[0], *sets[1]]
        assert [(one.reason, one.damage) for one in findings] == [(Reason.PARTIAL_TAIL, False)]


def test_every_command_sees_the_same_torn_tail(partition, tmp_path):
    """An inner message of the torn one has a right checksum, and a far offset, which are bytes of the compressor."""
    log = partition / kf.segment_file_name(0)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        sets = [[(2 * n + i, None, rng.bytes(int(rng.integers(3, 50)))) for i in range(2)] for n in range(3)]
        data = b"".join(wrapper(0, LZ4, one) for one in sets)
        start = len(data) - len(wrapper(0, LZ4, sets[2]))
        if any(is_intact(data[:-9], at) for at in range(start + 1, len(data))):
            break
    log.write_bytes(data[:-9])
    assert any(is_intact(data[:-9], at) for at in range(start + 1, len(data)))
    expected = [*sets[0], *sets[1]]
    for options in ({"threads": 3}, {"memory_map": True}, {"memory_map": False, "threads": 2}, {"check_crcs": False}):
        assert read(partition, **options)[0] == expected
    assert kafkalog.open(partition).log_end_offset == 4
    assert kafkalog.verify(partition, deep=True).ok
    report = kafkalog.salvage(partition, output=tmp_path / "saved")
    assert [(one.reason, one.position) for one in report.findings.rows] == [(Reason.PARTIAL_TAIL, start)]
    assert read(tmp_path / "saved" / "t-0")[0] == expected
    kafkalog.convert(partition, tmp_path / "converted", on_corruption="skip")
    assert read(tmp_path / "converted" / "t-0")[0] == expected
    kafkalog.recover(partition, in_place=True, backup=tmp_path / "backup")
    assert log.stat().st_size == start
    assert read(partition) == (expected, [])


def is_intact(data, position):
    """Whether a message with a right checksum begins at a position."""
    size = int.from_bytes(data[position + 8 : position + 12], "big")
    body = data[position + 16 : position + 12 + size]
    return 14 <= size == len(body) + 4 and zlib.crc32(body) == int.from_bytes(
        data[position + 12 : position + 16], "big"
    )


BROKER_LOGS = ["v0-lz4", "v0-snappy", "v0-gzip", "v0-mixcodec", "v0-rdk", "v0-big", "v0v1v2-mixed"]
BROKER_LOGS += ["v1-lz4", "v1-snappy", "v1-mixcodec", "v1-rdk", "v1-compact-gzip"]


@pytest.mark.parametrize("name", BROKER_LOGS)
def test_damaged_logs_of_a_broker_give_what_it_wrote(partition, name):
    for number, original in enumerate(golden_sets.log_files(golden_sets.partitions("k28")[f"p-{name}-0"])):
        records, _ = read(original)
        data = original.read_bytes()
        log = partition / original.name
        for trial in range(examples(60)):
            rng = np.random.default_rng([number, trial])
            damaged, damage = bytearray(data), DAMAGES[trial % len(DAMAGES)]
            damage(rng, damaged)
            log.write_bytes(damaged)
            given, findings = read(log)
            assert set(given) <= set(records), (trial, damage.__name__)
            if damage is cut:
                assert given == records[: len(given)], trial
                assert [one.reason for one in findings if one.damage] == [], trial
        log.unlink(missing_ok=True)
