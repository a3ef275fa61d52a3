"""Copies of a partition to merge."""

import builder
import files

from kafkalog import format as kf


def batch(offset, entry):
    """`entry` is a leader epoch and a number that makes the content."""
    record = builder.record_v2(0, 0, None, b"%d" % entry[1])
    return builder.batch_v2([record], base_offset=offset, leader_epoch=entry[0])


def checkpoint(log):
    epochs = []
    for offset, (epoch, _) in enumerate(log):
        if not epochs or epoch > epochs[-1][0]:
            epochs.append((epoch, offset))
    return epochs


def replica(folder, log, *, bases=(0,), damaged=(), epochs=True):
    """A partition with a batch an offset; `damaged` batches have a wrong byte."""
    partition = folder / "t-0"
    partition.mkdir(parents=True)
    for base, end in zip(bases, [*bases[1:], len(log)], strict=True):
        data = b""
        for offset in range(base, end):
            one = bytearray(batch(offset, log[offset]))
            one[-1] ^= offset in damaged
            data += one
        (partition / kf.segment_file_name(base)).write_bytes(data)
    if epochs:
        entries = checkpoint(log)
        lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
        (partition / kf.LEADER_EPOCH_CHECKPOINT).write_text("\n".join(lines) + "\n")
    return partition


def expected(log, start=0):
    return [batch(offset, log[offset]) for offset in range(start, len(log))]


def hashes(root):
    return {f"{root}/{name}": digest for name, digest in files.hashes(root).items()}
