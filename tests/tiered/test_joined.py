"""A log dir with remote segments gives what it gave when all segments were local."""

import shutil
from pathlib import Path

import pytest
from conftest import GOLDEN
from Crypto.PublicKey import RSA
from tiered_sets import FINISHED, TieredSet

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import CorruptionWarning, NotKafkaError, ReadError, Reason

LOG_DIR = GOLDEN / "log_dir"
MOVED = {"p-txn-0": 2, "p-multi-0": 1, "p-delrec-0": 1, "p-headers-0": 1}
KEY = RSA.generate(2048)
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


@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("kind", KINDS)
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
    for keys, message in (({}, "key1"), ({"key1": RSA.generate(2048).export_key().decode()}, "does not decrypt")):
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
