"""Dumps are, line for line, those of Kafka's own tool; what it throws is an error, what is damaged a finding."""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import builder
import golden_sets
import numpy as np
import pytest
import strategies
from effort import examples
from guard import guarded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog._kernels import dump as kernels
from kafkalog.errors import CorruptionError, KafkalogError, Limits, Reason
from kafkalog.operations.dumping import control, logs, rows
from kafkalog.operations.dumping.report import MAX_PAIRS, Report
from kafkalog.records.decode import decode

ONE = builder.record_v2(0, 0, b"k", b"v")


class Golden(NamedTuple):
    """Dumps of one log dir by one release of the tool."""

    set_name: str
    archive: str
    folder: str
    dialect: str


GOLDEN = (
    Golden("k44", "clean", "dumps", "4.3"),
    Golden("k44", "unclean", "dumps_unclean", "4.3"),
    Golden("k44_extra", "clean", "dumps", "4.3"),
    Golden("k28", "clean", "dumps43", "4.3"),
    Golden("k28", "clean", "dumps28", "2.8"),
)
KINDS: dict[str, dict[str, Any]] = {
    "log.plain": {},
    "log.deep": {"print_data_log": True},
    "index": {},
    "index.sanity": {"index_sanity_check": True},
    "index.verify": {"verify_index_only": True},
    "timeindex": {},
    "timeindex.sanity": {"index_sanity_check": True},
    "timeindex.verify": {"verify_index_only": True},
    "txnindex": {},
    "snapshot": {},
    # the decoders of internal topics apart: what is printed of a record less its key and value
    "log.decoder": {"deep_iteration": True},
    "checkpoint": {"deep_iteration": True},
}
DECODED = ("log.decoder", "checkpoint")
N_DUMPS = 1125
LOG4J = re.compile(r"\[\d{4}-[^]]*\] INFO [^\n]*\n")
"""What 2.8's own logging put between, and once into, the lines."""


def dumped(path: str, **options: Any) -> list[str]:
    """The lines of one file, and one that begins with ``EXCEPTION`` where the tool throws."""
    lines = []
    try:
        lines.extend(kafkalog.dump(path, **options))
    except KafkalogError as error:
        lines.append(f"EXCEPTION {error}")
    return lines


def blocks(lines: list[str]) -> list[list[str]]:
    """Lists of mismatches; the tool prints those of several files in the order of a hash table."""
    found: list[list[str]] = []
    for line in lines:
        if not line.startswith(("  ", "Indexed offset")):
            found.append([])
        found[-1].append(line)
    return sorted(found)


def golden_case(golden: Golden, name: str, text: str) -> None:
    """One file of dumps equals ours."""
    kind = name.removesuffix(".txt")
    lines = LOG4J.sub("", text).split("\n")[:-1]
    paths = [line.removeprefix("Dumping ") for line in lines if line.startswith("Dumping ")]
    n_printed = next((n for n, line in enumerate(lines) if re.match(r"Mismatches|Found [^\d]|Non-consec", line)), None)
    printed, listed = lines[:n_printed], lines[n_printed:] if n_printed is not None else []
    options = {**KINDS[kind], "dialect": golden.dialect}
    ours = [line for path in paths for line in dumped(path, **options)]
    if kind in DECODED:
        printed = [re.sub(r"(headerKeys: \[[^]]*\])( key| payload): .*", r"\1", line) for line in printed]
    ours = ["EXCEPTION" if line.startswith("EXCEPTION") else line for line in ours]
    assert ours == ["EXCEPTION" if line.startswith("EXCEPTION") else line for line in printed]
    everything = kafkalog.dump(paths, keep_going=True, **options)
    for _ in everything.chunks():
        pass
    here = f"{os.getcwd()}/"
    assert blocks([line.replace(here, "") for line in everything.mismatches()]) == blocks(listed)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.folder + "-" + golden.set_name)
def test_every_dump_of_kafkas_tool_is_printed_again(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(golden_sets.unpacked(golden.set_name, golden.archive))
    files = sorted((golden_sets.unpacked(golden.set_name, "dumps") / golden.folder).rglob("*.txt"))
    assert len(files) > 20
    for file in files:
        golden_case(golden, file.name, file.read_bytes().decode())


def test_the_golden_dumps_are_all_there() -> None:
    files = [file for name in golden_sets.SETS for file in golden_sets.unpacked(name, "dumps").rglob("*.txt")]
    assert len(files) == N_DUMPS
    assert {file.stem for file in files} == set(KINDS)
    assert sum(b"\nEXCEPTION " in file.read_bytes() for file in files) == 7


# --- logs -------------------------------------------------------------------------------------------------------------


def write_log(folder: Path, data: bytes, base_offset: int = 0) -> str:
    path = folder / f"{base_offset:020d}.log"
    path.write_bytes(data)
    return str(path)


@pytest.fixture
def log(tmp_path: Path) -> Any:
    """Write a log, dump it: the lines behind the two that name it."""

    def call(data: bytes, **options: Any) -> list[str]:
        return dumped(write_log(tmp_path, data), **options)[2:]

    return call


def contents(line: str) -> str:
    return line.partition("headerKeys: [] ")[2]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"plain", "plain"),
        ("é€𐍈".encode(), "é€𐍈"),
        (b"a\xffb\xc3", "a�b�"),
        (b"\xe2\x82", "�"),
        (b"\xf0\x90\x8d", "�"),
        (b"\xf0\x80\x80\x80", "����"),
        (b"\xed\xa0\x80x", "�x"),
        (b"\xed\xa0", "�"),
        (b"\xc0\xaf", "��"),
        (b"\xf5\x80", "��"),
        (b"x" * 31 + "é".encode() + b"y" * 40, "x" * 31 + "é" + "y" * 40),
        (b"x" * 100 + b"\x80", "x" * 100 + "�"),
        (b"", ""),
    ],
)
def test_bytes_are_shown_as_java_shows_them(log: Any, value: bytes, shown: str) -> None:
    data = builder.batch_v2([builder.record_v2(0, 0, value, value)])
    assert contents(log(data, print_data_log=True)[1]) == f"key: {shown} payload: {shown}"


UTF8_PARTS = [b"a" * 9, b"\x80", b"\xc3\xa9", b"\xe2\x82", b"\xed\xa0", b"\xbf", b"\xf0\x9f", b"\xff"]


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(UTF8_PARTS)))
def test_any_bytes_are_shown_as_arrow_shows_them(parts: list[bytes]) -> None:
    from kafkalog.interchange.arrow_output import java_string

    value = b"".join(parts)
    data = np.frombuffer(builder.batch_v2([builder.record_v2(0, 0, None, value)]), np.uint8)
    text = printed(data)
    assert text.decode().split("payload: ")[1] == java_string(value) + "\n"


def printed(window: Any, options: int = 3) -> bytes:
    """What the kernel prints of a window, uncompressed batches only."""
    out, state = np.empty(2**16, np.uint8), np.zeros(kernels.STATE["size"], np.int64)
    state[kernels.STATE["previous"]] = -1
    room = np.empty((3, 64), np.int64)
    n = window.size
    _, n_bytes = kernels.dump_batches(window, 0, n, n, options, 0, 0, 100, out, state, room[0], room[1], room[2])
    return out[:n_bytes].tobytes()


@pytest.mark.parametrize(
    ("decoder", "shown"),
    [
        ("integer", "key: -2 payload: 1"),
        ("org.apache.kafka.tools.api.IntegerDecoder", "key: -2 payload: 1"),
        ("long", "key: -8589934589 payload: 4294967298"),
        ("string", "key: \ufffd\ufffd\ufffd\ufffe\0\0\0\3 payload: \0\0\0\1\0\0\0\2"),
    ],
)
def test_a_decoder_reads_numbers_and_implies_printing(log: Any, decoder: str, shown: str) -> None:
    data = builder.batch_v2([builder.record_v2(0, 0, struct.pack(">ii", -2, 3), struct.pack(">ii", 1, 2))])
    line = contents(log(data, key_decoder=decoder, value_decoder=decoder)[1])
    assert line == shown.replace("\ufffe", "\ufffd")


def test_what_is_too_short_for_its_decoder_is_misuse_not_damage(log: Any) -> None:
    data = builder.batch_v2([builder.record_v2(0, 0, b"abc", None)])
    with pytest.raises(ValueError, match="shorter than its decoder needs") as caught:
        log(data, key_decoder="integer")
    assert not isinstance(caught.value, KafkalogError)


def test_numbers_are_printed_to_their_last_digit(log: Any) -> None:
    numbers = [0, 9, 10, 99, 100, 99_999_999, 10**8, 10**16 - 1, 10**16, 2**63 - 1, -1, -(10**16), -(2**63)]
    data = b"".join(builder.batch_v2([ONE], max_timestamp=number, producer_id=number) for number in numbers)
    lines = log(data)
    assert [int(re.search(r" CreateTime: (\S+)", line)[1]) for line in lines] == numbers  # type: ignore[index]
    assert [int(re.search(r" producerId: (\S+)", line)[1]) for line in lines] == numbers  # type: ignore[index]


def test_a_batch_with_a_wrong_checksum_is_shown_with_its_records_and_is_a_finding(tmp_path: Path) -> None:
    good, bad = builder.batch_v2([ONE]), builder.batch_v2([ONE], base_offset=1, crc=7)
    dump = kafkalog.dump(write_log(tmp_path, good + bad), print_data_log=True)
    lines = list(dump)
    assert [line.endswith("isvalid: true") for line in lines[2::2]] == [True, False]
    assert lines[-1].startswith("| offset: 1 ")
    assert [(finding.reason, finding.position, finding.base_offset) for finding in dump.findings] == [
        (Reason.CRC_MISMATCH, len(good), 1)
    ]
    assert dump.n_damage == 1


@pytest.mark.parametrize("followed", [False, True])
def test_a_torn_tail_is_damage_only_where_another_segment_follows(tmp_path: Path, followed: bool) -> None:
    batch = builder.batch_v2([ONE])
    path = write_log(tmp_path, batch + batch[:40])
    if followed:
        write_log(tmp_path, b"", 5)
    dump = kafkalog.dump(path)
    assert list(dump)[-1] == f"Found 40 invalid bytes at the end of {'0' * 20}.log"
    assert [finding.reason for finding in dump.findings] == [Reason.PARTIAL_TAIL]
    assert dump.n_damage == followed


def test_a_size_that_hides_intact_batches_is_damage(tmp_path: Path) -> None:
    batches = [builder.batch_v2([ONE], base_offset=n) for n in range(3)]
    wrong = batches[1][:8] + struct.pack(">i", 10_000) + batches[1][12:]
    dump = kafkalog.dump(write_log(tmp_path, batches[0] + wrong + batches[2]))
    assert list(dump)[-1].startswith("Found ")
    assert [finding.reason for finding in dump.findings] == [Reason.SIZE_EXCEEDS_FILE]
    assert dump.n_damage == 1


def test_the_lines_before_an_error_are_printed_even_half_a_line(tmp_path: Path) -> None:
    control_value = builder.control_batch(builder.ABORT, value=b"\0")
    path = write_log(tmp_path, builder.batch_v2([ONE]) + control_value)
    lines = dumped(path, deep_iteration=True)
    assert lines[-2] == "| offset: 0 CreateTime: 0 keySize: 4 valueSize: 1 sequence: -1 headerKeys: []"
    assert "control_record" in lines[-1]
    unknown = builder.batch_v2([ONE], attributes=6)
    *_, half, error = dumped(write_log(tmp_path, unknown))
    assert half.endswith(" deleteHorizonMs: OptionalLong.empty")
    assert "unknown_codec" in error


def test_keep_going_takes_the_next_file_behind_an_error(tmp_path: Path) -> None:
    bad = write_log(tmp_path, bytes(100))
    good = write_log(tmp_path, builder.batch_v2([ONE], base_offset=7), 7)
    dump = kafkalog.dump([bad, good], keep_going=True)
    assert sum(line.startswith("Dumping ") for line in dump) == 2
    assert [finding.reason for finding in dump.findings] == [Reason.ZERO_FILL]
    with pytest.raises(CorruptionError):
        list(kafkalog.dump([bad, good]))


def test_max_bytes_ends_the_log_and_hides_what_is_behind(log: Any) -> None:
    batch = builder.batch_v2([ONE])
    data = b"".join(builder.batch_v2([ONE], base_offset=n) for n in range(3)) + b"torn"
    assert len(log(data, max_bytes=2 * len(batch) + 5)) == 2
    assert len(log(data)) == 4


@pytest.mark.parametrize("limits", [Limits(max_batch_bytes=100), Limits(max_decompressed_bytes=1000)])
def test_limits_hold(log: Any, limits: Limits) -> None:
    batch = builder.batch_v2([builder.record_v2(0, 0, None, b"x" * 5000)], codec=builder.GZIP)
    big = batch[:8] + struct.pack(">i", 2**21) + batch[12:] + bytes(2**21)
    data = big if limits.max_batch_bytes == 100 else batch
    assert "too_large" in log(data, print_data_log=True, limits=limits)[-1]


def test_a_record_larger_than_any_buffer_is_printed_whole(log: Any) -> None:
    value = b"ab" * 2**20
    for codec in (builder.NONE, builder.ZSTD):
        line = log(builder.batch_v2([builder.record_v2(0, 0, None, value)], codec=codec), print_data_log=True)[1]
        assert line.endswith("payload: " + value.decode())


OPTIONS = (
    {},
    {"deep_iteration": True},
    {"print_data_log": True},
    {"print_data_log": True, "skip_record_metadata": True},
    {"print_data_log": True, "dialect": "2.8"},
    {"print_data_log": True, "max_bytes": 200},
)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(segment=strategies.segments(), options=st.sampled_from(OPTIONS), data=st.data())
def test_text_does_not_depend_on_windows_and_buffers(
    segment: strategies.Segment, options: dict[str, Any], data: st.DataObject, tmp_path: Path
) -> None:
    broken = data.draw(st.one_of(st.none(), strategies.damaged(segment)))
    path = write_log(tmp_path, segment.data if broken is None else broken.data)
    expected = dumped(path, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "WINDOW_BYTES", data.draw(st.integers(1, 300)))
        patch.setattr(logs, "OUT_BYTES", data.draw(st.integers(1024, 3000)))
        patch.setattr(logs, "_PAIRS", data.draw(st.integers(1, 3)))
        patch.setattr(logs, "_INVALID", 1)
        assert dumped(path, **options) == expected


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(segment=strategies.segments(min_batches=1), options=st.sampled_from(OPTIONS), data=st.data())
def test_damage_gives_our_errors_out_of_guarded_memory(
    segment: strategies.Segment, options: dict[str, Any], data: st.DataObject, tmp_path: Path
) -> None:
    broken = data.draw(strategies.damaged(segment)).data
    for at_start in (False, True):
        printed(guarded(broken, at_start=at_start))
    path = write_log(tmp_path, broken)
    for _ in kafkalog.dump(path, keep_going=True, limits=Limits(max_decompressed_bytes=2**22), **options).rows():
        pass
    assert dumped(path, limits=Limits(max_decompressed_bytes=2**22), **options)


# --- objects ----------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(segment=strategies.segments())
def test_objects_hold_what_was_written_and_what_the_text_says(segment: strategies.Segment, tmp_path: Path) -> None:
    path = write_log(tmp_path, segment.data)
    dump = kafkalog.dump(path, print_data_log=True)
    rows = list(dump.rows())
    by_kind = Counter(row["kind"] for row in rows)
    lines = dumped(path, deep_iteration=True)
    assert by_kind["batch"] == sum(line.startswith(("baseOffset", "offset")) for line in lines)
    assert by_kind["record"] == sum(line.startswith("| offset") for line in lines)
    records = [row for row in rows if row["kind"] == "record"]
    assert [row["offset"] for row in records] == [record.offset for record in segment.records]
    assert [row["timestamp"] for row in records] == [
        -1 if record.timestamp is None else record.timestamp for record in segment.records
    ]
    data = [(row, record) for row, record in zip(records, segment.records, strict=True) if not record.is_control]
    assert [(row["key"], row["value"]) for row, _ in data] == [(record.key, record.value) for _, record in data]
    assert [[value for _, value in row["headers"]] for row, _ in data] == [
        [value for _, value in record.headers] for _, record in data
    ]
    assert [list(dump.mismatches())] == [list(text_report(path))]


def text_report(path: str) -> Iterator[str]:
    dump = kafkalog.dump(path, deep_iteration=True)
    for _ in dump.chunks():
        pass
    return dump.mismatches()


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(segment=strategies.segments(min_batches=1), options=st.sampled_from(OPTIONS), data=st.data())
def test_objects_do_not_depend_on_windows_and_on_batches_decoded_together(
    segment: strategies.Segment, options: dict[str, Any], data: st.DataObject, tmp_path: Path
) -> None:
    broken = data.draw(st.one_of(st.none(), strategies.damaged(segment)))
    path = write_log(tmp_path, segment.data if broken is None else broken.data)
    together = objects(path, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "WINDOW_BYTES", data.draw(st.sampled_from([1, 100, 300, 1000])))
        patch.setattr(rows, "_RECORDS_AT_A_TIME", 1)
        assert objects(path, **options) == together
        patch.setattr(rows, "WINDOW_BYTES", 0)
        assert objects(path, **options) == together


def objects(path: str, **options: Any) -> tuple[list[str], str, list[str], list[Any]]:
    """What there is to say of a file: rows, the error they end with, lists, findings."""
    dump = kafkalog.dump(path, limits=Limits(max_decompressed_bytes=2**22), **options)
    found, error = [], ""
    try:
        for row in dump.rows():
            found.append(repr(row))
    except KafkalogError as caught:
        error = str(caught)
    return found, error, list(dump.mismatches()), list(dump.findings)


def test_many_small_batches_are_decoded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gap = [builder.batch_v2([ONE], base_offset=n) for n in range(5000)]
    del gap[2000]
    path = write_log(tmp_path, b"".join(gap))
    calls = []

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return decode(*args, **options)

    monkeypatch.setattr(rows, "decode", counted)
    dump = kafkalog.dump(path, print_data_log=True)
    kinds = [row["kind"] for row in dump.rows()]
    assert kinds == ["file", *["batch", "record"] * 4999, "mismatch"]
    assert 1 <= len(calls) < 10


@pytest.mark.parametrize(
    ("kind", "value"), [(0, b""), (1, None), (2, b""), (2, None)], ids=["abort", "commit", "short", "null"]
)
def test_an_error_about_a_control_record_names_the_file_and_the_position(
    kind: int, value: bytes | None, tmp_path: Path
) -> None:
    marker = builder.record_v2(0, 0, struct.pack(">hh", 0, kind), value)
    first = builder.batch_v2([ONE])
    path = write_log(tmp_path, first + builder.batch_v2([marker], base_offset=1, control=True))
    with pytest.raises(CorruptionError) as said_in_text:
        list(kafkalog.dump(path, deep_iteration=True))
    with pytest.raises(CorruptionError) as caught:
        list(kafkalog.dump(path, deep_iteration=True).rows())
    assert (caught.value.path, caught.value.position) == (path, len(first))
    assert str(caught.value) == str(said_in_text.value)


@pytest.mark.parametrize("magic", [3, 8, 127])
def test_objects_of_a_batch_of_an_unknown_magic_are_those_of_v2_as_its_lines_are(magic: int, tmp_path: Path) -> None:
    for records in ([], [ONE], [ONE] * 9):
        batch = bytearray(builder.batch_v2(records))
        batch[16] = magic
        path = write_log(tmp_path, bytes(batch))
        kinds = Counter(row["kind"] for row in kafkalog.dump(path, deep_iteration=True).rows())
        lines = list(kafkalog.dump(path, deep_iteration=True))
        assert kinds["batch"] == sum(line.startswith("baseOffset") for line in lines) == 1
        assert kinds["record"] == sum(line.startswith("| offset") for line in lines) == len(records)


@pytest.mark.parametrize("magic", [0, 1])
def test_objects_of_a_message_that_ends_inside_its_own_fields_are_damage(magic: int, tmp_path: Path) -> None:
    whole = builder.message(0, b"k", b"v", magic=magic)
    for size in range(26, len(whole)):
        path = write_log(tmp_path, whole[:8] + struct.pack(">i", size - 12) + whole[12:size])
        with pytest.raises(CorruptionError):
            list(kafkalog.dump(path, deep_iteration=True).rows())


def test_objects_of_what_lies_beside_a_log_are_its_numbers() -> None:
    folder = golden_sets.LOG_DIR / "p-txn-0"
    dump = kafkalog.dump(sorted(folder.glob("*index")) + sorted(folder.glob("*.snapshot")))
    rows = list(dump.rows())
    counts = Counter(row["kind"] for row in rows)
    lines = list(dump)
    assert counts["offset_index_entry"] == sum(line.startswith("offset: ") for line in lines) > 10
    assert counts["time_index_entry"] == sum(line.startswith("timestamp: ") for line in lines) > 10
    assert counts["aborted_transaction"] == sum(line.startswith("version: ") for line in lines) > 5
    producers = [row for row in rows if row["kind"] == "producer"]
    assert len(producers) == sum(line.startswith("producerId: ") for line in lines) > 3
    assert {"producer_id", "last_offset", "first_sequence", "current_txn_first_offset"} < set(producers[0])


def test_objects_of_control_records_say_what_they_mean() -> None:
    logs_of = {
        "p-txn-0": {"ABORT", "COMMIT"},
        "__cluster_metadata-0": {"LEADER_CHANGE"},
    }
    for partition, expected in logs_of.items():
        paths = golden_sets.log_files(golden_sets.partitions("k44")[partition])
        rows = kafkalog.dump(paths, deep_iteration=True).rows()
        assert {row["control"]["type"] for row in rows if "control" in row} == expected


# --- indexes ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    """A log of four batches, and its right indexes."""
    batches = [builder.batch_v2([ONE], base_offset=n, base_timestamp=100 + n) for n in range(4)]
    path = Path(write_log(tmp_path, b"".join(batches)))
    size = len(batches[0])
    path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", n, n * size) for n in (1, 2, 3)))
    path.with_suffix(".timeindex").write_bytes(b"".join(struct.pack(">qi", 100 + n, n) for n in (1, 2, 3)))
    return path


def findings(path: Path, **options: Any) -> list[tuple[Reason, bool]]:
    dump = kafkalog.dump(path, **options)
    for _ in dump:
        pass
    return [(finding.reason, finding.damage) for finding in dump.findings]


def test_right_indexes_have_nothing_to_say(indexed: Path) -> None:
    for suffix in (".index", ".timeindex"):
        assert findings(indexed.with_suffix(suffix)) == []
        assert dumped(str(indexed.with_suffix(suffix)), index_sanity_check=True)[-1].endswith(" passed sanity check.")


def test_an_entry_that_leads_too_far_is_damage_one_that_leads_to_the_start_of_an_append_is_not(indexed: Path) -> None:
    index = indexed.with_suffix(".index")
    size = indexed.stat().st_size // 4
    for position, expected in ((2 * size, [(Reason.INDEX_ENTRY, True)]), (0, [])):
        index.write_bytes(struct.pack(">ii", 1, position))
        dump = kafkalog.dump(index, verify_index_only=True)
        assert list(dump) == [f"Dumping {index}"]
        assert [(finding.reason, finding.damage) for finding in dump.findings] == expected
        assert list(dump.mismatches())[1:] == [f"  Index offset: 1, log offset: {position // size}"]


def test_a_wrong_timestamp_is_damage_an_offset_inside_a_batch_is_not(indexed: Path) -> None:
    index = indexed.with_suffix(".timeindex")
    index.write_bytes(struct.pack(">qi", 999, 1))
    assert findings(index) == [(Reason.INDEX_ENTRY, True)]
    index.write_bytes(struct.pack(">qi", 101, 9))
    assert findings(index) == [(Reason.INDEX_ENTRY, True)]
    indexed.write_bytes(builder.batch_v2([ONE, ONE, ONE], base_offset=0))
    indexed.with_suffix(".index").write_bytes(b"")
    index.write_bytes(struct.pack(">qi", 0, 1))
    assert findings(index) == []


def test_what_a_broker_preallocated_is_no_damage(indexed: Path) -> None:
    for log in (indexed.read_bytes(), b""):
        indexed.write_bytes(log)
        for suffix, size in ((".index", 800), (".timeindex", 1200)):
            indexed.with_suffix(suffix).write_bytes(bytes(size))
        for suffix in (".index", ".timeindex"):
            assert findings(indexed.with_suffix(suffix)) == []


def test_nothing_is_wrong_with_what_brokers_left() -> None:
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    for name in golden_sets.SETS:
        for partition in golden_sets.partitions(name).values():
            dump = kafkalog.dump(
                sorted(path for path in partition.iterdir() if path.suffix in kinds), deep_iteration=True
            )
            assert sum(map(len, dump.chunks())) > 100
            assert dump.n_damage == 0, dump.findings


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_a_broker_would_rebuild_fails_the_sanity_check(indexed: Path, suffix: str) -> None:
    index = indexed.with_suffix(suffix)
    index.write_bytes(index.read_bytes() + b"odd")
    assert "index_size" in dumped(str(index), index_sanity_check=True)[-1]
    assert not dumped(str(index))[-1].startswith("EXCEPTION")


def test_hostile_time_indexes_end_soon(tmp_path: Path) -> None:
    # every byte of the log is the start of a chain that leads far
    path = Path(write_log(tmp_path, struct.pack(">qi", 0, 26) * 20_000))
    path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", n, 12 * n + n % 12) for n in range(1, 15_000)))
    path.with_suffix(".timeindex").write_bytes(b"".join(struct.pack(">qi", n, n) for n in range(1, 15_000)))
    assert dumped(str(path.with_suffix(".timeindex")))


def test_a_time_index_without_its_offset_index_takes_one_walk(tmp_path: Path) -> None:
    n = 20_000
    batch = builder.message(0, None, b"x", timestamp=7)
    path = Path(write_log(tmp_path, b"".join(struct.pack(">q", number) + batch[8:] for number in range(n))))
    path.with_suffix(".index").write_bytes(b"")
    entries = [struct.pack(">qi", 7, number) for number in range(n)]
    index = path.with_suffix(".timeindex")
    index.write_bytes(b"".join(entries))
    assert len(dumped(str(index))) == n + 1
    # backwards, each entry is looked for from the start again
    index.write_bytes(b"".join(entries[::-1]))
    assert "index_entry" in dumped(str(index))[-1]


def test_a_damaged_snapshot_is_a_finding_and_the_dump_goes_on(tmp_path: Path) -> None:
    snapshot = tmp_path / f"{5:020d}.snapshot"
    snapshot.write_bytes(struct.pack(">hIi", 1, 0, 0))
    dump = kafkalog.dump([snapshot, write_log(tmp_path, b"")])
    assert len(list(dump)) == 3
    assert [finding.reason for finding in dump.findings] == [Reason.SNAPSHOT_CRC]


def test_an_unknown_file_is_noted(tmp_path: Path) -> None:
    other = tmp_path / "leader-epoch-checkpoint"
    other.write_text("0\n0\n")
    dump = kafkalog.dump(other)
    assert list(dump) == [f"Dumping {other}"]
    assert dump.notes == [f"Ignoring unknown file {other}"]


def test_a_log_that_is_not_named_after_an_offset_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders.log"
    path.write_bytes(builder.batch_v2([ONE]))
    with pytest.raises(kafkalog.NotKafkaError):
        list(kafkalog.dump(path))


# --- control records, lists -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 6])
def test_a_control_record_that_ends_early_is_an_error(kind: int) -> None:
    for value in (None, b"", b"\0"):
        with pytest.raises(CorruptionError) as caught:
            control.describe(kind, value)
        assert caught.value.reason == Reason.CONTROL_RECORD


def test_a_type_that_nobody_knows_is_named_by_its_number() -> None:
    assert control.describe(77, None) == " controlType: UNKNOWN(77)"
    assert control.describe(2, None, is_2_8=True) == " controlType: LEADER_CHANGE(2)"


def test_lists_are_bounded_and_say_how_much_they_leave_out() -> None:
    report = Report()
    pairs = np.arange(2 * (MAX_PAIRS + 5)).reshape(2, -1)
    report.add_pairs("gap", "x", pairs[:, :MAX_PAIRS])
    report.add_pairs("gap", "x", pairs[:, MAX_PAIRS:])
    lines = list(report.lines())
    assert len(lines) == MAX_PAIRS + 2
    assert lines[-1] == "  ... and 5 more"


@pytest.mark.parametrize(
    "options",
    [{"dialect": "1.0"}, {"key_decoder": "avro"}, {"max_bytes": -1}, {"max_message_size": 2**31}],
)
def test_options_that_make_no_sense_are_value_errors(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        kafkalog.dump("x.log", **options)
