"""The releases of Kafka that a boot can be for: the levels of their features, and the settings that they reject."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafkalog.errors import ConfigWarning
from kafkalog.state.log_config import LogConfig

DEFAULT_RELEASE: Final = "4.3"
_LEAST_SEGMENT_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Target:
    """A release of Kafka.

    `eligible.leader.replicas.version` stays at 0. At level 1, a controller removes a broker without a matching earlier
    registration from every ISR, and no partition has a leader.
    """

    release: str
    metadata_version: int
    features: Mapping[str, int]
    """Levels of the features other than `metadata.version`."""
    is_below_release: bool = False
    """Whether the release has higher levels, to which `kafka-features` raises them."""

    @property
    def levels(self) -> dict[str, int]:
        """Levels of all features."""
        return {"metadata.version": self.metadata_version, **self.features}

    def setting_problem(self, name: str, value: str) -> str:
        """Return why a broker of this release does not start with a topic's setting; "" if it does.

        Brokers ignore unknown names. One invalid value stops the whole broker.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfigWarning)
            try:
                config = LogConfig.from_properties({name: value})
            except (ValueError, TypeError) as error:
                return str(error)
        is_small = name == "segment.bytes" and config.segment_bytes < _LEAST_SEGMENT_BYTES
        if is_small and not self.release.startswith("3."):
            return f"{name}={value}: it must be at least {_LEAST_SEGMENT_BYTES}"
        return ""


_GROUPS: Final = {"group.version": 1, "transaction.version": 2}
_ALL: Final = {**_GROUPS, "share.version": 1, "streams.version": 1}
TARGETS: Final = {
    target.release: target
    for target in (
        Target("3.9", 21, {}),
        Target("4.0", 25, _GROUPS),
        *(Target(release, 25, _GROUPS, is_below_release=True) for release in ("4.1", "4.2")),
        Target(DEFAULT_RELEASE, 30, _ALL),
        Target("4.4", 30, _ALL, is_below_release=True),
    )
}
