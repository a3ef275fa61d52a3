"""The settings of `server.properties` that decide which log dirs a broker starts on, and with which quorum.

Mirrors `AbstractKafkaConfig.logDirs`, `MetadataLogConfig` and `QuorumConfig`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkalog.state.checkpoints import java_number, node_id_of
from kafkalog.state.log_config import boolean_of
from kafkalog.storage.location import Place

_DEFAULT_LOG_DIR: Final = "/tmp/kafka-logs"
_VOTERS: Final = "controller.quorum.voters"


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A broker's configuration; without a file nothing is known, and each attribute is empty."""

    path: str = ""
    """The file."""
    node_id: str | None = None
    log_dirs: tuple[Path, ...] = ()
    """In the file's order; empty if the file names none."""
    has_empty_dir: bool = False
    """Whether `log.dirs` has an empty entry, as after a comma at its end."""
    metadata_log_dir: Path | None = None
    """The log dir with the metadata log, the first one by default; None for a broker with ZooKeeper."""
    roles: frozenset[str] = frozenset()
    """`process.roles`: "broker", "controller" or both; empty for a broker with ZooKeeper."""
    voters: tuple[int, ...] = ()
    """Ids of `controller.quorum.voters`."""
    is_dynamic: bool = False
    """Whether the metadata log has the voters: `controller.quorum.bootstrap.servers` alone is set."""
    has_remote_storage: bool = True
    """Whether tiered topics can be served; True if nothing is known."""

    @classmethod
    def of(cls, path: str | os.PathLike[str], settings: Mapping[str, object]) -> BrokerConfig:
        """Interpret the content of a `server.properties`."""
        texts = {name: str(value).strip() for name, value in settings.items()}
        listed = texts.get("log.dirs") or texts.get("log.dir") or ""
        log_dirs = tuple(map(Path, _list(listed)))
        roles = frozenset(_list(texts.get("process.roles", "")))
        metadata = texts.get("metadata.log.dir")
        first = Path(metadata) if metadata else next(iter(log_dirs), Path(_DEFAULT_LOG_DIR))
        voters = (java_number(one.partition("@")[0], 31) for one in _list(texts.get(_VOTERS, "")))
        return cls(
            path=os.fspath(path),
            node_id=node_id_of(texts) or None,
            log_dirs=log_dirs,
            has_empty_dir=bool(log_dirs) and not all(one.strip() for one in listed.split(",")),
            metadata_log_dir=first if roles else None,
            roles=roles,
            voters=tuple(one for one in voters if one is not None),
            is_dynamic=bool(texts.get("controller.quorum.bootstrap.servers")) and not texts.get(_VOTERS),
            has_remote_storage=boolean_of(texts.get("remote.log.storage.system.enable", "")) is True,
        )

    @property
    def is_controller(self) -> bool:
        """Whether the node takes part in the quorum."""
        return "controller" in self.roles

    @property
    def all_dirs(self) -> tuple[Path, ...]:
        """The log dirs, and that of the metadata log."""
        more = () if self.metadata_log_dir is None else (self.metadata_log_dir,)
        return tuple(one for one in dict.fromkeys((*self.log_dirs, *more)) if self.log_dirs)

    def others(self, roots: Sequence[Place]) -> list[Path] | None:
        """The log dirs that are not among the roots; None if none of the roots is a log dir of this broker.

        Disks that are mounted elsewhere, or copies, have other paths than those of the file.
        """
        real = {os.path.realpath(root) for root in roots}
        others = [one for one in self.all_dirs if os.path.realpath(one) not in real]
        return None if len(others) == len(self.all_dirs) else others

    def holds_metadata_log(self, root: Place) -> bool:
        """Whether a root is the log dir of the metadata log."""
        mine = self.metadata_log_dir
        return mine is not None and os.path.realpath(mine) == os.path.realpath(root)


NO_CONFIG: Final = BrokerConfig()
"""Without a `server.properties`."""


def _list(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]
