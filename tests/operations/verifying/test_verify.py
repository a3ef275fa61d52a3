"""`kafkalog.verify` and `kafkalog verify`: nothing is said about healthy log dirs, and every damage to one is."""

import json
import shutil
from collections import Counter
from pathlib import Path

import golden_sets
import pytest
from damaged_partitions import change, move_entry, put, reasons
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from orders import written_orders

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import Reason
from kafkalog.operations.verifying.verify import iter_verify
from kafkalog.storage.broker_lock import hold_locks
from kafkalog.survey.evidence import LogDirState

HEALTHY = [(name, "clean") for name in golden_sets.SETS]
CRASHED = [("k44", "unclean"), ("k28", "unclean")]


@pytest.mark.parametrize(
    ("name", "archive", "options"),
    [
        pytest.param(*one, options, marks=[] if options == {"deep": True} or one[0] == "k28" else pytest.mark.slow)
        for one in HEALTHY
        for options in ({}, {"deep": True}, {"indexes_only": True}, {"threads": 1})
    ],
)
def test_nothing_is_said_about_what_a_broker_left_when_it_was_shut_down(name, archive, options):
    result = kafkalog.verify(golden_sets.unpacked(name, archive), **options)
    assert list(result.findings) == []
    assert result.ok
    assert len(result.partitions) == len(golden_sets.partitions(name, archive))
    assert sum(segment.n_batches for one in result.partitions for segment in one.segments) > 100


@pytest.mark.parametrize(("name", "archive"), CRASHED)
def test_only_facts_are_said_about_what_a_broker_left_when_it_was_killed(name, archive):
    result = kafkalog.verify(golden_sets.unpacked(name, archive), deep=True)
    assert result.ok
    assert {finding.reason.value for finding in result.findings} <= {"zero_fill", "partial_tail"}
    assert any(one.stat().st_size > 10**7 for one in golden_sets.unpacked(name, archive).rglob("*.index"))


# --------------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("name", ["p-txn-0", "p-zstd-java-0", "p-v1-lz4-0"])
def test_an_index_with_a_twentieth_of_its_entries_is_found_where_the_interval_is_known(log_dir, name):
    log = max((log_dir / name).glob("*.index"), key=lambda path: path.stat().st_size)
    entries = log.read_bytes()
    log.write_bytes(b"".join(entries[first : first + 8] for first in range(0, len(entries), 160)))
    assert log.stat().st_size < len(entries) / 5
    assert reasons(log_dir / name, index_interval_bytes=1024) == {log.name: {"index_sparse"}}


@pytest.mark.parametrize(("name", "interval"), [("k44", 1024), ("k44", 4096), ("k28", 1024), ("k44_extra", 1024)])
def test_knowing_the_interval_says_nothing_against_healthy_indexes(name, interval):
    assert kafkalog.verify(golden_sets.unpacked(name), indexes_only=True, index_interval_bytes=interval).ok


def test_a_transaction_index_that_is_gone_with_its_offset_index_is_a_fact_as_a_broker_makes_both(partition, capsys):
    gone = sorted(path.name for path in partition.glob("*.txnindex"))
    for path in partition.iterdir():
        if path.suffix != ".log":
            path.unlink()
    found = list(kafkalog.verify(partition).findings)
    about = [finding for finding in found if (finding.path or "").endswith(".txnindex")]
    assert [Path(finding.path or "").name for finding in about] == gone
    assert all(
        "a broker rebuilds it at its next start, because there is no .index" in finding.detail for finding in about
    )
    assert not any(finding.damage for finding in found)
    assert main(["verify", str(partition)]) == 0
    assert "all OK" in capsys.readouterr().out
    # where the one is there, the other stays away
    (partition / gone[0]).with_suffix(".index").write_bytes(b"")
    assert reasons(partition)[gone[0]] == {"index_transaction"}


def test_preallocated_indexes_are_normal_until_a_clean_shutdown(log_dir):
    partition = log_dir / "p-multi-1"
    sizes = {".index": 10_485_760, ".timeindex": 10_485_756}
    (log_dir / ".kafka_cleanshutdown").unlink()

    def grow(which):
        for path in partition.glob(f"*{which}"):
            change(path, lambda data: data.extend(bytes(sizes[which] - len(data))))

    grow(".index")
    assert reasons(partition) == {f"{0:020d}.index": {"index_padding"}}  # it is the first that a broker trims
    (time_index,) = partition.glob("*.timeindex")
    content = time_index.read_bytes()
    time_index.write_bytes(b"")  # a broker was killed before it gave the file its size, so the other is as it left it
    assert reasons(partition) == {time_index.name: {"index_sparse"}}
    time_index.write_bytes(content)
    grow(".timeindex")
    assert reasons(partition) == {}
    (log_dir / ".kafka_cleanshutdown").touch()
    assert list(reasons(partition).values()) == [{"index_padding"}, {"index_padding"}]


def test_a_torn_tail_is_a_fact_after_a_crash_and_damage_after_a_clean_shutdown(log_dir):
    log = log_dir / "p-multi-1" / f"{0:020d}.log"
    change(log, lambda data: data.extend(data[:40]))
    assert reasons(log_dir) == {log.name: {"partial_tail"}}
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert reasons(log_dir) == {}
    (finding,) = kafkalog.verify(log_dir).findings
    assert finding.reason == "partial_tail"


def test_an_index_without_its_log_is_a_fact(partition):
    (partition / f"{999:020d}.index").write_bytes(bytes(8))
    (finding,) = kafkalog.verify(partition).findings
    assert (finding.reason.value, finding.damage) == ("unknown_file", False)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".log.swap", ".cleaned"])
def test_a_file_that_is_named_after_no_offset_is_damage_as_no_broker_starts_with_it(partition, suffix, capsys):
    stray = partition / f"foo{suffix}"
    stray.write_bytes(bytes(7))
    assert reasons(partition) == reasons(partition, indexes_only=True) == {stray.name: {"unknown_file"}}
    assert main(["verify", str(partition)]) == 1
    assert f"! foo{suffix}: unknown_file: not named after an offset: a broker does not start" in capsys.readouterr().out
    # it is in nobody's way who reads
    assert main(["ls", str(partition)]) == 0
    said = capsys.readouterr().err
    assert f"note: {stray}: unknown_file: not named after an offset: a broker does not start with it" in said


def test_names_that_a_broker_passes_over_are_no_damage(partition):
    (partition / "foo.log").mkdir()
    (partition / "bar.index").symlink_to("/nonexistent")
    for name in ("foo.log.deleted", f"{14:020d}.index.deleted", "foo.txt", f"{14:020d}.index.kafkalog-backup", "foo"):
        (partition / name).write_bytes(bytes(7))
    assert [Path(one.path or "").name for one in kafkalog.verify(partition).findings] == ["foo.log"]
    assert reasons(partition) == {}


def test_a_stray_log_keeps_nothing_from_being_checked(partition):
    (partition / "foo.log").write_bytes(b"")
    (partition / "leader-epoch-checkpoint").write_text("7\n0\n")
    assert set(reasons(partition)) == {"foo.log", "leader-epoch-checkpoint"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60), deadline=None)
@given(
    name=st.sampled_from(
        [".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata"]
    ),
    new=st.one_of(st.binary(max_size=300), st.just(b"\xff" * 5000), st.just(bytes(3000))),
    at=st.integers(0, 9000),
    whole=st.booleans(),
)
def test_hostile_files_are_findings_and_never_a_crash(tmp_path, name, new, at, whole):
    copy = tmp_path / "copy-0"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(golden_sets.LOG_DIR / "p-txn-0", copy)
    path = sorted(copy.glob(f"*{name}"))[-1]
    if whole:
        path.write_bytes(new)
    else:
        change(path, put(at % max(path.stat().st_size, 1), new))
    for options in ({}, {"deep": True}, {"indexes_only": True}):
        result = kafkalog.verify(copy, threads=1, **options)
        assert len(result.partitions) == 1


# --------------------------------------------------------------------------------------------------------- command line


def test_the_command_prints_a_line_a_segment_and_a_total(capsys):
    assert main(["verify", str(golden_sets.LOG_DIR / "p-txn-0")]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == f"p-txn-0  {0:020d}.log  OK"
    assert len(lines) == 7
    assert lines[-1].startswith("total: 1 partition, 6 segments, ")
    assert lines[-1].endswith("; records not decoded (--deep); all OK")
    assert printed.err == ""
    for option, told in (
        ("--deep", "bytes; all OK"),
        ("--indexes-only", "bytes; checksums and records not checked; all OK"),
    ):
        assert main(["verify", option, str(golden_sets.LOG_DIR / "p-txn-0")]) == 0
        assert capsys.readouterr().out.splitlines()[-1].endswith(told)


def test_directories_that_a_broker_set_apart_are_checked_too(log_dir_copy, capsys):
    apart = (log_dir_copy / "p-multi-0").rename(log_dir_copy / f"p-multi-0.{'0' * 32}-delete")
    assert main(["verify", str(log_dir_copy)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(apart.name)]
    assert lines[-1].endswith("bytes; records not decoded (--deep); all OK")
    next(apart.glob("*.log")).write_bytes(b"\xff" * 100)
    assert main(["verify", str(log_dir_copy)]) == 1


def test_json_has_an_object_for_each_segment_and_partition_and_a_total(log_dir, capsys):
    move_entry(log_dir / "p-txn-0")
    assert main(["verify", "--json", str(log_dir), "-t", "p-txn", "--threads", "2"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["kind"] for row in rows] == [*["segment"] * 6, "partition", "total"]
    assert [row["ok"] for row in rows] == [True, False, True, True, True, True, False, False]
    (finding,) = rows[1]["findings"]
    assert finding["reason"] == "index_position"
    assert rows[1]["n_batches"] == 57


def test_progress_reaches_all_bytes_and_stopping_early_leaves_nothing_running():
    done = []
    result = kafkalog.verify(golden_sets.LOG_DIR, progress=done.append)
    assert sum(done) == sum(segment.size_in_bytes for one in result.partitions for segment in one.segments)
    stream = iter_verify(golden_sets.LOG_DIR)
    assert next(stream).ok
    stream.close()


@pytest.mark.parametrize("lost", ["00000000000000000014.txnindex", "00000000000000000014.log"])
def test_what_cannot_be_read_puts_no_blame_on_the_transaction_indexes_behind_it(log_dir, tmp_path, lost):
    directory = shutil.copytree(log_dir / "p-txn-0", tmp_path / "p-txn-0")
    (directory / lost).unlink()
    (directory / lost).mkdir()
    (partition,) = kafkalog.verify(directory).partitions
    damage = [finding for segment in partition.segments for finding in segment.findings if finding.damage]
    assert [(finding.reason, finding.path) for finding in damage] == [(Reason.NOT_A_FILE, str(directory / lost))]


@pytest.mark.parametrize("is_live", [True, False])
def test_a_deleted_topic_that_a_running_broker_removes_is_no_damage(log_dir_copy, is_live):
    gone = (log_dir_copy / "p-txn-0").rename(log_dir_copy / f"p-txn-0.{'0' * 32}-delete")
    opened = kafkalog.open_log_dir(log_dir_copy)
    shutil.rmtree(gone)
    with hold_locks([log_dir_copy] if is_live else []):
        found = [one for one in kafkalog.verify(opened).findings if one.damage]
    assert [one.path for one in found] == ([] if is_live else [str(gone)])


@pytest.mark.parametrize("is_live", [True, False])
def test_segments_that_a_running_broker_has_merged_do_not_overlap(log_dir_copy, monkeypatch, is_live):
    opened = kafkalog.open_log_dir(log_dir_copy)
    first, second, *_ = (segment.path for segment in opened["p-compact", 0].segments)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    second.rename(second.with_name(f"{second.name}.deleted"))
    monkeypatch.setattr(LogDirState, "of", lambda one: LogDirState(is_live))
    found = [one.reason for one in kafkalog.verify(opened, topics="p-compact").findings if one.damage]
    assert (Reason.OFFSET_ORDER in found) == (not is_live)


@pytest.fixture
def two_topics(tmp_path):
    """Orders with two broken values, and numbers of which two have another length."""
    written_orders(tmp_path)
    for partition, values in enumerate(([b"\0\0\0\1", None], [b"\0\0\0\2", b"1", b"12"])):
        with kafkalog.PartitionWriter(tmp_path / f"numbers-{partition}") as writer:
            writer.append({"value": values, "timestamp": [0] * len(values)})
    return tmp_path


def test_the_first_of_each_topic_and_all_reasons(two_topics):
    numbers, orders = kafkalog.verify(two_topics, decode={"value": "json"}).values
    assert (numbers.topic, numbers.n_records, numbers.n_undecoded) == ("numbers", 5, 2)
    assert (numbers.first_partition, numbers.first_offset) == (0, 0)
    assert (orders.topic, orders.n_records, orders.first_partition, orders.first_offset) == ("orders", 40, 0, 9)
    assert orders.reasons == {"not JSON": 1, "not UTF-8": 1}
    result = kafkalog.verify(two_topics, topics="numbers", decode={"value": "int", "key": "utf8"})
    values, keys = result.values
    assert (values.column, values.n_undecoded, values.first_partition, values.first_offset) == ("value", 2, 1, 1)
    assert (keys.column, keys.ok) == ("key", True)
    assert not result.ok
    assert [(one.reason, one.path, one.base_offset) for one in result.findings if one.damage] == [
        (kafkalog.Reason.VALUE_UNDECODED, str(two_topics / "numbers-1"), 1)
    ]
    assert kafkalog.verify(two_topics, topics="numbers", decode={"key": "json"}).ok


def test_numbers_are_those_of_a_scan(two_topics):
    for found in kafkalog.verify(two_topics, decode={"value": "json"}).values:
        with pytest.warns(kafkalog.DecodeWarning):
            table = kafkalog.read_table(
                two_topics, topics=found.topic, columns=["value_error"], decode={"value": "json"}
            )
        reasons = Counter(one for one in table.column(0).to_pylist() if one is not None)
        assert (found.n_records, found.reasons) == (len(table), reasons)


def test_the_command(run, two_topics):
    code, out, _ = run("verify", "--values", "--value-format", "int", two_topics, "-t", "numbers", "--json")
    (row,) = [one for one in map(json.loads, out.splitlines()) if one["kind"] == "values"]
    assert (code, row["ok"], row["topic"], row["n_undecoded"]) == (1, False, "numbers", 2)
    code, out, _ = run("verify", "--values", "--value-format", "int", two_topics, "-t", "numbers")
    assert code == 1
    assert "numbers-1@1" in out
    assert run("verify", "--values", "--key-format", "utf8", two_topics)[0] == 0
    assert run("verify", "--values", two_topics)[0] == run("verify", "--value-format", "json", two_topics)[0] == 2
    assert run("verify", "--values", "--value-format", "avro", two_topics)[0] == 2  # there are no schemas
