"""Moves segments of a log dir to remote storage, as a broker with a plugin does, and writes the metadata topic."""

import base64
import contextlib
import functools
import json
import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import zstandard
from golden_sets import made_once

import kafkalog
from kafkalog.format import PRODUCER_SNAPSHOT_DTYPE
from kafkalog.records.header_walk import walk
from kafkalog.state.checkpoints import encode_checkpoint
from kafkalog.state.producers import encode_snapshot
from kafkalog.storage.source import BufferSource

STARTED, FINISHED, DELETING, DELETED = range(4)
SUFFIXES = (".index", ".timeindex", ".txnindex")
_INDEXES = {".index": "offset", ".timeindex": "timestamp", ".snapshot": "producerSnapshot"}
_INDEXES |= {".leader_epoch_checkpoint": "leaderEpoch", ".txnindex": "transaction"}


@functools.cache
def key_pair(number=1):
    """A key pair of RSA, which takes a second to make: the same in each run, and made once in it."""
    from Crypto.PublicKey import RSA

    def make(target):
        target.mkdir(parents=True)
        (target / "key.pem").write_bytes(RSA.generate(2048, random.Random(number).randbytes).export_key())

    return RSA.import_key((made_once("keys", str(number), make) / "key.pem").read_bytes())


class TieredSet:
    """A log dir and its remote storage.

    `aiven` has options of Aiven's plugin: `prefix`, `chunk`, `compressed`, and `key` (an id and a key pair); without
    it the layout is that of LocalTieredStorage.
    """

    def __init__(self, log_dir, remote, aiven=None):
        self.log_dir, self.remote, self.aiven = log_dir, remote, aiven
        self.events = []
        self.copies = {}
        """Id and main path (without suffix) of each copy, by partition."""

    def clone(self, place):
        """A copy of everything in `data` and `remote` of a directory, to damage."""
        found = TieredSet(place / "data", place / "remote", self.aiven)
        shutil.copytree(self.log_dir, found.log_dir)
        shutil.copytree(self.remote, found.remote)
        found.events = [*self.events]
        for partition, copies in self.copies.items():
            moved = [(identity, found.remote / path.relative_to(self.remote)) for identity, path in copies]
            found.copies[partition] = moved
        return found

    def move(self, partition, n_local=1):
        """Move all segments but the last to remote storage."""
        for base, end in self.bounds(partition)[:-n_local]:
            self.copy(partition, base, end)
            for suffix in (".log", *SUFFIXES):
                (self.log_dir / partition / f"{base:020d}{suffix}").unlink(missing_ok=True)

    def bounds(self, partition):
        """First and last offset of each local segment."""
        bases = sorted(int(path.stem) for path in (self.log_dir / partition).glob("*.log"))
        return [*zip(bases, [base - 1 for base in bases[1:]] + [10**9], strict=True)]

    def topic_id(self, partition):
        """The id of the partition's topic."""
        lines = (self.log_dir / partition / "partition.metadata").read_text().splitlines()
        return lines[1].partition(": ")[2]

    def copy(self, partition, base, end, *, state=FINISHED, epochs=None):
        """Copy a segment, and report it up to a state; None for no event. Returns its id."""
        place = self.log_dir / partition
        number = len(self.events) + sum(map(len, self.copies.values()))
        drawn = random.Random(f"{partition} {base} {end} {number}").randbytes(16)
        identity = base64.urlsafe_b64encode(drawn).decode().rstrip("=")
        checkpoint = (place / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        starts = [(int(epoch), int(start)) for epoch, start in map(str.split, checkpoint)]
        begun = [(epoch, start) for epoch, start in starts if start <= end]
        files = {
            suffix: (place / f"{base:020d}{suffix}").read_bytes()
            for suffix in (".log", *SUFFIXES)
            if (place / f"{base:020d}{suffix}").exists()
        }
        snapshot = place / f"{end + 1:020d}.snapshot"
        files[".snapshot"] = (
            snapshot.read_bytes() if snapshot.exists() else encode_snapshot(np.empty(0, PRODUCER_SNAPSHOT_DTYPE))
        )
        files[".leader_epoch_checkpoint"] = encode_checkpoint(begun)
        files.setdefault(".index", b"")
        files.setdefault(".timeindex", b"")
        if epochs is None:
            first = max((n for n, (_, start) in enumerate(begun) if start <= base), default=0)
            epochs = {epoch: max(start, base) for epoch, start in begun[first:]}
        self._store(partition, base, end, identity, files, epochs)
        if state is not None:
            self.report(partition, base, end, identity, epochs, len(files[".log"]), state, newest_in(files[".log"]))
        return identity

    def report(self, partition, base, end, identity, epochs, size, state, newest=1700000000000):
        """Add the events that lead to a state."""
        of = self._segment(partition, identity)
        ranges = b"".join(struct.pack(">iq", epoch, start) + b"\0" for epoch, start in epochs.items())
        body = struct.pack(">qqiqq", base, end, 1, newest, 1700000000000) + bytes([len(epochs) + 1]) + ranges
        self.events.append(b"\1\0\0" + of + body + struct.pack(">i", size) + b"\0" + b"\0" + b"\0")
        for one in {FINISHED: (1,), DELETING: (1, 2), DELETED: (1, 2, 3)}.get(state, ()):
            self.change(partition, identity, one)

    def change(self, partition, identity, state):
        """Add an event that changes the state."""
        of = self._segment(partition, identity)
        self.events.append(b"\1\1\0" + of + struct.pack(">iq", 1, 1700000000001) + b"\0" + bytes([state]) + b"\0")

    def _segment(self, partition, identity):
        topic, _, number = partition.rpartition("-")
        of = _string(topic) + _id(self.topic_id(partition)) + struct.pack(">i", int(number))
        return of + b"\0" + _id(identity) + b"\0"

    def finish(self):
        """Write the metadata topic."""
        values = pa.table({"value": pa.array(self.events, pa.binary())})
        kafkalog.write_table(values, self.log_dir, topic="__remote_log_metadata", stage_in=self.log_dir.parent)

    def _store(self, partition, base, end, identity, files, epochs):
        topic, _, number = partition.rpartition("-")
        topic_id = self.topic_id(partition)
        if self.aiven is None:
            main = self.remote / f"{partition}-{topic_id}" / f"{base:020d}-{identity}"
            objects = files
        else:
            place = f"{self.remote}/{self.aiven.get('prefix', '')}{topic}-{topic_id}/{number}"
            main = Path(f"{place}/{base:020d}-{identity}")
            objects = aiven_objects((topic, topic_id, int(number)), (base, end), identity, files, epochs, **self.aiven)
        main.parent.mkdir(parents=True, exist_ok=True)
        for suffix, data in objects.items():
            Path(f"{main}{suffix}").write_bytes(data)
        self.copies.setdefault(partition, []).append((identity, main))


def newest_in(log):
    """The largest timestamp of a segment; a time of its own if it has none, as brokers have it."""
    newest = -1
    with contextlib.suppress(kafkalog.KafkalogError):  # some tests store bytes that are no log
        for window in walk(BufferSource(log)):
            newest = max(newest, int(window.batches.max_timestamp.max()))
    return newest if newest >= 0 else 1_700_000_000_000


def aiven_objects(of, bounds, identity, files, epochs, *, chunk=3000, compressed=False, key=None, prefix=""):
    """The objects of a segment, by suffix."""
    source = random.Random(identity)
    log, secret, aad = files[".log"], source.randbytes(32), source.randbytes(32)

    def seal(data):
        if key is None:
            return data
        from Crypto.Cipher import AES

        nonce = source.randbytes(12)
        cipher = AES.new(secret, AES.MODE_GCM, nonce=nonce)
        cipher.update(aad)
        return nonce + b"".join(cipher.encrypt_and_digest(data))

    pieces = [log[at : at + chunk] for at in range(0, len(log), chunk)]
    if compressed:
        pieces = [zstandard.ZstdCompressor(write_content_size=True).compress(piece) for piece in pieces]
    pieces = [seal(piece) for piece in pieces]
    index = {"type": "fixed", "originalChunkSize": chunk, "originalFileSize": len(log)}
    if compressed:
        packed = zstandard.ZstdCompressor(write_content_size=True).compress(encode_sizes([*map(len, pieces)]))
        index |= {"type": "variable", "transformedChunks": base64.b64encode(packed).decode()}
    else:
        last = len(pieces[-1]) if pieces else 0
        index |= {"transformedChunkSize": chunk + (28 if key else 0), "finalTransformedChunkSize": last}
    places = {}
    blob = b""
    for suffix, name in _INDEXES.items():
        data = files.get(suffix)
        places[name] = None
        if data is not None:
            data = seal(data) if data else b""
            places[name] = {"position": len(blob), "size": len(data)}
            blob += data
    topic_partition = {"topicId": of[1], "topicPartition": {"topic": of[0], "partition": of[2]}}
    meta = {"remoteLogSegmentId": {"topicIdPartition": topic_partition, "id": identity}}
    meta |= {"startOffset": bounds[0], "endOffset": bounds[1], "maxTimestampMs": newest_in(log)}
    meta["segmentLeaderEpochs"] = {str(epoch): start for epoch, start in epochs.items()}
    manifest = {"version": "1", "chunkIndex": index, "segmentIndexes": places, "compression": compressed}
    if key is not None:
        from Crypto.Cipher import PKCS1_OAEP
        from Crypto.Hash import SHA3_512

        cipher = PKCS1_OAEP.new(key[1].public_key(), hashAlgo=SHA3_512, randfunc=source.randbytes)
        wrapped = cipher.encrypt(secret)
        data_key = f"{key[0]}:{base64.b64encode(wrapped).decode()}"
        manifest["encryption"] = {"dataKey": data_key, "aad": base64.b64encode(aad).decode()}
    manifest["remoteLogSegmentMetadata"] = meta
    return {".log": b"".join(pieces), ".indexes": blob, ".rsm-manifest": json.dumps(manifest).encode()}


def encode_sizes(sizes):
    """Sizes of chunks, as a manifest has them."""
    if len(sizes) < 2:
        return struct.pack(f">{1 + len(sizes)}i", len(sizes), *sizes)
    base = min(sizes[:-1])
    width = max(1, *(((size - base).bit_length() + 7) // 8 for size in sizes[:-1]))
    body = b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
    return struct.pack(">iib", len(sizes), base, width) + body + struct.pack(">i", sizes[-1])


def _string(text):
    return bytes([len(text) + 1]) + text.encode()


def _id(text):
    return base64.urlsafe_b64decode(text + "==")
