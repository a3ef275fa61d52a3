"""Producer state: what a broker knows of the producers of a partition, in the snapshot files that it leaves.

A snapshot is viewed as an array, an entry a producer. Like an index it is a hint: what is in the batches counts.
Mirrors `ProducerStateManager.readSnapshot`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog._kernels.crc import checksum_crc32c
from kafkalog.errors import Reason, SidecarError
from kafkalog.source import read_file


@dataclass(frozen=True, eq=False, slots=True)
class ProducerSnapshot:
    """One `.snapshot` file: the newest batch and the open transaction of each producer.

    Attributes
    ----------
    end_offset : int or None
        The offset that the file is named after: the state is that of everything below it.
    entries : PRODUCER_SNAPSHOT_DTYPE[n]
        In file order, which is that of a Java `HashMap`.
    path : str or None
    """

    end_offset: int | None
    entries: npt.NDArray[np.void]
    path: str | None = None

    def __len__(self) -> int:
        return self.entries.size

    def __repr__(self) -> str:
        return f"ProducerSnapshot({len(self)} producers, end_offset={self.end_offset})"


def read_snapshot(path: str | os.PathLike[str]) -> ProducerSnapshot:
    """Read a producer snapshot.

    Raises
    ------
    SidecarError
        `snapshot_version`, `snapshot_crc` or `snapshot_size`: another version than 1, a wrong checksum, or a size that
        is not that of the entries announced.

    Notes
    -----
    ``i16 version | u32 crc | i32 n | n x 46 bytes``; the CRC-32C covers everything behind itself.
    Source: ProducerStateManager.readSnapshot, Kafka 4.3.
    """
    data = np.frombuffer(read_file(path, max_bytes=MAX_SNAPSHOT_BYTES), np.uint8)
    if data.size < _HEADER.itemsize:
        detail = f"{data.size} bytes are fewer than the {_HEADER.itemsize} of the header"
        raise SidecarError(Reason.SNAPSHOT_SIZE, detail, path=path, position=0)
    header = data[: _HEADER.itemsize].view(_HEADER)[0]
    if header["version"] != 1:
        raise SidecarError(Reason.SNAPSHOT_VERSION, f"version {header['version']}; Kafka has 1", path=path, position=0)
    if checksum_crc32c(data[_CRC_END:]) != header["crc"]:
        detail = "the checksum in the file is not that of its bytes"
        raise SidecarError(Reason.SNAPSHOT_CRC, detail, path=path, position=2)
    body = data[_HEADER.itemsize :]
    n = int(header["n_entries"])
    if n * kf.PRODUCER_SNAPSHOT_DTYPE.itemsize != body.size:
        detail = (
            f"{n} entries of {kf.PRODUCER_SNAPSHOT_DTYPE.itemsize} bytes are announced, {body.size} bytes are there"
        )
        raise SidecarError(Reason.SNAPSHOT_SIZE, detail, path=path, position=_CRC_END)
    entries = body.view(kf.PRODUCER_SNAPSHOT_DTYPE)
    return ProducerSnapshot(kf.parse_base_offset(os.path.basename(path)), entries, os.fspath(path))


MAX_SNAPSHOT_BYTES = 2**30
_HEADER = np.dtype([("version", ">i2"), ("crc", ">u4"), ("n_entries", ">i4")])
_CRC_END = 6
