"""Which topic of one cluster is which of the other: by name, and by the names that MirrorMaker gives its copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from kafkalog import format as kf
from kafkalog.parsing import TopicPatterns, check_names

_CHECKPOINTS: Final = ".checkpoints.internal"


def is_user_topic(name: str) -> bool:
    """Whether a topic holds records of users, not of Kafka or MirrorMaker.

    Source: MirrorClientConfig and ReplicationPolicy.isInternalTopic, Kafka 4.3.
    """
    is_mirror = name.endswith(_CHECKPOINTS) or (name.startswith("mm2-") and name.endswith(".internal"))
    return name not in kf.INTERNAL_TOPICS and not is_mirror


def wanted_topics(names: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """The topics of users, or those that names, globs, exclusions and pairs select. Raises UnknownNameError."""
    if wanted is None:
        return [*filter(is_user_topic, names)]
    named = {name.split("=", 1)[0] for name in wanted if "=" in name}
    others = [name for name in wanted if "=" not in name]
    if not others:
        return [name for name in names if name in named]
    patterns = TopicPatterns(others, internal=False)
    patterns.check(names)
    is_wanted = patterns.wants if patterns.included else lambda name: patterns.wants(name) and is_user_topic(name)
    return [name for name in names if name in named or is_wanted(name)]


def pair_topics(a: Sequence[str], b: Sequence[str], wanted: Sequence[str] | None = None) -> dict[str, str]:
    """Pair the topics of two clusters; those that have no partner are left out.

    `wanted` has names and globs of topics of `a`, and pairs such as ``orders=copy-of-orders``. The default is all
    topics of users. MirrorMaker puts the alias of the source before the name of a copy. So the partner of a topic is
    ``ALIAS.NAME``, if `b` has MirrorMaker's checkpoints of that alias, or if both clusters have copies of the other's
    topic. Else it is the topic of the same name, or the only one that ends in a dot and this name, in either direction.

    >>> pair_topics(["orders", "backup.orders"], ["orders", "primary.orders"])
    {'orders': 'primary.orders', 'backup.orders': 'orders'}
    >>> pair_topics(["orders"], ["new", "old"], ["orders=old"])
    {'orders': 'old'}

    Raises
    ------
    UnknownNameError
        A cluster does not have a topic that `wanted` names.
    """
    named = dict(name.split("=", 1) for name in wanted or () if "=" in name)
    check_names("topic", [*named], a)
    check_names("topic", [*named.values()], b)
    topics = wanted_topics(a, wanted)
    pairs = {**_copies(a, b), **named}
    taken = {*pairs.values()}
    # a topic there that is also here under its name is no copy of another one
    mine, theirs = [name for name in a if name not in b], [name for name in b if name not in a]
    of_a = {topic: [name for name in theirs if _is_copy(name, topic) or _is_copy(topic, name)] for topic in mine}
    n_of_b = Counter(name for names in of_a.values() for name in names)
    for topic in topics:
        candidates = [topic] if topic in b else of_a[topic]
        is_sole = len(candidates) == 1 and n_of_b[candidates[0]] <= 1 and candidates[0] not in taken
        if topic not in pairs and is_sole:
            pairs[topic] = candidates[0]
    return {topic: pairs[topic] for topic in topics if topic in pairs}


def _is_copy(name: str, topic: str) -> bool:
    return name.endswith(f".{topic}")


def _copies(a: Sequence[str], b: Sequence[str]) -> dict[str, str]:
    """Pairs of a topic and MirrorMaker's copy of it, on either side."""
    of_a, of_b = _copied(a, b), _copied(b, a)
    both = of_a.keys() & of_b.keys()
    sure_a = {topic: copy for topic, copy in of_a.items() if topic in both or _has_checkpoints(topic, copy, b)}
    sure_b = {copy: topic for topic, copy in of_b.items() if topic in both or _has_checkpoints(topic, copy, a)}
    return sure_b | sure_a


def _copied(source: Sequence[str], target: Sequence[str]) -> dict[str, str]:
    """Topics, and those of the other side that may be their copies, where there is one such."""
    others = {*target} - {*source}
    copies = {topic: [name for name in others if _is_copy(name, topic)] for topic in source if is_user_topic(topic)}
    sure = {topic: [name for name in names if _has_checkpoints(topic, name, target)] for topic, names in copies.items()}
    return {topic: (sure[topic] or names)[0] for topic, names in copies.items() if len(sure[topic] or names) == 1}


def _has_checkpoints(topic: str, copy: str, names: Iterable[str]) -> bool:
    return copy.removesuffix(f".{topic}") + _CHECKPOINTS in names
