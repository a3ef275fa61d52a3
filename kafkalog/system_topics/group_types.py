"""Types of groups by their name: their records, their stable state, and whether they commit offsets."""

from __future__ import annotations

from typing import Final, NamedTuple


class GroupType(NamedTuple):
    """A type of groups, with the ways in which types differ. The code that applies its records has the rest."""

    prefix: str
    """Of its record types in `__consumer_offsets`; "" for classic groups, which have one, `GroupMetadata`."""
    stable: int | None
    """The state of a member (`MemberState.STABLE`) that nothing moves to or from; None if members have no state."""
    commits_offsets: bool = True
    """False if `__share_group_state` has where it stands."""


GROUP_TYPES: Final = {
    "classic": GroupType("", None),
    "consumer": GroupType("ConsumerGroup", 0),
    "share": GroupType("ShareGroup", None, commits_offsets=False),
    "streams": GroupType("StreamsGroup", 1),
}


def split_record_type(record_type: str) -> tuple[str, str] | None:
    """Split `ShareGroupMemberMetadata` into `share` and `MemberMetadata`; None for records of classic groups."""
    for name, kind in GROUP_TYPES.items():
        if kind.prefix and record_type.startswith(kind.prefix):
            return name, record_type.removeprefix(kind.prefix)
    return None
