"""Three brokers' disks with random damage, and the truth: what is intact on any of them, in plain Python."""

from __future__ import annotations

import contextlib
import random
import shutil
from typing import NamedTuple

import builder
from conformance.damages import DAMAGES
from coordinator_records import record
from metadata_logs import TOPIC, topic_id, write_metadata

from kafkalog import format as kf
from kafkalog.errors import Reason

TIME = 1_700_000_000_000
SINGLES = ("single-a", "single-b", "single-c")
TRIPLES = ("orders", "stale", "lagging", "payments", "table", kf.CONSUMER_OFFSETS)
TOPICS = (*SINGLES, *TRIPLES)
COMPACTED = ("table", kf.CONSUMER_OFFSETS)
SETTINGS = {(TOPIC, "table"): {"cleanup.policy": "compact"}, (TOPIC, "orders"): {"retention.ms": "5000"}}
GROUPS = ("billing", "reports")


class Batch(NamedTuple):
    """A batch of a log."""

    first: int
    last: int
    epoch: int
    data: bytes


class Damage(NamedTuple):
    """What was done, and where."""

    kind: str
    disk: int
    name: str
    """Of a partition directory."""


class Cluster:
    """Log dirs of three brokers; `branches` has the histories of each topic, `copies` which one a disk has of it."""

    def __init__(self, root, seed):
        self.rng, self.root = random.Random(seed), root
        self.disks = [root / f"disk-{number}" for number in (1, 2, 3)]
        self.branches, self.copies, self.done = {}, {}, []
        for topic in TOPICS:
            self.branches[topic] = [self._log(topic)]
        self._diverge("stale")
        for number, disk in enumerate(self.disks):
            disk.mkdir(parents=True)
            lines = f"version=1\ncluster.id=kafkalogBrokenDisks01w\nnode.id={number + 1}\n"
            (disk / "meta.properties").write_text(lines)
            for topic in TOPICS:
                if topic not in SINGLES or SINGLES.index(topic) == number:
                    self._write(topic, number)
            epoch = max(branches[0][-1].epoch for branches in self.branches.values())
            write_metadata(disk, list(TOPICS), SETTINGS, number + 1, epoch)
            (disk / kf.CLEAN_SHUTDOWN_FILE).write_text("")

    # whole disks

    def _log(self, topic):
        """A history: some batches, in epochs that grow."""
        rng, found, offset, epoch = self.rng, [], 0, self.rng.randrange(3)
        if topic == kf.CONSUMER_OFFSETS:
            return self._commits()
        for number in range(rng.randrange(12, 40)):
            epoch += rng.random() < 0.1
            if topic == "payments" and number % 3 == 2:
                data = builder.control_batch(
                    rng.randrange(2), base_offset=offset, producer_id=7, leader_epoch=epoch, timestamp=TIME + offset
                )
                found.append(Batch(offset, offset, epoch, data))
                offset += 1
                continue
            n = rng.randrange(1, 5)
            if topic == "table" and rng.random() < 0.3:
                offset += rng.randrange(1, 4)  # compacted away
            records = [builder.record_v2(i, i, b"k%d" % (offset + i), rng.randbytes(30)) for i in range(n)]
            how = {"base_offset": offset, "leader_epoch": epoch, "base_timestamp": TIME + offset}
            if topic == "payments":
                how |= {"transactional": True, "producer_id": 7, "producer_epoch": 0, "base_sequence": offset}
            found.append(Batch(offset, offset + n - 1, epoch, builder.batch_v2(records, **how)))
            offset += n
        return found

    def _commits(self):
        found = []
        for offset in range(8):
            group = GROUPS[offset % 2]
            fields = {"offset": offset + 1, "leaderEpoch": -1, "metadata": "", "commitTimestamp": TIME}
            key, value = record("OffsetCommit", group, **fields)
            data = builder.batch_v2([builder.record_v2(0, 0, key, value)], base_offset=offset, base_timestamp=TIME)
            found.append(Batch(offset, offset, 0, data))
        return found

    def _diverge(self, topic):
        """Disk 3 goes on in an old epoch from some offset on, the others in the epoch of an unclean election."""
        log = self.branches[topic][0]
        at = self.rng.randrange(2, len(log) - 2)
        epoch = log[at].epoch
        lead = [*log[:at], *(with_epoch(one, one.epoch + 2) for one in log[at:])]
        others = [with_value(one, epoch, self.rng) for one in log[at : self.rng.randrange(at + 1, len(log) + 1)]]
        self.branches[topic] = [lead, [*log[:at], *others]]

    def _write(self, topic, number):
        branches = self.branches[topic]
        branch = 1 if topic == "stale" and number == 2 else 0
        log = branches[branch]
        if topic == "lagging" and number == 1:
            log = log[: self.rng.randrange(4, len(log))]
        self.copies[number, topic] = branch
        folder = self.disks[number] / f"{topic}-0"
        folder.mkdir()
        parts = []
        for one in log:
            if not parts or self.rng.random() < 0.15:
                parts.append([])
            parts[-1].append(one)
        for some in parts:
            (folder / kf.segment_file_name(some[0].first)).write_bytes(b"".join(one.data for one in some))
        entries = checkpoint_of(log)
        lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
        (folder / kf.LEADER_EPOCH_CHECKPOINT).write_text("\n".join(lines) + "\n")
        text = f"version: 0\ntopic_id: {topic_id(TOPICS.index(topic))}"
        (folder / kf.PARTITION_METADATA).write_text(text)

    # damage

    def damage(self, n, kinds=None):
        """Do some damage at random places."""
        for _ in range(n):
            kind = self.rng.choice(kinds or KINDS)
            number = self.rng.randrange(3)
            topics = [topic for topic in TOPICS if (self.disks[number] / f"{topic}-0").is_dir()]
            do_damage(self, kind, number, f"{self.rng.choice(topics or TOPICS)}-0")

    def logs(self, folder):
        """The segments of a copy, in order."""
        return sorted(folder.glob("*.log"))

    # the truth

    def intact(self, folder, topic):
        """The batches of any history that a copy still has, as they were."""
        return intact_batches(self, folder, self.branches[topic])

    def truth(self, topic):
        """Of a topic: the histories that may lead, each with its batches that are intact on any disk; None if no disk
        has it.
        """
        copies = []
        for number, disk in enumerate(self.disks):
            folder = disk / f"{topic}-0"
            if (number, topic) not in self.copies or not self.logs(folder):
                continue
            batches = self.intact(folder, topic)
            epochs, starts = stored_epochs(folder)
            last = max([*(one.epoch for one in batches), *epochs], default=-1)
            end = max([*(one.last + 1 for one in batches), int(self.logs(folder)[-1].stem)])
            copies.append((last, max([end, *starts]), end, self.copies[number, topic], batches))
        if not copies:
            return None
        best = max(copies, key=lambda one: one[:2])
        histories = {one[3] for one in copies if one[0] == best[0]}
        everything = set().union(*(one[4] for one in copies))
        return [[one for one in self.branches[topic][number] if one in everything] for number in sorted(histories)]


def do_damage(cluster, kind, number, name):
    """Damage a partition of a disk, or the disk around it."""
    # what is damaged already may lack what this kind needs
    with contextlib.suppress(ValueError, IndexError, FileNotFoundError):
        kind(cluster, cluster.disks[number] / name)
        cluster.done.append(Damage(kind.__name__, number + 1, name))


def intact_batches(cluster, folder, branches):
    """The batches of any history that a copy still has, as they were."""
    # a batch whose last byte is cut off would go on in the next file
    files = [path.read_bytes() for path in cluster.logs(folder)]
    known = {one.data: one for branch in branches for one in branch}
    return {one for text, one in known.items() if any(text in data for data in files)}


def said(report, name):
    """The offsets of a partition that a report calls lost; whether it says that of an open end or of no offsets too."""
    lost, is_open = set(), False
    for one in report.findings.rows:
        # of a gap between two segments, compaction may be the cause
        if (one.damage or one.reason is Reason.OFFSET_GAP) and f"/{name}" in (one.path or ""):
            if one.base_offset is None or one.last_offset is None:
                is_open = True
            else:
                lost |= {*range(one.base_offset, min(one.last_offset, 1000) + 1)}
    return lost, is_open


def with_epoch(one, epoch):
    """A batch of another leader."""
    return one._replace(epoch=epoch, data=one.data[:12] + epoch.to_bytes(4, "big") + one.data[16:])


def with_value(one, epoch, rng):
    """Another batch at the offsets of one."""
    n = one.last - one.first + 1
    records = [builder.record_v2(i, i, b"other", rng.randbytes(30)) for i in range(n)]
    data = builder.batch_v2(records, base_offset=one.first, leader_epoch=epoch, base_timestamp=TIME)
    return Batch(one.first, one.last, epoch, data)


def checkpoint_of(log):
    """Epochs and where they begin."""
    entries = []
    for one in log:
        if not entries or one.epoch > entries[-1][0]:
            entries.append((one.epoch, one.first))
    return entries


def stored_epochs(folder):
    """The epochs of a copy's file, and their starts; nothing if it cannot be read."""
    try:
        lines = (folder / kf.LEADER_EPOCH_CHECKPOINT).read_text().splitlines()
        rows = [tuple(map(int, line.split())) for line in lines[2:]]
        if lines[0] != "0" or len(rows) != int(lines[1]):
            return [], []
        return [epoch for epoch, _ in rows], [start for _, start in rows]
    except (OSError, ValueError, IndexError):
        return [], []


def _of_bytes(change):
    """A kind of damage to the bytes of a segment."""

    def kind(cluster, folder):
        path = cluster.rng.choice(cluster.logs(folder))
        data = bytearray(path.read_bytes())
        at = [start for start, _ in builder.batch_positions(bytes(data))]
        if len(at) < 2:
            raise ValueError("too short")
        change(data, [*at, len(data)], cluster.rng)
        path.write_bytes(data)

    kind.__name__ = change.__name__
    return kind


def lose_a_segment(cluster, folder):
    """Any segment, the last one too."""
    cluster.rng.choice(cluster.logs(folder)).unlink()


def lose_a_middle_segment(cluster, folder):
    """Not the first or the last."""
    cluster.rng.choice(cluster.logs(folder)[1:-1]).unlink()


def empty_a_segment(cluster, folder):
    """The file is there, and has no bytes."""
    cluster.rng.choice(cluster.logs(folder)).write_bytes(b"")


def zero_a_segment(cluster, folder):
    """As after a crash of a file system that has not written the data."""
    path = cluster.rng.choice(cluster.logs(folder))
    path.write_bytes(bytes(path.stat().st_size))


def zero_half_of_a_segment(cluster, folder):
    """From any byte on."""
    path = cluster.rng.choice(cluster.logs(folder))
    data = path.read_bytes()
    at = cluster.rng.randrange(len(data))
    path.write_bytes(data[:at] + bytes(len(data) - at))


def preallocate(cluster, folder):
    """A file that is longer than what was written."""
    with cluster.logs(folder)[-1].open("r+b") as file:
        file.truncate(file.seek(0, 2) + 40_960)


def punch_a_hole(cluster, folder):
    """A sparse file: a block of zeros in the middle."""
    path = cluster.rng.choice(cluster.logs(folder))
    data = bytearray(path.read_bytes())
    at = cluster.rng.randrange(len(data))
    data[at : at + 512] = bytes(len(data[at : at + 512]))
    path.write_bytes(data)


def cut_anywhere(cluster, folder):
    """The last segment ends early."""
    path = cluster.logs(folder)[-1]
    path.write_bytes(path.read_bytes()[: cluster.rng.randrange(path.stat().st_size)])


def overwrite_a_sector(cluster, folder):
    """Random bytes from somewhere on, but not from the offset or the epoch of a batch: no checksum covers these."""
    path = cluster.rng.choice(cluster.logs(folder))
    data = bytearray(path.read_bytes())
    start, end = cluster.rng.choice(builder.batch_positions(bytes(data)))
    at = cluster.rng.randrange(start + 21, end - 20)
    end = min(end, at + 64)
    data[at:end] = cluster.rng.randbytes(end - at)
    path.write_bytes(data)


def garble_the_last_offset(cluster, folder):
    """No checksum covers it; of a single copy, nothing here says that it is wrong."""
    if folder.name.removesuffix("-0") in SINGLES:
        raise ValueError("nothing says that it is wrong")
    if any((one.kind, one.name) == ("garble_the_last_offset", folder.name) for one in cluster.done):
        raise ValueError("two copies may have had the batch, and now none has")
    path = cluster.logs(folder)[-1]
    data = bytearray(path.read_bytes())
    start, _ = builder.batch_positions(bytes(data))[-1]
    bit = cluster.rng.randrange(6, 62)
    data[start : start + 8] = (int.from_bytes(data[start : start + 8], "big") ^ 1 << bit).to_bytes(8, "big")
    path.write_bytes(data)


def garble_the_last_epoch(cluster, folder):
    """No checksum covers it either: other copies have the batch, and the file of epochs lacks it."""
    topic, path = folder.name.removesuffix("-0"), cluster.logs(folder)[-1]
    if topic in SINGLES or not stored_epochs(folder)[0]:
        raise ValueError("nothing says that it is wrong")
    data = bytearray(path.read_bytes())
    start, _ = builder.batch_positions(bytes(data))[-1]
    data[start + 12 : start + 16] = (cluster.rng.randrange(1000, 2**31)).to_bytes(4, "big")
    path.write_bytes(data)


def keep_proofs(cluster, *names):
    """Fail if a wrong offset or epoch is in these partitions: nothing else may say that it is wrong."""
    wrong = ("garble_the_last_offset", "garble_the_last_epoch")
    if any(one.kind in wrong and one.name in names for one in cluster.done):
        raise ValueError("nothing would say that it is wrong")


def lose_epochs(cluster, folder):
    """No file of leader epochs."""
    keep_proofs(cluster, folder.name)
    (folder / kf.LEADER_EPOCH_CHECKPOINT).unlink()


def garble_epochs(cluster, folder):
    """A file of leader epochs that is none."""
    keep_proofs(cluster, folder.name)
    (folder / kf.LEADER_EPOCH_CHECKPOINT).write_bytes(cluster.rng.choice([b"", bytes(20), b"0\n5\n1 0\n", b"\xff\xfe"]))


def lose_partition_metadata(cluster, folder):
    """The id of its topic is in the metadata log alone."""
    (folder / kf.PARTITION_METADATA).unlink()


def empty_partition_metadata(cluster, folder):
    """As after a crash."""
    (folder / kf.PARTITION_METADATA).write_bytes(cluster.rng.choice([b"", bytes(44)]))


def garble_an_index(cluster, folder):
    """An index with other content."""
    suffix = cluster.rng.choice([kf.INDEX_SUFFIX, kf.TIME_INDEX_SUFFIX, ".txnindex"])
    cluster.rng.choice(cluster.logs(folder)).with_suffix(suffix).write_bytes(cluster.rng.randbytes(48))


def garble_a_snapshot(cluster, folder):
    """A producer snapshot with other content."""
    cluster.rng.choice(cluster.logs(folder)).with_suffix(".snapshot").write_bytes(cluster.rng.randbytes(48))


def lose_a_partition(cluster, folder):
    """The directory is gone."""
    keep_proofs(cluster, folder.name)
    shutil.rmtree(folder)


def lose_a_disk(cluster, folder):
    """All but its directory is gone."""
    if sum(any(disk.iterdir()) for disk in cluster.disks) < 3:
        raise ValueError("one is enough")
    keep_proofs(cluster, *(path.name for path in folder.parent.iterdir()))
    shutil.rmtree(folder.parent)
    folder.parent.mkdir()


def lose_the_metadata_log(cluster, folder):
    """Of one broker."""
    shutil.rmtree(folder.parent / kf.METADATA_DIRECTORY)


def add_lost_and_found(cluster, folder):
    """A directory of the file system."""
    (folder.parent / "lost+found").mkdir(exist_ok=True)


def lose_meta_properties(cluster, folder):
    """Nothing says which broker it was."""
    (folder.parent / "meta.properties").unlink()


def lose_the_marker(cluster, folder):
    """Killed."""
    (folder.parent / kf.CLEAN_SHUTDOWN_FILE).unlink()


def leave_a_deleted_partition(cluster, folder):
    """A directory that a broker was about to delete."""
    shutil.copytree(folder, folder.parent / f"gone-0.{cluster.rng.randbytes(16).hex()}-delete")


def leave_files_of_the_cleaner(cluster, folder):
    """What a crash leaves in the middle of a cleaning, and of a deletion."""
    path = cluster.rng.choice(cluster.logs(folder))
    path.with_suffix(cluster.rng.choice([".log.cleaned", ".log.deleted"])).write_bytes(path.read_bytes())


def garble_checkpoints(cluster, folder):
    """Checkpoint files of the log dir that are none."""
    name = cluster.rng.choice([kf.HIGH_WATERMARK_CHECKPOINT, kf.RECOVERY_POINT_CHECKPOINT])
    (folder.parent / name).write_bytes(cluster.rng.choice([b"", bytes(30), b"0\n9\norders 0 1\n"]))


KINDS = (
    # nothing tells of what is left out
    *(_of_bytes(one) for one in DAMAGES if one.__name__ != "leave_out"),
    *(garble_the_last_offset, garble_the_last_epoch),
    *(lose_a_segment, lose_a_middle_segment, empty_a_segment, zero_a_segment, zero_half_of_a_segment, preallocate),
    *(punch_a_hole, cut_anywhere, overwrite_a_sector, lose_epochs, garble_epochs, lose_partition_metadata),
    *(empty_partition_metadata, garble_an_index, garble_a_snapshot, lose_a_partition, lose_a_disk),
    *(lose_the_metadata_log, add_lost_and_found, lose_meta_properties, lose_the_marker, leave_a_deleted_partition),
    *(leave_files_of_the_cleaner, garble_checkpoints),
)
"""What happens to disks, to the files of a partition and to their bytes."""


def wrong_epochs(cluster, folder):
    """A file of leader epochs without the first ones, or with other starts."""
    keep_proofs(cluster, folder.name)
    topic, number = folder.name.removesuffix("-0"), cluster.disks.index(folder.parent)
    entries = checkpoint_of(cluster.branches[topic][cluster.copies[number, topic]])
    changed = [entries[1:], entries[:1], [(epoch, start + 1) for epoch, start in entries]]
    entries = cluster.rng.choice(changed)
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    (folder / kf.LEADER_EPOCH_CHECKPOINT).write_text("\n".join(lines) + "\n")


def flip_metadata(cluster, folder):
    """A bit of the metadata log."""
    path = cluster.rng.choice(cluster.logs(folder.parent / kf.METADATA_DIRECTORY))
    data = bytearray(path.read_bytes())
    data[cluster.rng.randrange(len(data))] ^= 1 << cluster.rng.randrange(8)
    path.write_bytes(data)


def cut_metadata(cluster, folder):
    """The metadata log ends early."""
    path = cluster.logs(folder.parent / kf.METADATA_DIRECTORY)[-1]
    path.write_bytes(path.read_bytes()[: cluster.rng.randrange(path.stat().st_size)])


OTHER_KINDS = (wrong_epochs, flip_metadata, cut_metadata)
"""What happens to the files that say what a log belongs to."""
