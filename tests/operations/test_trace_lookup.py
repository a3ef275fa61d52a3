"""Lookups step by step, in Python and at the command line."""

import json
import os
import random

import builder
import golden_sets
import numpy as np
import pytest

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import Reason
from kafkalog.operations.trace_lookup import trace_offset, trace_timestamp

LOG = "00000000000000000000.log"


def stamped(base, *stamps, **options):
    records = [builder.record_v2(i, stamp, b"k", b"v") for i, stamp in enumerate(stamps)]
    return builder.batch_v2(records, base_offset=base, max_timestamp=max(stamps), **options)


def check_steps(partition, trace, archive="clean"):
    """What the trace says is what the files hold."""
    if trace.batch is None:
        return
    segment = next(segment for segment in partition.segments if str(segment.path) == trace.segment.path)
    table = segment.batches
    row = table.position.tolist().index(trace.batch.position)
    start = table.position.tolist().index(trace.position)
    assert trace.batches_scanned == row - start + 1
    assert trace.batch.last_offset == table.last_offset[row]
    assert trace.batch.size_in_bytes == table.size_in_bytes[row]
    if trace.asked.get("timestamp") != "latest":
        assert trace.batch.base_offset <= trace.offset <= trace.batch.last_offset
    for index, found in ((segment.offset_index, trace.offset_index), (segment.time_index, trace.time_index)):
        if found is not None:
            assert index is not None
            assert found.n_entries == len(index)
            if found.entry >= 0:
                assert found.offset == index.offset[found.entry]
    if trace.offset_index is not None and trace.offset_index.entry >= 0 and trace.offset_index.is_right:
        # right, but not proven where the file ends in a torn tail: then the scan begins at the start
        assert trace.position in (trace.offset_index.position, 0)
        assert trace.position or archive == "unclean"


@pytest.mark.parametrize(
    ("name", "archive"),
    [
        ("k44", "unclean"),
        pytest.param("k28", "clean", marks=pytest.mark.slow),
        pytest.param("k44", "clean", marks=pytest.mark.slow),
        pytest.param("k28", "unclean", marks=pytest.mark.slow),
    ],
)
def test_the_steps_fit_the_files_and_no_index_of_a_broker_misleads(name, archive):
    opened = kafkalog.open(golden_sets.unpacked(name, archive))
    assert isinstance(opened, kafkalog.LogDir)
    draw = random.Random(5)
    n_followed = 0
    for partition in opened.values():
        records = kafkalog.read_numpy(
            partition.path, columns=["offset", "timestamp"], include_control=True, include_deleted=True
        )
        offsets, stamps = records.offset.tolist(), records.timestamp.tolist()
        chosen = draw.sample(range(len(offsets)), min(len(offsets), 4))
        for question in ["earliest", "latest", "max-timestamp", 0, *(max(stamps[i], 0) for i in chosen)]:
            trace = trace_timestamp(partition, question)
            assert trace.offset == partition.offset_for_timestamp(question)
            assert (trace.offset < 0) <= bool(trace.reason)
            assert not trace.findings
            check_steps(partition, trace, archive)
            n_followed += trace.time_index is not None and trace.time_index.entry >= 0
        for offset in [0, *(offsets[i] + more for i in chosen for more in (0, 1))]:
            trace = trace_offset(partition, offset)
            assert trace.offset == next((other for other in offsets if other >= offset), -1)
            assert (trace.offset != offset) <= bool(trace.reason)
            assert not trace.findings
            check_steps(partition, trace, archive)
            n_followed += trace.offset_index is not None and trace.offset_index.entry >= 0
    assert n_followed > 40


def time_index_of_another(path):
    rows = np.array([(1_600_000_000_000, 90_000)], kf.TIME_INDEX_DTYPE)
    path.with_suffix(".timeindex").write_bytes(rows.tobytes())


def offset_index_shifted(path):
    index = path.with_suffix(".index")
    rows = np.frombuffer(index.read_bytes(), kf.OFFSET_INDEX_DTYPE).copy()
    rows["position"] += 7
    index.write_bytes(rows.tobytes())


def offset_index_ahead(path):
    index = path.with_suffix(".index")
    rows = np.frombuffer(index.read_bytes(), kf.OFFSET_INDEX_DTYPE).copy()
    rows["position"] = rows["position"][-1]
    index.write_bytes(rows.tobytes())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (time_index_of_another, "leads past offset 250"),
        (offset_index_shifted, "where no batch begins"),
        (offset_index_ahead, "past the batch that holds it"),
    ],
)
def test_an_index_that_misleads_is_damage_and_the_answer_is_right(run, log_dir_copy, damage, message):
    directory = log_dir_copy / "p-zstd-java-0"
    damage(directory / LOG)
    when = 1_700_000_250_000
    trace = trace_timestamp(kafkalog.Partition(directory), when)
    assert trace.offset == 250
    assert {finding.reason for finding in trace.findings} == {Reason.INDEX_MISLEADS}
    assert message in " ".join(finding.detail for finding in trace.findings)
    check_steps(kafkalog.Partition(directory), trace)
    code, out, err = run("lookup", directory, "--timestamp", when)
    assert code == 1
    assert "damage: " in err
    assert "index_misleads" in err
    assert "answer        250" in out


def test_a_batch_behind_a_torn_tail_is_no_reason_to_blame_the_index(tmp_path):
    """A crash leaves half a batch at the end: the entries before it are as right as ever."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    batches = [stamped(i, i) for i in range(10)]
    (directory / LOG).write_bytes(b"".join(batches) + batches[0][:30])
    rows = np.array([(4, len(batches[0]) * 4)], kf.OFFSET_INDEX_DTYPE)
    (directory / LOG).with_suffix(".index").write_bytes(rows.tobytes())
    trace = trace_offset(kafkalog.Partition(directory), 6)
    assert trace.offset_index is not None
    assert trace.offset_index.is_right
    assert not trace.findings


def test_what_is_special_about_an_answer_is_said(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / LOG).write_bytes(stamped(0, 900, 10) + stamped(2, 20, 30, last_offset_delta=4))
    (directory / f"{9:020d}.log").write_bytes(b"")
    os.utime(directory / f"{9:020d}.log", ns=(0, 5_000 * 10**6))
    (directory / f"{10:020d}.log").write_bytes(stamped(10, 6_000))
    partition = kafkalog.Partition(directory, log_start_offset=1)
    said = {}
    for question in ("earliest", "latest", "max-timestamp", 50, 4_000, 7_000):
        trace = trace_timestamp(partition, question)
        said[question] = trace.offset, trace.reason
    and_no_other = "and a broker searches no later segment"
    assert said == {
        "earliest": (1, "the log start offset"),
        "latest": (11, "the log end offset"),
        "max-timestamp": (10, ""),
        50: (-1, f"its later records are below the log start offset 1, or are gone, {and_no_other}"),
        4_000: (-1, f"no batch in it has a timestamp, so its modification time is used, {and_no_other}"),
        7_000: (-1, "no segment's largest timestamp is that late"),
    }
    for offset, found, reason in [
        (0, 0, "below the log start offset 1: it counts as deleted, and a broker refuses it"),
        (2, 2, ""),
        (4, 10, "no record has offset 4; this is the next one"),
        (11, -1, "the log end offset is 11: 11 is the next offset to write"),
        (12, -1, "the log end offset is 11: 12 is past the end; a broker refuses it"),
    ]:
        trace = trace_offset(partition, offset)
        assert (trace.offset, trace.reason) == (found, reason)
    assert trace_offset(partition, 4).segment.base_offset == 10
    with pytest.raises(ValueError, match="offset -1"):
        trace_offset(partition, -1)


def test_offsets_among_many_batches_left_empty_are_looked_up_quickly(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    empty = [builder.batch_v2(base_offset=i, max_timestamp=9, last_offset_delta=0) for i in range(5000)]
    (directory / LOG).write_bytes(b"".join(empty) + stamped(5000, 3))
    trace = trace_offset(kafkalog.Partition(directory), 0)
    assert (trace.offset, trace.batches_scanned) == (5000, 5001)
    assert kafkalog.Partition(directory).offset_for_timestamp([3, 9]).tolist() == [5000, -1]


# the command


def test_lookup_prints_json_for_programs(run, log_dir):
    argv = ["--timestamp", "earliest", "--timestamp", 1_700_000_250_000, "--offset", 99_999]
    code, out, err = run("lookup", log_dir, "-t", "p-multi,p-zstd-java", "--json", *argv)
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == 4 * 3
    assert [row["asked"] for row in rows[:3]] == [
        {"timestamp": "earliest"},
        {"timestamp": 1_700_000_250_000},
        {"offset": 99_999},
    ]
    found = {(row["topic"], row["partition"], *row["asked"].values()): row for row in rows}
    row = found["p-zstd-java", 0, 1_700_000_250_000]
    assert (row["offset"], row["timestamp"], row["leader_epoch"]) == (250, 1_700_000_250_467, 0)
    assert row["segment"]["largest_timestamp"] == 1_700_000_363_523
    assert row["offset_index"]["position"] == row["position"] == 23926
    assert row["batch"]["codec"] == "zstd"
    assert row["record"]["offset"] == 250
    assert row["record"]["is_control"] is False
    beyond = found["p-multi", 0, 99_999]
    assert (beyond["offset"], beyond["record"], beyond["batch"]) == (-1, None, None)
    assert "log end offset is 125" in beyond["reason"]


def test_lookup_takes_a_single_log_file(run, log_dir, tmp_path):
    code, out, _ = run("lookup", log_dir / "p-multi-0" / LOG, "--offset", 41, "--timestamp", "latest")
    assert code == 0
    assert "answer        41\n" in out
    assert "answer        120: the log end offset\n" in out
    stray = tmp_path / "copy.log"
    stray.write_bytes((log_dir / "p-multi-0" / LOG).read_bytes())
    code, out, _ = run("lookup", stray, "--offset", 41)
    assert code == 0
    assert "answer        41\n" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--offset or --timestamp"),
        (["--offset", "x"], "expected an offset"),
        (["--offset", "-1"], "expected an offset"),
        (["--offset", str(2**63)], "expected an offset"),
        (["--timestamp", "newest"], "milliseconds, a time such as"),
        (["--timestamp", "-5"], "1970"),
        (["--timestamp", "1969-01-01T00:00Z"], "1970"),
        (["-t", "nope", "--offset", "1"], "no topic 'nope'"),
    ],
)
def test_lookup_says_what_is_wrong_about_a_command_line(run, log_dir, argv, message):
    code, out, err = run("lookup", log_dir, *argv)
    assert (code, out) == (2, "")
    assert message in err


def test_indexes_of_a_segment_that_a_running_broker_writes_to_meanwhile_are_no_damage(log_dir_copy):
    log = log_dir_copy / "p-zstd-java-0" / LOG
    offset_index_shifted(log)
    partition = kafkalog.Partition(log.parent)
    assert [one.reason for one in trace_offset(partition, 250).findings] == [Reason.INDEX_MISLEADS]
    with log.open("ab") as file:
        file.write(stamped(10_000, 1))
    assert not trace_offset(partition, 250).findings
