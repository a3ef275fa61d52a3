"""Damage to the files of a log dir that a broker reads when it starts, and whether a real 4.3.1 starts with it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

META, QUORUM, BOOTSTRAP = "meta.properties", "__cluster_metadata-0/quorum-state", "bootstrap.checkpoint"
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


class RootDamage(NamedTuple):
    """A change to a log dir whose partition `PARTITION` is intact."""

    change: Callable[[Path, str], object]
    """Takes the log dir and the name of a partition in it."""
    file: str
    """The file that a report names; "" if the broker starts."""


def put(file: str, data: bytes, *, starts: bool = False) -> RootDamage:
    return RootDamage(lambda root, partition: (root / file).write_bytes(data), "" if starts else file)


def removed(file: str, *, starts: bool = False) -> RootDamage:
    return RootDamage(lambda root, partition: (root / file).unlink(missing_ok=True), "" if starts else file)


def edited(file: str, pattern: bytes, replacement: bytes, *, starts: bool = False) -> RootDamage:
    def change(root: Path, partition: str) -> None:
        data, n = re.subn(pattern, replacement, (root / file).read_bytes(), count=1)
        assert n, f"{pattern!r} is not in {file}"
        (root / file).write_bytes(data)

    return RootDamage(change, "" if starts else file)


def entry(text: bytes) -> Callable[[Path, str], bytes]:
    """An offset checkpoint's content, with the name of the partition for TP."""
    return lambda root, partition: text.replace(b"TP", partition.rpartition("-")[0].encode() + b" 0")


def checkpoint(name: str, text: bytes, *, starts: bool = False) -> RootDamage:
    return RootDamage(
        lambda root, partition: (root / name).write_bytes(entry(text)(root, partition)), "" if starts else name
    )


def newest_snapshot(root: Path) -> Path:
    return max((root / "__cluster_metadata-0").glob("*.checkpoint"))


def snapshot(change: Callable[[bytes], bytes]) -> RootDamage:
    def apply(root: Path, partition: str) -> None:
        path = newest_snapshot(root)
        path.write_bytes(change(path.read_bytes()))

    return RootDamage(apply, "__cluster_metadata-0/*.checkpoint")


def future(*letters: str) -> Callable[[Path, str], None]:
    def change(root: Path, partition: str) -> None:
        for letter in letters:
            shutil.copytree(root / partition, root / f"{partition}.{letter * 32}-future")

    return change


def late_log(root: Path, partition: str) -> None:
    """The metadata log begins after 0, and no snapshot is there."""
    directory = root / "__cluster_metadata-0"
    log = min(directory.glob("*.log"))
    data, positions = log.read_bytes(), [0]
    while positions[-1] + 61 < len(data) and len(positions) < 8:
        positions.append(positions[-1] + 12 + int.from_bytes(data[positions[-1] + 8 : positions[-1] + 12], "big"))
    for path in directory.iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot", ".checkpoint"):
            path.unlink()
    base = int.from_bytes(data[positions[-1] : positions[-1] + 8], "big")
    (directory / f"{base:020d}.log").write_bytes(data[positions[-1] :])


NO_CONTENT = {"empty": b"", "zeros": bytes(80), "newline": b"\n"}

CASES: dict[str, RootDamage] = {
    "good": RootDamage(lambda root, partition: None, ""),
    **{f"meta_{name}": put(META, data) for name, data in NO_CONTENT.items()},
    "meta_missing": removed(META),
    "meta_no_node": edited(META, rb"node.id=\d+\r?\n", b""),
    "meta_negative_node": edited(META, rb"node.id=\d+", b"node.id=-1"),
    "meta_text_for_node": edited(META, rb"node.id=\d+", b"node.id=one"),
    "meta_space_after_node": edited(META, rb"node.id=(\d+)", rb"node.id=\1 "),
    "meta_version_2": edited(META, rb"version=1", b"version=2"),
    "meta_version_0": edited(META, rb"version=1", b"version=0"),
    "meta_no_version": edited(META, rb"version=1\r?\n", b""),
    "meta_text_for_version": edited(META, rb"version=1", b"version=x"),
    "meta_no_cluster": edited(META, rb"cluster.id=.*\n", b""),
    "meta_bad_directory": edited(META, rb"directory.id=.*", b"directory.id=xyz"),
    "meta_zero_directory": edited(META, rb"directory.id=.*", b"directory.id=AAAAAAAAAAAAAAAAAAAAAA"),
    "meta_no_directory": edited(META, rb"directory.id=.*\n", b"", starts=True),
    "meta_bad_escape": edited(META, rb"$", rb"x=\\uZZZZ"),
    "meta_other_bytes": edited(META, rb"$", b"\xff\xfe=1\n\0\1more", starts=True),
    "meta_crlf": edited(META, rb"\n", b"\r\n", starts=True),
    **{f"quorum_{name}": put(QUORUM, data) for name, data in NO_CONTENT.items()},
    "quorum_missing": removed(QUORUM, starts=True),
    "quorum_cut": edited(QUORUM, rb".{20}$", b""),
    **{f"quorum_{word}": put(QUORUM, word.encode()) for word in ("[]", "{}", "null", "{")},
    "quorum_version_2": edited(QUORUM, rb'"data_version":\d', b'"data_version":2'),
    "quorum_text_for_version": edited(QUORUM, rb'"data_version":0', b'"data_version":"0"', starts=True),
    "quorum_text_for_leader": edited(QUORUM, rb'"leaderId":(-?\d+)', rb'"leaderId":"\1"'),
    "quorum_fraction_for_leader": edited(QUORUM, rb'"leaderId":-?\d+', rb'"leaderId":1.5'),
    "quorum_large_leader": edited(QUORUM, rb'"leaderId":-?\d+', rb'"leaderId":99999999999'),
    "quorum_no_epoch": edited(QUORUM, rb'"leaderEpoch":\d+,', b""),
    "quorum_no_voters": edited(QUORUM, rb'"currentVoters":\[[^]]*\],', b""),
    "quorum_bad_voters": edited(QUORUM, rb'"currentVoters":\[[^]]*\]', b'"currentVoters":[1]'),
    "quorum_null_cluster": edited(QUORUM, rb'"clusterId":"[^"]*"', b'"clusterId":null'),
    "quorum_more_fields": edited(QUORUM, rb"^{", b'{"more":1,', starts=True),
    "quorum_garbage_after": edited(QUORUM, rb"$", b"garbage\n\0\0", starts=True),
    **{
        f"{name}_{what}": checkpoint(name, text, starts=what in ("empty", "only_version", "crlf", "text_for_offset"))
        for name in CHECKPOINTS
        for what, text in {
            **NO_CONTENT,
            "only_version": b"0\n",
            "crlf": b"0\r\n1\r\nTP 0\r\n",
            "text_for_offset": b"0\n1\nTP x\n",
            "too_few": b"0\n2\nTP 0\n",
            "too_many": b"0\n0\nTP 0\n",
            "version_1": b"1\n1\nTP 0\n",
            "two_fields": b"0\n1\norders 0\n",
            "blank_line": b"0\n1\nTP 0\n\n",
            "garbage_after": b"0\n1\nTP 0\ngarbage",
            "not_utf8": b"0\n1\n\xffTP 0\n",
            "zeros_after": b"0\n1\nTP 0\n" + bytes(10),
        }.items()
    },
    **{f"{name}_missing": removed(name, starts=True) for name in CHECKPOINTS},
    "bootstrap_missing": removed(BOOTSTRAP, starts=True),
    **{f"bootstrap_{name}": put(BOOTSTRAP, data) for name, data in NO_CONTENT.items()},
    "bootstrap_text": put(BOOTSTRAP, b"text, and no batch of any format at all"),
    "bootstrap_zeros_after": edited(BOOTSTRAP, rb"$", bytes(40)),
    "bootstrap_cut": RootDamage(
        lambda root, partition: (root / BOOTSTRAP).write_bytes((root / BOOTSTRAP).read_bytes()[:-10]), ""
    ),
    "snapshot_empty": snapshot(lambda data: b""),
    "snapshot_zeros": snapshot(lambda data: bytes(len(data))),
    "snapshot_flip": snapshot(
        lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    ),
    "snapshot_garbage_after": snapshot(lambda data: data + b"garbage " * 5),
    "snapshot_no_header": snapshot(lambda data: data[12 + int.from_bytes(data[8:12], "big") :]),
    "metadata_late": RootDamage(late_log, "__cluster_metadata-0"),
    "future_next_to_it": RootDamage(future("a"), "*-future"),
    "two_futures": RootDamage(future("a", "b"), "*-future"),
    "other_directory": RootDamage(lambda root, partition: (root / "lost+found").mkdir(), "lost+found"),
}
