"""A log dir with remote segments gives what it gave when all segments were local."""

import base64
import json
import pickle
import shutil
from pathlib import Path

import builder
import numpy as np
import pyarrow as pa
import pytest
from conftest import GOLDEN
from effort import THOROUGH, thinned
from tiered_sets import FINISHED, TieredSet, key_pair

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import CorruptionWarning, NotKafkaError, ReadError, Reason
from kafkalog.scanning.planning import plan
from kafkalog.scanning.tasks import read_task
from kafkalog.tiered.layouts import find_layout

LOG_DIR = GOLDEN / "log_dir"
MOVED = {"p-txn-0": 2, "p-multi-0": 1, "p-delrec-0": 1, "p-headers-0": 1}
KEY = key_pair()
KINDS = {
    "apache": None,
    "plain": {"prefix": "backup/", "chunk": 4096},
    "zstd": {"compressed": True, "chunk": 3000},
    "aes": {"key": ("key1", KEY), "chunk": 5000, "prefix": "x/y_"},
    "zstd-aes": {"compressed": True, "key": ("key1", KEY), "chunk": 2**20},
}
KEYS = {"key1": KEY.export_key(pkcs=8).decode()}


def made(place, kind="apache", **moved):
    """A copy of the golden log dir, with segments in remote storage."""
    shutil.copytree(LOG_DIR, place / "data")
    found = TieredSet(place / "data", place / "remote", KINDS[kind])
    for partition, n_local in (moved or MOVED).items():
        found.move(partition, n_local)
    return found


def same(stored, keys=MOVED):
    """Compare partitions with the golden ones."""
    for key in keys:
        mine, other = stored[key], kafkalog.open(LOG_DIR)[key]
        for level in ("read_uncommitted", "read_committed"):
            options = {"isolation_level": level, "include_control": True}
            columns = [*(name for name in other.to_table().schema.names), "leader_epoch", "producer_id"]
            assert mine.to_table(columns=columns, **options) == other.to_table(columns=columns, **options)
        assert mine.log_start_offset == other.log_start_offset
        assert mine.log_end_offset == other.log_end_offset
        assert mine.topic_id == other.topic_id


@pytest.mark.parametrize("kind", thinned(KINDS, 4))
def test_remote_and_local_segments_are_one_log(kind, tmp_path):
    one = made(tmp_path, kind)
    one.finish()
    stored = kafkalog.open(one.log_dir, tiered=one.remote, tiered_keys=KEYS)
    same(stored)
    partition = kafkalog.open(one.log_dir / "p-txn-0", tiered=one.remote, tiered_keys=KEYS)
    same(kafkalog.LogDir([partition.path]), ["p-txn-0"])
    assert kafkalog.verify(stored, topics=["p-txn", "p-multi"]).ok
    times = [1_700_000_100_000, 1_700_000_200_000]
    assert (
        stored["p-multi-0"].offset_for_timestamp(times).tolist()
        == kafkalog.open(LOG_DIR)["p-multi-0"].offset_for_timestamp(times).tolist()
    )


@pytest.mark.parametrize("kind", ["apache", "plain", "zstd"])
def test_other_processes_read_what_was_planned_here(kind, tmp_path):
    one = made(tmp_path, kind)
    one.finish()
    for options in ({}, {"tiered": one.remote}):
        opened = kafkalog.open(one.log_dir, **options)
        tables = []
        for tasks in (plan(opened).tasks, pickle.loads(pickle.dumps(plan(opened).tasks))):
            tables.append(pa.Table.from_batches(batch for task in tasks for batch in read_task(task)))
        assert tables[0] == tables[1]
        again = pickle.loads(pickle.dumps(opened))
        assert again["p-txn-0"].to_table() == opened["p-txn-0"].to_table()
    # all of the tasks, and those of single segments, whose directory nobody has listed there
    assert tables[0].num_rows == kafkalog.read_table(LOG_DIR).num_rows
    segment = pickle.loads(pickle.dumps(opened["p-multi-0"].segments[0]))
    assert segment.to_table() == kafkalog.open(LOG_DIR)["p-multi-0"].segments[0].to_table()


@pytest.mark.parametrize("kind", thinned(KINDS, 4))
def test_without_the_metadata_topic_complete_copies_count(kind, tmp_path):
    one = made(tmp_path, kind, **{"p-txn-0": 1, "p-multi-0": 1})
    stored = kafkalog.open(one.log_dir, tiered=one.remote, tiered_keys=KEYS)
    same(stored, ["p-txn-0", "p-multi-0"])
    assert any("metadata topic" in finding.detail for finding in stored["p-txn-0"].findings)


@pytest.mark.parametrize("kind", KINDS)
def test_remote_storage_is_read_alone(kind, tmp_path):
    one = made(tmp_path, kind, **{"p-txn-0": 1, "p-headers-0": 1})
    alone = kafkalog.open(kafkalog.tiered_location(None, one.remote, keys=KEYS))
    assert [str(key) for key in alone] == ["p-headers-0", "p-txn-0"]
    for key in alone:
        golden = kafkalog.open(LOG_DIR)[key]
        end = golden.segments[-1].base_offset
        assert alone[key].to_table() == golden.to_table(end_offset=end)
        assert alone[key].topic_id == golden.topic_id
        assert any("remote storage alone" in finding.detail for finding in alone[key].findings)


def test_a_dead_branch_does_not_count(tmp_path):
    one = made(tmp_path, **{"p-txn-0": 1})
    # another leader's copy of what was lost in an unclean election: finished, longer, and in no epoch of the chain
    other = LOG_DIR / "p-multi-0"
    shutil.copy(other / f"{0:020d}.log", one.log_dir / "p-txn-0" / f"{14:020d}.log")
    one.copy("p-txn-0", 14, 10**6, epochs={99: 14})
    (one.log_dir / "p-txn-0" / f"{14:020d}.log").unlink()
    one.finish()
    same(kafkalog.open(one.log_dir, tiered=one.remote), ["p-txn-0"])


def test_of_two_copies_with_one_start_the_later_event_counts(tmp_path):
    one = made(tmp_path, **{"p-multi-0": 2})
    (base, end), *_ = one.bounds("p-multi-0")
    one.copy("p-multi-0", base, end)
    identity, first = one.copies["p-multi-0"][0]
    Path(f"{first}.log").write_bytes(b"damaged")
    one.copy("p-multi-0", base, end)
    (one.log_dir / "p-multi-0" / f"{base:020d}.log").unlink()
    one.finish()
    assert identity in kafkalog.remote_log(one.log_dir)[0].segment_id
    same(kafkalog.open(one.log_dir, tiered=one.remote), ["p-multi-0"])


def test_a_longer_copy_is_cut_to_the_local_log(tmp_path):
    one = made(tmp_path, **{"p-txn-0": 6})
    place = one.log_dir / "p-txn-0"
    bounds = one.bounds("p-txn-0")
    # one copy of two segments, the second of which is still local
    first, second = (place / f"{base:020d}.log" for base, _ in bounds[:2])
    first.write_bytes(first.read_bytes() + second.read_bytes())
    one.copy("p-txn-0", bounds[0][0], bounds[1][1])
    for suffix in (".log", ".index", ".timeindex"):
        (place / f"{bounds[0][0]:020d}{suffix}").unlink()
    one.finish()
    same(kafkalog.open(one.log_dir, tiered=one.remote), ["p-txn-0"])


def test_a_hole_is_a_finding(tmp_path):
    one = made(tmp_path, **{"p-txn-0": 1})
    one.finish()
    identity, main_path = one.copies["p-txn-0"][1]
    Path(f"{main_path}.log").unlink()
    partition = kafkalog.open(one.log_dir, tiered=one.remote)["p-txn-0"]
    with pytest.warns(CorruptionWarning):
        rows = partition.to_table(on_corruption="skip").num_rows
    assert 0 < rows < kafkalog.open(LOG_DIR)["p-txn-0"].to_table().num_rows
    found = [finding for finding in partition.findings if identity in finding.detail]
    assert [finding.reason for finding in found] == [Reason.SEGMENT_MISSING]


def test_wrong_keys_and_damaged_chunks_are_errors(tmp_path):
    one = made(tmp_path, "aes", **{"p-headers-0": 1})
    one.finish()
    for keys, message in (({}, "key1"), ({"key1": key_pair(2).export_key().decode()}, "does not decrypt")):
        with pytest.raises(ReadError, match=message) as error:
            kafkalog.open(one.log_dir, tiered=one.remote, tiered_keys=keys)["p-headers-0"].to_table()
        assert str(error.value.path).startswith(one.remote.as_uri())
    path = Path(f"{one.copies['p-headers-0'][0][1]}.log")
    data = bytearray(path.read_bytes())
    size = 5028
    for change in (
        lambda: data.__setitem__(size + 100, data[size + 100] ^ 1),
        lambda: data.__setitem__(size - 1, data[size - 1] ^ 1),  # of the tag alone: the records are right
        lambda: data.__setitem__(slice(0, 2 * size), data[size : 2 * size] + data[:size]),
    ):
        saved = bytes(data)
        change()
        path.write_bytes(data)
        with pytest.raises(kafkalog.KafkalogError):
            kafkalog.open(one.log_dir, tiered=one.remote, tiered_keys=KEYS)["p-headers-0"].to_table()
        data[:] = saved


def test_the_command_line(tmp_path, capsys):
    one = made(tmp_path, "zstd-aes")
    one.finish()
    (tmp_path / "key.pem").write_text(KEYS["key1"])
    argv = ["cat", str(one.log_dir / "p-txn-0"), "--json", "--tiered", str(one.remote)]
    assert main([*argv, "--tiered-key", f"key1={tmp_path / 'key.pem'}"]) == 0
    found = capsys.readouterr().out
    assert main(["cat", str(LOG_DIR / "p-txn-0"), "--json"]) == 0
    assert found == capsys.readouterr().out


def test_what_is_no_remote_storage_is_refused(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(NotKafkaError):
        kafkalog.open(LOG_DIR, tiered=tmp_path / "x")
    with pytest.raises(NotKafkaError):
        kafkalog.open(LOG_DIR / "p-txn-0" / f"{0:020d}.log", tiered=tmp_path)
    assert FINISHED == 1


@pytest.mark.parametrize("has_epochs", [True, False])
def test_plain_copies_of_a_log_dir_are_joined(has_epochs, tmp_path):
    import fsspec

    shutil.copytree(LOG_DIR, tmp_path / "data")
    for name in ("p-txn-0", "p-delrec-0"):
        (tmp_path / "copies" / name).mkdir(parents=True)
        for path in sorted((tmp_path / "data" / name).glob("*.log"))[:-1]:
            for file in (tmp_path / "data" / name).glob(f"{path.stem}.*"):
                shutil.move(file, tmp_path / "copies" / name)
        if has_epochs:
            shutil.copy(tmp_path / "data" / name / "leader-epoch-checkpoint", tmp_path / "copies" / name)
    same(kafkalog.open(tmp_path / "data", tiered=tmp_path / "copies"), ["p-txn-0", "p-delrec-0"])
    # both may be in stores
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "data"), "/plain-copies", recursive=True)
    same(kafkalog.open("memory://plain-copies", tiered=tmp_path / "copies"), ["p-txn-0"])
    memory.rm("/plain-copies", recursive=True)
    assert kafkalog.verify_tiered(tmp_path / "copies", tmp_path / "data").ok


SIDE_OBJECTS = {"apache": (".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"), "zstd-aes": (".indexes",)}


@pytest.mark.parametrize("has_metadata", thinned([True, False], 2))
@pytest.mark.parametrize("kind", SIDE_OBJECTS)
def test_missing_indexes_lose_no_record(kind, has_metadata, tmp_path):
    one = made(tmp_path, kind, **{"p-txn-0": 1, "p-multi-0": 1})
    if has_metadata:
        one.finish()
    for suffix in SIDE_OBJECTS[kind]:
        for _, main_path in one.copies["p-txn-0"]:
            Path(f"{main_path}{suffix}").unlink()
        same(kafkalog.open(one.log_dir, tiered=one.remote, tiered_keys=KEYS), ["p-txn-0", "p-multi-0"])
        report = kafkalog.verify_tiered(one.remote, one.log_dir, keys=KEYS)
        torn = [fault for fault in report.faults if fault.kind == "torn"]
        assert {fault.segment_id for fault in torn} == {identity for identity, _ in one.copies["p-txn-0"]}
        assert all(suffix in fault.detail and fault.damage for fault in torn)
        assert {fault.kind for fault in report.faults} == {"torn"}, [*map(str, report.faults)]


def test_a_whole_copy_counts_before_one_that_lacks_objects(tmp_path):
    one = made(tmp_path, **{"p-multi-0": 2})
    (base, end), *_ = one.bounds("p-multi-0")
    one.copy("p-multi-0", base, end)
    _, first = one.copies["p-multi-0"][0]
    Path(f"{first}.timeindex").unlink()
    Path(f"{first}.log").write_bytes(b"")  # of a copying that failed
    one.copy("p-multi-0", base, end)
    (one.log_dir / "p-multi-0" / f"{base:020d}.log").unlink()
    same(kafkalog.open(one.log_dir, tiered=one.remote), ["p-multi-0"])


def test_a_log_dir_that_is_healthy_has_no_faults_as_remote_storage(tmp_path):
    for local in (None, LOG_DIR):
        report = kafkalog.verify_tiered(LOG_DIR, local)
        assert report.layout == "plain"
        assert not report.faults, [*map(str, report.faults)]
        assert report.n_copies == len([*LOG_DIR.glob("*/*.log")])
    alone, whole = kafkalog.open(kafkalog.tiered_location(None, LOG_DIR)), kafkalog.open(LOG_DIR)
    for key in whole:
        assert alone[key].to_table() == whole[key].to_table()
    kafkalog.restore_tiered(LOG_DIR, tmp_path / "restored")
    for path in LOG_DIR.glob("*/*.snapshot"):
        restored = tmp_path / "restored" / path.relative_to(LOG_DIR)
        # each where the log has it, and with its own content
        assert not restored.exists() or restored.read_bytes() == path.read_bytes()


def test_a_log_dir_without_one_of_its_segments_has_a_hole(tmp_path):
    shutil.copytree(LOG_DIR / "p-txn-0", tmp_path / "copies" / "p-txn-0")
    for path in (tmp_path / "copies" / "p-txn-0").glob(f"{156:020d}.*"):
        path.unlink()
    (fault,) = kafkalog.verify_tiered(tmp_path / "copies").faults
    assert (fault.kind, fault.first_offset, fault.last_offset, fault.damage) == ("hole", 156, 163, True)


@pytest.mark.parametrize("prefix", ["x/y_", "backup-", "x/y/"])
def test_a_prefix_need_not_be_a_directory(prefix, tmp_path):
    shutil.copytree(LOG_DIR, tmp_path / "data")
    for name in (prefix, "other_", "x/other"):
        one = TieredSet(tmp_path / "data", tmp_path / "remote", {"prefix": name, "chunk": 4096})
        if name == prefix:
            one.move("p-headers-0", 1)
            one.finish()
        else:
            one.copy("p-txn-0", 0, 13)
    remote = f"{tmp_path}/remote/{prefix}"
    place = kafkalog.tiered_location(tmp_path / "data", remote)
    same(kafkalog.open(place), ["p-headers-0"])
    assert [key.topic for key in place.store.remote_partitions] == ["p-headers"]
    # with a torn copy, only the name of the directory has the topic
    for path in (tmp_path / "remote").rglob("*.rsm-manifest"):
        path.unlink()
    layout = kafkalog.tiered_location(None, remote).store.layout
    assert [of.topic for of in layout.partitions()] == ["p-headers"]


HUGE = (2**31, 2**63 - 1, 2**63, 10**4000, 1e308, float("inf"), float("nan"), -1, True, "7", None, [], {})


def _numbers(content, path=()):
    """The places of all numbers of a manifest."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _numbers(value, (*path, name))
        elif isinstance(value, int) and not isinstance(value, bool):
            yield (*path, name)


@pytest.mark.parametrize("kind", thinned(["plain", "zstd-aes"], 2))
def test_a_manifest_with_any_number_is_an_error_or_right(kind, tmp_path):
    one = made(tmp_path, kind, **{"p-headers-0": 1})
    path = Path(f"{one.copies['p-headers-0'][0][1]}.rsm-manifest")
    content, expected = path.read_bytes(), kafkalog.open(LOG_DIR)["p-headers-0"].to_table()
    one.finish()

    def read():
        try:
            table = kafkalog.open(one.log_dir, tiered=one.remote, tiered_keys=KEYS)["p-headers-0"].to_table()
        except kafkalog.KafkalogError:
            return
        assert table == expected
        kafkalog.verify_tiered(one.remote, one.log_dir, keys=KEYS)

    for place in _numbers(json.loads(content)):
        for value in HUGE if THOROUGH else HUGE[::4]:
            changed = json.loads(content)
            at = changed
            for name in place[:-1]:
                at = at[name]
            at[place[-1]] = value
            path.write_text(json.dumps(changed))
            read()
    for data in (b"", b"[" * 10**5, b"7", b"[]", b'{"version":"1"}', b"\xff", b"{" * 100, b'"' + b"9" * 5000):
        path.write_bytes(data)
        read()
    # frames of zstd that promise more than there is
    frame = b"\x28\xb5\x2f\xfd\xe0" + (2**50).to_bytes(8, "little") + b"\x01\x00\x00"
    changed = json.loads(content)
    changed["chunkIndex"] |= {"type": "variable", "transformedChunks": base64.b64encode(frame).decode()}
    path.write_text(json.dumps(changed))
    read()


def test_any_byte_of_a_manifest_or_an_index_may_be_wrong(tmp_path):
    rng = np.random.default_rng(20261128)
    one = made(tmp_path, "plain", **{"p-headers-0": 1})
    one.finish()
    expected = kafkalog.open(LOG_DIR)["p-headers-0"].to_table()
    for suffix in (".rsm-manifest", ".indexes"):
        path = Path(f"{one.copies['p-headers-0'][0][1]}{suffix}")
        content = path.read_bytes()
        for _ in range(60 if THOROUGH else 8):
            data = bytearray(content)
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
            path.write_bytes(data)
            try:
                table = kafkalog.open(one.log_dir, tiered=one.remote)["p-headers-0"].to_table()
            except kafkalog.KafkalogError:
                assert suffix == ".rsm-manifest"
            else:
                assert table == expected
            kafkalog.verify_tiered(one.remote, one.log_dir)
        path.write_bytes(content)


def test_a_log_start_in_the_checkpoint_that_is_older_than_the_first_epoch_does_not_count(tmp_path):
    """A broker cuts epochs with the log, and writes the checkpoint a minute later."""
    one = made(tmp_path, **{"p-delrec-0": 1})
    one.finish()
    start = kafkalog.open(LOG_DIR)["p-delrec-0"].log_start_offset
    checkpoint, epochs = one.log_dir / "log-start-offset-checkpoint", one.log_dir / "p-delrec-0/leader-epoch-checkpoint"
    epochs.write_text(f"0\n1\n0 {start}\n")
    for at, expected in ((start - 10, start), (start, start), (start + 5, start + 5)):
        checkpoint.write_text(f"0\n1\np-delrec 0 {at}\n")
        stored = kafkalog.open(one.log_dir, tiered=one.remote)
        assert stored["p-delrec-0"].log_start_offset == expected


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_snapshot_belongs_to_the_segment_before_it_also_past_a_gap(tmp_path, is_damaged):
    """Compaction removes the last records of a segment, and leaves the snapshot where the next one begins."""
    for base in (0, 10):
        path = tmp_path / "t-0" / f"{base:020d}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(builder.batch_v2([builder.record_v2(0), builder.record_v2(1)], base_offset=base))
    path.with_suffix(".snapshot").write_bytes(b"")
    if is_damaged:
        (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"\xff" * 100)
    layout = find_layout(kafkalog.location(tmp_path.as_uri()))
    [of] = layout.partitions()
    assert [(one.start_offset, ".snapshot" in one.files) for one in layout.copies(of)] == [(0, True), (10, False)]


def test_a_missing_key_file_is_named_before_anything_is_read(tmp_path, capsys):
    one = made(tmp_path, "aes", **{"p-headers-0": 1})
    one.finish()
    (tmp_path / "key.pem").write_text(KEYS["key1"])
    (tmp_path / "empty.pem").write_text("")
    cat, verify = ["cat", str(one.log_dir / "p-headers-0"), "--tiered"], ["tiered", "verify"]
    for option, given in (("--tiered-key", cat), ("--tiered-key", verify), ("--key", verify)):
        for file, code, text in (
            ("absent.pem", 3, "absent.pem: file_unreadable: No such file"),
            ("empty.pem", 3, "does not decrypt"),
            ("key.pem", 0, ""),
        ):
            more = ["--log-dir", str(one.log_dir)] if given is verify else []
            found = main([*given, str(one.remote), *more, option, f"key1={tmp_path / file}"])
            assert found == code
            printed = capsys.readouterr()
            assert text in printed.err + printed.out
    secret = KEYS["key1"].replace("-----BEGIN", "")
    with pytest.raises(ReadError, match="neither PEM") as error:
        kafkalog.tiered_location(one.log_dir, one.remote, keys={"key1": secret})
    assert secret[:40] not in str(error.value)
