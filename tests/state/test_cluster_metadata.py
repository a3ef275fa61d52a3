"""What the metadata log says of topics."""

import json
import random
import tempfile
from pathlib import Path

import pytest
from builder import ZSTD, batch_positions, batch_v2, control_batch, record_v2
from effort import examples
from golden_sets import unpacked
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_logs import topic_id, write_metadata

import kafkalog
from kafkalog import PartitionWriter, TopicPartition
from kafkalog.booting.metadata_log import encode_snapshot, snapshot_name
from kafkalog.cli import main
from kafkalog.errors import Reason
from kafkalog.protocol.encoder import encode_metadata_record
from kafkalog.state.cluster_metadata import cluster_metadata, leading_metadata, read_cluster_metadata


def topic_record(name, topic_id):
    """`TopicRecord`, version 0, as a value: frame version, type, version, compact name, id, no tagged fields."""
    return b"\x01\x02\x00" + bytes((len(name) + 1,)) + name.encode() + topic_id + b"\x00"


def test_a_window_that_decompresses_to_many_megabytes_is_read_whole(tmp_path):
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    filler = bytes(3 * 2**20)
    log = b"".join(
        batch_v2([record_v2(key=filler, value=topic_record(f"t{n}", bytes([n + 1] * 16)))], base_offset=n, codec=ZSTD)
        for n in range(6)
    )
    (directory / f"{0:020d}.log").write_bytes(log)
    metadata = read_cluster_metadata(tmp_path)
    assert metadata is not None
    assert metadata.findings == []
    assert sorted(metadata.topic_ids) == [f"t{n}" for n in range(6)]


def test_a_record_of_a_newer_version_is_a_finding_and_the_others_count(tmp_path):
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    newer = b"\x01\x02\x09" + topic_record("new", bytes([1] * 16))[3:]
    unknown = b"\x01\x7f\x00"
    values = [newer, unknown, topic_record("old", bytes([2] * 16))]
    log = batch_v2([record_v2(delta, value=value) for delta, value in enumerate(values)])
    (directory / f"{0:020d}.log").write_bytes(log)
    metadata = read_cluster_metadata(tmp_path)
    assert metadata is not None
    assert list(metadata.topic_ids) == ["old"]
    finding, unknown_type = metadata.findings
    assert "type 127 is not known" in unknown_type.detail
    assert finding.reason == "internal_record"
    assert finding.detail == "TopicRecord has version 9; known are 0 to 0"


TOPIC_ID = bytes([7] * 16)
NAME_ID = "BwcHBwcHBwcHBwcHBwcHBw"


def partition_record(number, topic_id=TOPIC_ID):
    """`PartitionRecord`, version 0, with replica 1."""
    fields = number.to_bytes(4, "big") + topic_id + b"\x02" + (1).to_bytes(4, "big") + b"\x02" + (1).to_bytes(4, "big")
    return b"\x01\x03\x00" + fields + b"\x01\x01" + (1).to_bytes(4, "big") + bytes(8) + b"\x00"


def snapshot(offset, *values, with_footer=True):
    """Name and content of a snapshot that ends before an offset."""
    header = control_batch(3, key=b"\0\0\0\3", value=bytes(10) + b"\0")
    footer = control_batch(4, key=b"\0\0\0\4", value=b"\0\0\0", base_offset=len(values) + 1)
    body = batch_v2([record_v2(n, value=value) for n, value in enumerate(values)], base_offset=1) if values else b""
    return f"{offset:020d}-0000000001.checkpoint", header + body + footer * with_footer


def log_dir(root, segments, *snapshots):
    """A log dir with a metadata log, whose segments have records at these offsets."""
    directory = root / "__cluster_metadata-0"
    directory.mkdir(parents=True)
    for base, records in segments.items():
        data = b"".join(batch_v2([record_v2(value=value)], base_offset=offset) for offset, value in records)
        (directory / f"{base:020d}.log").write_bytes(data)
    for name, data in snapshots:
        (directory / name).write_bytes(data)
    return root


def noops(first, stop):
    return [(offset, b"\x01\x14\x00\x00") for offset in range(first, stop)]


BEGUN = [(0, topic_record("t", TOPIC_ID)), (1, partition_record(0))]
TOPIC = topic_record("t", TOPIC_ID), partition_record(0)
COMPLETE = {
    "from 0": ({0: [*BEGUN, *noops(2, 5)]}, []),
    "two segments": ({0: BEGUN, 2: noops(2, 5)}, []),
    "a snapshot at the start": ({5: noops(5, 9)}, [snapshot(5, *TOPIC)]),
    "a snapshot past the start": ({5: noops(5, 9)}, [snapshot(7, *TOPIC)]),
    "a snapshot past the end": ({5: noops(5, 9)}, [snapshot(20, *TOPIC)]),
    "several snapshots": ({5: noops(5, 9)}, [snapshot(3, *TOPIC), snapshot(5, *TOPIC), snapshot(8, *TOPIC)]),
    "a snapshot alone": ({}, [snapshot(5, *TOPIC)]),
    "an empty segment after a snapshot": ({5: []}, [snapshot(5, *TOPIC)]),
    "a torn snapshot, and one before it": (
        {5: noops(5, 9)},
        [snapshot(5, *TOPIC), snapshot(8, *TOPIC, with_footer=False)],
    ),
}
INCOMPLETE = {
    "no snapshot": ({5: noops(5, 9)}, [], (0, 4)),
    "no snapshot, but the topic": ({5: [(5, TOPIC[0]), (6, TOPIC[1])]}, [], (0, 4)),
    "a snapshot from before the start": ({5: noops(5, 9)}, [snapshot(3, *TOPIC)], (3, 4)),
    "a torn snapshot": ({5: noops(5, 9)}, [snapshot(5, *TOPIC, with_footer=False)], (0, 4)),
    "a hole in a segment": ({0: [*BEGUN, *noops(4, 6)]}, [], (2, 3)),
    "a hole between segments": ({0: BEGUN, 6: noops(6, 9)}, [], (2, 5)),
    "a hole past a snapshot": ({5: [*noops(5, 6), *noops(9, 10)]}, [snapshot(5, *TOPIC)], (6, 8)),
    "a hole at a snapshot": ({0: [*BEGUN, *noops(9, 10)]}, [snapshot(5, *TOPIC)], (2, 8)),
    "an unknown topic": ({0: [(0, TOPIC[1]), *noops(1, 4)]}, [], (0, 0)),
    "an unknown topic in a snapshot": ({5: noops(5, 9)}, [snapshot(5, TOPIC[1])], (1, 1)),
}


@pytest.mark.parametrize(("segments", "snapshots"), COMPLETE.values(), ids=COMPLETE)
def test_a_complete_metadata_log_is_silent_and_knows_strays(tmp_path, segments, snapshots):
    metadata = read_cluster_metadata(log_dir(tmp_path, segments, *snapshots))
    assert metadata is not None
    assert metadata.is_complete
    torn = [data for _, data in snapshots if not data.endswith(snapshot(0)[1][-20:])]
    assert len(metadata.findings) == len(torn)
    assert metadata.partition(TopicPartition("t", 0)) is not None
    assert metadata.why_stray(TopicPartition("u", 0), NAME_ID, 1) is not None
    if segments:
        assert main(["metadata", str(tmp_path)]) == 0
        # that of the root files counts for itself: there is no meta.properties here
        reasons = {one.reason for one in kafkalog.verify(tmp_path).findings if one.damage}
        assert not reasons & {Reason.METADATA_INCOMPLETE, Reason.SEGMENT_MISSING}


@pytest.mark.parametrize(("segments", "snapshots", "offsets"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_metadata_log_that_lacks_records_says_so_and_calls_nothing_a_stray(
    tmp_path, capsys, segments, snapshots, offsets
):
    log_dir(tmp_path, segments, *snapshots)
    with PartitionWriter(tmp_path / "u-0", topic_id="RxLbS2aoRLmJ9xc1exUYuQ") as writer:
        writer.append({"value": [b"v"]})
    metadata = read_cluster_metadata(tmp_path)
    assert metadata is not None
    assert [(one.base_offset, one.last_offset) for one in metadata.gaps] == [offsets]
    assert metadata.why_stray(TopicPartition("u", 0), "RxLbS2aoRLmJ9xc1exUYuQ", 1) is None
    assert main(["metadata", str(tmp_path), "--json"]) == 1
    gaps = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"gaps"' in line]
    assert [(one["reason"], one["base_offset"]) for one in gaps] == [("metadata_incomplete", offsets[0])]
    found = kafkalog.verify(tmp_path)
    assert Reason.METADATA_INCOMPLETE in {one.reason for one in found.findings if one.damage}
    for command in ("ls", "preflight"):
        main([command, str(tmp_path)])
        assert "stray" not in "".join(capsys.readouterr())


def test_a_hole_that_a_snapshot_covers_is_damage_but_the_state_is_complete(tmp_path):
    metadata = read_cluster_metadata(log_dir(tmp_path, {0: [*BEGUN, *noops(4, 9)]}, snapshot(7, *TOPIC)))
    assert metadata is not None
    assert metadata.is_complete
    assert [(one.reason, one.base_offset, one.last_offset) for one in metadata.findings] == [
        (Reason.METADATA_INCOMPLETE, 2, 3)
    ]
    assert not kafkalog.verify(tmp_path).ok


def test_a_state_before_a_hole_is_complete(tmp_path):
    log_dir(tmp_path, {0: [*BEGUN, *noops(4, 9)]})
    for end, is_complete in ((1, True), (2, True), (3, False), (6, False)):
        metadata = read_cluster_metadata(tmp_path, end_offset=end)
        assert metadata is not None
        assert metadata.is_complete is is_complete, end


def test_damage_makes_what_follows_unknown_but_a_torn_end_does_not(tmp_path):
    log = log_dir(tmp_path, {0: [*BEGUN, *noops(2, 9)]}) / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    log.write_bytes(data[:-5])
    torn = read_cluster_metadata(tmp_path)
    assert torn is not None
    assert torn.is_complete
    data[-90] ^= 0xFF
    log.write_bytes(data)
    damaged = read_cluster_metadata(tmp_path)
    assert damaged is not None
    assert [one.base_offset for one in damaged.gaps] == [7]


@pytest.mark.parametrize(("name", "archive"), [("k44", "clean"), ("k30", "metadata"), ("k32", "metadata")])
def test_metadata_logs_of_brokers_are_complete_and_lack_records_once_any_is_taken_out(name, archive, tmp_path):
    source = unpacked(name, archive) / "__cluster_metadata-0"
    whole = read_cluster_metadata(source.parent)
    assert whole is not None
    assert whole.is_complete
    assert not whole.findings
    (log,) = source.glob("*.log")
    data = log.read_bytes()
    positions = [position for position, _ in batch_positions(data)]
    rng = random.Random(39)
    (tmp_path / source.name).mkdir()
    for start in rng.sample(range(1, len(positions) - 2), min(15, len(positions) - 3)):
        cut = data[: positions[start]] + data[positions[start + 1] :]
        (tmp_path / source.name / log.name).write_bytes(cut)
        lacking = read_cluster_metadata(tmp_path)
        assert lacking is not None
        first = int.from_bytes(data[positions[start] : positions[start] + 8], "big")
        assert [one.base_offset for one in lacking.gaps] == [first]
        following = {int.from_bytes(cut[positions[start] : positions[start] + 8], "big")}
        (tmp_path / source.name / log.name).unlink()
        (tmp_path / source.name / f"{following.pop():020d}.log").write_bytes(cut[positions[start] :])
        lacking = read_cluster_metadata(tmp_path)
        assert lacking is not None
        assert [one.base_offset for one in lacking.gaps] == [0]
        for path in (tmp_path / source.name).iterdir():
            path.unlink()


def test_the_metadata_of_a_log_dir_are_read_again_only_after_a_change(tmp_path):
    root = log_dir(tmp_path / "data", {0: [(0, topic_record("a", bytes([1] * 16)))]})
    first = cluster_metadata(root)
    assert cluster_metadata(root) is first
    with next((root / "__cluster_metadata-0").iterdir()).open("ab") as file:
        file.write(batch_v2([record_v2(value=topic_record("b", bytes([2] * 16)))], base_offset=1))
    assert sorted(cluster_metadata(root).topic_ids) == ["a", "b"]
    assert cluster_metadata(tmp_path) is None


def test_metadata_with_credentials_are_kept_apart_from_those_without(tmp_path):
    root = log_dir(tmp_path / "data", {0: noops(0, 2)})
    plain, whole = cluster_metadata(root), cluster_metadata(root, with_credentials=True)
    assert whole is not plain
    assert cluster_metadata(root) is plain
    assert cluster_metadata(root, with_credentials=True) is whole


def test_findings_about_metadata_have_the_path_as_it_was_given(tmp_path, monkeypatch):
    root = log_dir(tmp_path / "data", {5: noops(5, 6)})
    assert {Path(finding.path).is_absolute() for finding in cluster_metadata(root).findings} == {True}
    monkeypatch.chdir(tmp_path)
    assert {Path(finding.path).is_absolute() for finding in cluster_metadata(Path("data")).findings} == {False}
    log_dir(tmp_path / "other" / "data", {0: noops(0, 2)})
    monkeypatch.chdir(tmp_path / "other")
    assert cluster_metadata(Path("data")).findings == []


@given(st.data())
@settings(max_examples=examples(150))
def test_what_one_log_dir_lacks_comes_from_the_others(data):
    n = 12
    with tempfile.TemporaryDirectory() as folder:
        kept: dict[int, int] = {}
        known = []
        for number in range(data.draw(st.integers(1, 3))):
            root = Path(folder) / str(number)
            [log] = write_metadata(root, {f"t{topic}": topic_id(topic) for topic in range(n)}, {}).glob("*.log")
            content = log.read_bytes()
            batches = [content[start:end] for start, end in batch_positions(content)]
            length = data.draw(st.integers(0, len(batches)))
            broken = data.draw(st.sets(st.integers(0, len(batches) - 1), max_size=6))
            log.write_bytes(
                b"".join(
                    batch[:-1] + bytes([batch[-1] ^ 1]) if at in broken else batch
                    for at, batch in enumerate(batches[:length])
                )
            )
            kept |= {at: number for at in range(length) if at not in broken}
            known.append((root, cluster_metadata(root)))
        place, leading, later = leading_metadata(data.draw(st.permutations(known)))
        # each topic is two records: itself, and its partition
        assert {*leading.topic_ids} == {f"t{at // 2}" for at in kept if not at % 2}
        assert leading.end_offset == max(kept, default=-1) + 1
        assert leading.gaps or len(kept) == leading.end_offset
        assert not later
        lost = {at for gap in leading.gaps for at in range(gap.base_offset, (gap.last_offset or gap.base_offset) + 1)}
        assert lost >= {*range(leading.end_offset)} - {*kept}
        assert not lost & {*kept}
        assert place in dict(known)


def test_a_log_dir_with_a_snapshot_leads_before_one_whose_beginning_is_missing(tmp_path):
    topics = {f"t{number}": topic_id(number) for number in range(12)}
    (log,) = write_metadata(tmp_path / "late", topics, {}).glob("*.log")
    batches = [log.read_bytes()[start:end] for start, end in batch_positions(log.read_bytes())]
    log.with_name(f"{10:020}.log").write_bytes(b"".join(batches[10:]))
    log.unlink()
    early = tmp_path / "early" / "__cluster_metadata-0"
    early.mkdir(parents=True)
    records = [encode_metadata_record("Topic", 0, name=name, topicId=known) for name, known in [*topics.items()][:3]]
    (early / snapshot_name(8)).write_bytes(encode_snapshot(records, 1, []))
    known = [(path, cluster_metadata(path)) for path in (tmp_path / "late", tmp_path / "early")]
    place, leading, later = leading_metadata(known)
    assert (place.name, sorted(leading.topic_ids), leading.end_offset) == ("early", ["t0", "t1", "t2"], 9)
    assert later.endswith("late has records after offset 8, but lacks earlier ones")
