"""Filling: at every level, in every form and with every decoder what the exact walk gives, and nothing it refuses."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import builder
import numpy as np
import pytest
import strategies
from effort import counted, examples, fuzz_inputs, thinned
from fuzzing import LIMITS, SEED
from guard import Guard, guarded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutants import LEVELS, seeds

from kafkalog import format as kf
from kafkalog._kernels import fill as kernels
from kafkalog.errors import KafkalogError, Limits
from kafkalog.interchange.arrow_output import ArrowWriter, form_needed, record_schema
from kafkalog.records.codecs import Arena, Compression, decompress_into
from kafkalog.records.columns import ALL_COLUMNS
from kafkalog.records.compress import compressor
from kafkalog.records.decode import decode
from kafkalog.records.gathering import GatheredRecords
from kafkalog.records.header_walk import walk
from kafkalog.records.readers import record_windows
from kafkalog.records.readers.batch_reader import ALL_OFFSETS, walk_with
from kafkalog.records.readers.record_reader import RecordReader
from kafkalog.records.readers.record_windows import WindowOptions
from kafkalog.records.selection import Selection
from kafkalog.records.spans import new_codecs
from kafkalog.storage.files import open_source
from kafkalog.storage.source import BufferSource

CODECS = [kf.Codec.GZIP, kf.Codec.SNAPPY, kf.Codec.LZ4, kf.Codec.ZSTD]


class TakesAll:
    """A predicate that is true of every record: with it records are walked to spans."""

    reads_headers = reads_derived = False

    def batch_mask(self, batches):
        return None

    def narrow(self, spans, mask, derived):
        return []


FILLED = Selection(include_control=True)
EXACT = Selection(include_control=True, predicates=(TakesAll(),))
DATA = Selection()
EXACT_DATA = Selection(predicates=(TakesAll(),))


@pytest.fixture(params=range(len(kernels.LEVELS)), ids=kernels.LEVELS)
def _level(request):
    if kernels.use_level(request.param) != kernels.LEVELS[request.param]:
        pytest.skip("this machine cannot run it")
    yield
    kernels.use_level(len(kernels.LEVELS) - 1)


def outcome(data, selection, **options):
    """Rows batch by batch, and what is wrong with those that are bad."""
    found = []
    try:
        for window in walk(BufferSource(data), limits=LIMITS):
            first = 0
            while first < len(window.batches):
                done = decode(window, ALL_COLUMNS, first=first, selection=selection, limits=LIMITS, **options)
                assert done.n_batches or done.error is not None
                if done.columns is not None:
                    found += rows(done.columns)
                first += done.n_batches
                if done.error is not None:
                    found.append((done.error.reason, done.error.position, done.error.base_offset, done.error.detail))
                    first += 1
    except KafkalogError as error:
        found.append((error.reason, error.position))
    return found


def outcome_read(of, *, memory_map=False, **options):
    """The same of a file, or of memory, whose good batches are read and decoded in one call."""
    found = []
    ahead = {name: options.pop(name) for name in ("submit", "n_ahead", "hints") if name in options}
    every = window_options(**options)
    check_crcs = every.check_crcs
    with open_source(of, memory_map=memory_map) if isinstance(of, Path) else BufferSource(guarded(of)) as source:
        reader = RecordReader(every, **ahead)
        try:
            for window in walk_with(reader, source, limits=LIMITS):
                if window.records is not None:
                    found += rows(window.records)
                    continue
                first = 0
                while first < len(window.batches):
                    done = decode(
                        window, ALL_COLUMNS, first=first, selection=DATA, limits=LIMITS, check_crcs=check_crcs
                    )
                    if done.columns is not None:
                        found += rows(done.columns)
                    first += done.n_batches
                    if done.error is not None:
                        error = done.error
                        found.append((error.reason, error.position, error.base_offset, error.detail))
                        first += 1
        except KafkalogError as error:
            found.append((error.reason, error.position))
    return found


def window_options(**options):
    every = {"names": ALL_COLUMNS, "offsets": ALL_OFFSETS, "form": "arrow", "check_crcs": True, "limits": LIMITS}
    return WindowOptions(**{**every, "window_bytes": 2**22, **options})


def rows(columns):
    lists = [column.tolist() if isinstance(column, np.ndarray) else column.to_pylist() for column in columns.values()]
    return list(zip(*lists, strict=True))


@pytest.mark.usefixtures("_level")
@settings(max_examples=examples(150))
@given(strategies.segments())
def test_any_log_is_filled_as_it_is_walked(segment):
    expected = outcome(segment.data, EXACT)
    for form in ("numpy", "arrow"):
        assert outcome(guarded(segment.data), FILLED, form=form) == expected


@pytest.mark.usefixtures("_level")
def test_every_bit_of_a_number_counts_at_every_level():
    numbers = sorted({sign * (2**bit - less) for bit in range(63) for sign in (1, -1) for less in (0, 1)})
    sizes = [2**bit - less for bit in range(16) for less in (0, 1)]
    groups = [
        [builder.record_v2(i, number, b"k", b"v") for i, number in enumerate(numbers)],
        [builder.record_v2(number, 0, b"k", b"v") for number in numbers if 0 <= number < 2**31],
        [builder.record_v2(i, i, b"k" * size, b"v") for i, size in enumerate(sizes)],
        [builder.record_v2(i, i, b"k", b"v" * size) for i, size in enumerate(sizes)],
    ]
    for records in groups:
        data = builder.batch_v2(records)
        expected = outcome(data, EXACT)
        assert len(expected) == len(records)
        for form in ("numpy", "arrow"):
            assert outcome(guarded(data), FILLED, form=form) == expected


@pytest.mark.usefixtures("_level")
@pytest.mark.parametrize("form", ["numpy", "arrow"])
@pytest.mark.parametrize("mixed", thinned([[0, 1, 17], range(10), range(130), range(300)], 2), ids=len)
def test_strings_of_even_and_of_mixed_sizes_are_copied_alike(mixed, form):
    most = max(mixed)
    rng = np.random.default_rng([SEED, 19, most])
    letters = rng.bytes(2 * most)
    sizes = rng.choice(mixed, 5400)
    sizes[1800:3600] = most // 2
    data = b""
    for first in range(0, len(sizes), 90):
        records = []
        for i, size in enumerate(sizes[first : first + 90].tolist()):
            key, value = (None if rng.random() < 0.01 else letters[at : at + size] for at in (i % most, 7 % most))
            records.append(builder.record_v2(i, key=key, value=value))
        data += builder.batch_v2(records, base_offset=first)
    expected = outcome(data, EXACT)
    assert len(expected) == len(sizes)
    assert outcome(guarded(data), FILLED, form=form) == expected


def _varint_of(value, width):
    """A number that is 0 or more in more bytes than it needs."""
    raw = 2 * value
    return bytes(raw >> 7 * i & 0x7F | 0x80 * (i < width - 1) for i in range(width))


@pytest.mark.usefixtures("_level")
@pytest.mark.parametrize(("field", "most"), [(0, 5), (1, 10), (2, 5), (3, 5), (4, 5), (5, 5)])
def test_a_number_of_too_many_bytes_is_refused_at_every_level(field, most):
    for width in (most, most + 1):
        widths = [1] * 6
        widths[field] = width
        length, stamp, offset, key, value, headers = widths
        body = b"\0" + _varint_of(0, stamp) + _varint_of(0, offset) + _varint_of(1, key) + b"k"
        body += _varint_of(1, value) + b"v" + _varint_of(0, headers)
        data = builder.batch_v2([_varint_of(len(body), length) + body, builder.record_v2(1, value=bytes(100))])
        expected = outcome(data, EXACT)
        assert len(expected) == (2 if width == most else 1)
        assert outcome(guarded(data), FILLED) == expected


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from([61, 200, 2**18]), st.sampled_from([2**7, 2**22]), st.booleans())
def test_a_file_is_read_and_filled_as_its_windows_are_walked(tmp_path, data, read_bytes, window_bytes, check_crcs):
    segment = data.draw(strategies.segments())
    content = data.draw(strategies.damaged(segment)).data if data.draw(st.booleans()) else segment.data
    path = tmp_path / "0.log"
    path.write_bytes(content)
    expected = outcome(content, DATA, check_crcs=check_crcs)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(record_windows, "_READ_BYTES", read_bytes)
        for memory_map in (False, True):
            options = {"window_bytes": window_bytes, "check_crcs": check_crcs, "memory_map": memory_map}
            assert outcome_read(path, **options) == expected
        offsets = sorted(data.draw(st.tuples(st.integers(-1, 60), st.integers(-1, 60))))
        assert outcome_read(path, offsets=tuple(offsets), check_crcs=check_crcs) == expected
        with ThreadPoolExecutor(2) as pool:
            ahead = {"submit": lambda call: pool.submit(call).result, "n_ahead": 2}
            hints = np.array(sorted(data.draw(st.sets(st.integers(0, len(content)), max_size=8))), np.int64)
            for memory_map in (False, True):
                options = {"window_bytes": window_bytes, "check_crcs": check_crcs, "memory_map": memory_map, **ahead}
                assert outcome_read(path, **options) == expected
                assert outcome_read(path, hints=lambda: hints, **options) == expected


def _message_sets(magic):
    """Plain and compressed messages of one format, and a batch of v2 behind them."""
    parts = []
    for n, codec in enumerate((0, kf.Codec.GZIP, kf.Codec.SNAPPY, kf.Codec.LZ4)):
        first = 100 * n + 7
        parts += [builder.message(first, None, b"v" * n, magic=magic, timestamp=5)]
        if codec:
            messages = [
                builder.message(i if magic else first + 1 + i, b"k" * i, None, magic=magic, timestamp=i)
                for i in range(30)
            ]
            last = {"offset": first + 30, "magic": magic, "codec": codec}
            parts += [builder.wrapper(messages, **last, timestamp=9, log_append_time=magic == 1 and n == 2)]
    return b"".join((*parts, builder.batch_v2([builder.record_v2(0, 0, b"k", b"v")], base_offset=10_000)))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("form", ["numpy", "arrow", "views"])
def test_old_messages_are_filled_in_one_call(magic, form):
    data = _message_sets(magic)
    reader, source = RecordReader(window_options(form=form)), BufferSource(guarded(data))
    done, position, last_offset = 0, 0, -1
    while (window := reader.read(source, position, last_offset)) is not None:
        assert window.records is not None
        done += window.records.n_records
        position, last_offset = int(window.batches.next_position[-1]), int(window.batches.last_offset[-1])
    # LZ4 in v0 has a checksum of its own
    assert (done, position == len(data)) == ((95, True) if magic else (64, False))
    if form != "views":
        assert outcome_read(data, form=form) == outcome(data, EXACT_DATA)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_key_that_leaves_no_room_for_the_size_of_a_value_ends_before_it(magic):
    message = builder.message(0, b"key", b"v", magic=magic)
    at = 18 if magic == 0 else 26
    for size in range(3, 10):
        data = builder.fix_crc(message[:at] + size.to_bytes(4, "big") + message[at + 4 :])
        found = outcome_read(data)  # in memory that ends with the message
        assert found == outcome(data, EXACT_DATA)
        assert size == 3 or isinstance(found[0][0], str)


@pytest.mark.parametrize(
    ("offsets", "filled"), [((3, 9), range(3, 9)), ((3, 8), range(3, 6)), ((4, 12), []), ((0, 6), range(3, 6))]
)
def test_a_batch_is_filled_where_all_its_offsets_are_wanted(offsets, filled):
    batches = [builder.batch_v2([builder.record_v2(i) for i in range(3)], base_offset=3 * n) for n in range(4)]
    reader = RecordReader(window_options(offsets=offsets))
    window = reader.read(BufferSource(guarded(b"".join(batches))), len(batches[0]), 2)
    records = None if window is None else window.records
    assert ([] if records is None else records.offset.tolist()) == list(filled)


@settings(max_examples=examples(60))
@given(strategies.segments(), st.integers(1, 9))
def test_records_gathered_part_by_part_are_those_concatenated(segment, step):
    parts = []
    for window in walk(BufferSource(segment.data)):
        first = 0
        while first < len(window.batches):
            done = decode(window, ALL_COLUMNS, first=first, stop=min(first + step, len(window.batches)))
            first += done.n_batches
            if done.columns is not None:
                parts += [done.columns, done.columns.slice(0, 1), done.columns.slice(1, 1)]
    whole = GatheredRecords(ALL_COLUMNS)
    for part in parts:
        whole.add(part)
    gathered = whole.finish()
    assert list(gathered) == list(ALL_COLUMNS)
    assert rows(gathered) == [row for part in parts for row in rows(part)]


@settings(max_examples=examples(100))
@given(strategies.segments())
def test_views_show_what_copies_hold(segment):
    import pyarrow as pa

    tables = []
    for kind in (pa.binary(), pa.binary_view(), pa.large_binary()):
        schema = record_schema(["offset", "key", "value", "headers"], kind)
        names = schema.names
        writer, found = ArrowWriter(schema), []
        for window in walk(BufferSource(segment.data)):
            first = 0
            while first < len(window.batches):
                done = decode(window, names, first=first, selection=FILLED, form=form_needed(schema))
                first += done.n_batches
                if done.columns is not None:
                    batch = writer.batch(done.columns)
                    batch.validate(full=True)
                    found += batch.to_pylist()
        tables.append(found)
    assert tables[0] == tables[1] == tables[2]


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("_level", "kind"), thinned(product(range(len(kernels.LEVELS)), sorted(LEVELS)), 4), indirect=["_level"]
)
def test_what_is_filled_of_damaged_batches_is_what_the_exact_walk_gives(_level, kind, tmp_path):
    make, share = LEVELS[kind]
    rng = np.random.default_rng([SEED, 16, len(kind)])
    n = max(2, int(fuzz_inputs() * share) // len(seeds()) // 16)
    n_damaged = 0
    for seed in seeds():
        for i, data in enumerate(counted(make(rng, seed, n))):
            check_crcs = i % 3 != 0
            expected = outcome(data, EXACT, check_crcs=check_crcs)
            n_damaged += any(isinstance(row[0], str) for row in expected)
            assert outcome(guarded(data), FILLED, check_crcs=check_crcs) == expected
            if i % 4 == 0:
                (path := tmp_path / "0.log").write_bytes(data)
                expected = outcome(data, EXACT_DATA, check_crcs=check_crcs)
                assert outcome_read(path, check_crcs=check_crcs) == expected
                assert outcome_read(data, check_crcs=check_crcs) == expected
    assert n_damaged


def in_a_thread(work):
    """What a call returns in a thread of its own, which makes decompressors of its own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("decoders", ["", "own", "python"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_decoder_gives_the_same_records(codec, decoders, monkeypatch):
    monkeypatch.setenv("KAFKALOG_DECODERS", decoders)
    data = b"".join(
        builder.batch_v2(
            [builder.record_v2(i, key=b"k%d" % i, value=bytes([i % 256]) * (i % 50)) for i in range(n)],
            base_offset=1000 * n,
            codec=codec,
        )
        for n in (1, 300, 7, 0, 2000)
    )
    expected = outcome(data, EXACT)
    for form in ("numpy", "arrow"):
        assert in_a_thread(lambda form=form: outcome(guarded(data), FILLED, form=form)) == expected


# --- decompressors ----------------------------------------------------------------------------------------------------

_room = Guard(2**20)
_LIMITS = Limits(max_decompressed_bytes=2**19)


def decompressed(codecs, codec, data, room):
    """What the kernel makes of a stream, in memory that ends where access ends."""
    to = _room.ending(bytes(room + kernels.PAD))
    n = codecs.decompress(codec, guarded(data), to)
    return to[:n].tobytes() if n >= 0 else n


def payloads():
    rng = np.random.default_rng([SEED, 17])
    words = [rng.bytes(int(size)) for size in rng.integers(1, 40, 60)]
    for size in (0, 1, 5, 11, 12, 13, 64, 200, 5000, 70_000, 200_000):
        yield rng.bytes(size)
        yield bytes(size)
        yield b"ab" * (size // 2)
        text = b"".join(words[i] for i in rng.integers(0, 60, size // 10 + 1))
        yield text[:size]


def codecs_for(codec):
    codecs = new_codecs()
    if not codecs.knows(codec):
        pytest.skip("no library for it here")
    return codecs


@pytest.mark.parametrize("codec", CODECS)
def test_payloads_come_back(codec):
    codecs = codecs_for(codec)
    for payload in payloads():
        stream = compressed(codec, payload)
        # a block of LZ4 may need as much as the frame allows
        room = (len(payload) // 2**16 + 1) * 2**16 if codec == kf.Codec.LZ4 else len(payload)
        expected = exact(codec, stream)
        found = decompressed(codecs, codec, stream, room)
        assert found == expected or (found == -1 and not payload)
        if payload and codec != kf.Codec.LZ4:
            assert decompressed(codecs, codec, stream, len(payload) - 1) == -2


def compressed(codec, payload):
    arena = Arena()
    compressor(Compression(codec))(arena, np.frombuffer(payload, np.uint8))
    return arena.data[: arena.used].tobytes()


def exact(codec, stream):
    arena = Arena()
    try:
        decompress_into(arena, codec, np.frombuffer(stream, np.uint8), magic=2, limits=_LIMITS)
    except KafkalogError:
        return None
    return arena.data[: arena.used].tobytes()


@pytest.mark.kernels
@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_stream_is_refused_or_gives_what_the_exact_decoder_gives(codec):
    codecs = codecs_for(codec)
    rng = np.random.default_rng([SEED, 18, codec])
    streams = [compressed(codec, payload) for payload in payloads() if len(payload) < 6000]
    n_accepted = n_refused = 0
    for i in counted(range(fuzz_inputs() // 2)):
        stream = bytearray(streams[i % len(streams)])
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(0, len(stream)))
            match int(rng.integers(0, 4)):
                case 0:
                    stream[at] = int(rng.integers(0, 256))
                case 1:
                    stream[at] ^= 1 << int(rng.integers(0, 8))
                case 2 if len(stream) > 2:
                    del stream[at : at + int(rng.integers(1, 9))]
                    stream = stream or bytearray(1)
                case _:
                    stream[at:at] = rng.bytes(int(rng.integers(1, 9)))
        found = decompressed(codecs, codec, bytes(stream), 2**17)
        if isinstance(found, bytes):
            n_accepted += 1
            assert found == exact(codec, bytes(stream)), stream.hex()
        else:
            n_refused += 1
    assert n_refused
    assert n_accepted or codec in (kf.Codec.GZIP,)


def test_a_zstd_block_of_more_than_its_window_is_not_taken_whatever_the_library():
    stream = bytes.fromhex("28b52ffd00184d00001000000100839a032c")
    assert exact(kf.Codec.ZSTD, stream) is None
    assert decompressed(new_codecs(), kf.Codec.ZSTD, stream, 2**17) in (-1, -2)
