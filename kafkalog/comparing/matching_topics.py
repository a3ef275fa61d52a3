"""The two sides of a comparison, and which topic of one is which of the other.

Topics are paired by their names, and by the names that MirrorMaker gives its copies.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from kafkalog import format as kf
from kafkalog.comparing.digests import Database, Field, Source, batches_of, table_at, table_batches
from kafkalog.errors import Findings
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, open_log_dir
from kafkalog.parsing import TopicPatterns, check_names

Side = Literal["a", "b"]

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
    pairs = {**_copies(a, b), **named}
    taken = {*pairs.values()}
    alike = {topic: topic for topic in a if topic in b} | _alike(a, b)
    topics = wanted_topics(a, wanted)
    others = {topic: alike[topic] for topic in topics if topic in alike and alike[topic] not in taken}
    pairs = others | pairs
    return {topic: pairs[topic] for topic in topics if topic in pairs}


def _alike(a: Sequence[str], b: Sequence[str]) -> dict[str, str]:
    """Pairs of topics of which one is a prefix, a dot and the name of the other, if no other topic is.

    A topic that the other side has under its own name is no copy of another one.
    """
    names_of_a, names_of_b = {*a} - {*b}, {*b} - {*a}
    alike = [(topic, copy) for copy in names_of_b for topic in _originals(copy) if topic in names_of_a]
    alike += [(copy, topic) for copy in names_of_a for topic in _originals(copy) if topic in names_of_b]
    n_of = [Counter(pair[side] for pair in alike) for side in (0, 1)]
    return {x: y for x, y in alike if n_of[0][x] == n_of[1][y] == 1}


def _originals(copy: str) -> Iterator[str]:
    """The names of which this may be MirrorMaker's: what follows after each dot."""
    while "." in copy:
        copy = copy.split(".", 1)[1]
        yield copy


def _copies(a: Sequence[str], b: Sequence[str]) -> dict[str, str]:
    """Pairs of a topic and MirrorMaker's copy of it, on either side."""
    of_a, of_b = _copied(a, b), _copied(b, a)
    both = of_a.keys() & of_b.keys()
    sure_a = {topic: copy for topic, copy in of_a.items() if topic in both or _has_checkpoints(topic, copy, b)}
    sure_b = {copy: topic for topic, copy in of_b.items() if topic in both or _has_checkpoints(topic, copy, a)}
    return sure_b | sure_a


def _copied(source: Sequence[str], target: Sequence[str]) -> dict[str, str]:
    """Topics, and those of the other side that may be their copies, where there is one such."""
    topics = {*filter(is_user_topic, source)}
    copies: dict[str, list[str]] = defaultdict(list)
    for name in sorted({*target} - {*source}):
        for topic in _originals(name):
            if topic in topics:
                copies[topic].append(name)
    sure = {topic: [name for name in names if _has_checkpoints(topic, name, target)] for topic, names in copies.items()}
    return {topic: (sure[topic] or names)[0] for topic, names in copies.items() if len(sure[topic] or names) == 1}


def _has_checkpoints(topic: str, copy: str, names: Container[str]) -> bool:
    return copy.removesuffix(f".{topic}") + _CHECKPOINTS in names


class Sides:
    """Two sides that are compared, and their topics side by side.

    `pair_topics` says which is which. A side with a single topic or an exported table is compared with the only topic
    of the other.
    """

    def __init__(
        self, a: Paths | LogDir, b: Paths | LogDir, topics: str | Sequence[str] | None, options: Mapping[str, Any]
    ) -> None:
        given = {name: value for name, value in options.items() if value is not None}
        opening = {"limits": given.pop("limits")} if "limits" in given else {}
        self._options = given
        self._sources: dict[str, Source] = {"a": _source(a, opening), "b": _source(b, opening)}
        self.paths = {"a": _named(a), "b": _named(b)}
        names_of_a, names_of_b = map(_topics_of, self._sources.values())
        wanted = [topics] if isinstance(topics, str) else topics
        users_b = wanted_topics(names_of_b, None)
        chosen = wanted_topics(names_of_a, wanted)
        if len(chosen) == len(users_b) == 1 and not any("=" in name for name in wanted or ()):
            self.pairs = [(chosen[0], users_b[0])]
        else:
            self.pairs = [*pair_topics(names_of_a, names_of_b, wanted).items()]
        self.only_in_a = sorted({*chosen} - {topic for topic, _ in self.pairs})
        self.only_in_b = sorted({*users_b} - {other for _, other in self.pairs}) if wanted is None else []

    @property
    def log_dir_of_a(self) -> LogDir | None:
        """The log dir of the first side; None for a table."""
        source = self._sources["a"]
        return source if isinstance(source, LogDir) else None

    def log_bounds(self, side: Side, topic: str, partition: int) -> tuple[int, int] | None:
        """Log start and end offset of a partition, which a table does not have."""
        source = self._sources[side]
        if not isinstance(source, LogDir) or (topic, partition) not in source:
            return None
        log = source[topic, partition]
        return log.log_start_offset, log.log_end_offset

    def fill(
        self,
        database: Database,
        fields: Sequence[Field],
        topics: tuple[str, str],
        progress: Any,
        findings: Mapping[str, Findings] | None = None,
    ) -> list[int]:
        """Fill a database with a topic of both sides; returns the numbers of records.

        `findings` has those of each side, which get the damage that was skipped.
        """
        return [
            database.fill(
                side,
                batches_of(
                    self._sources[side], topic, fields, progress, self._options, findings[side] if findings else None
                ),
                is_sorted=isinstance(self._sources[side], LogDir),
            )
            for side, topic in zip("ab", topics, strict=True)
        ]


def _source(path: Paths | LogDir, opening: Any) -> Source:
    if isinstance(path, LogDir):
        return path
    table = table_at(path) if isinstance(path, (str, os.PathLike)) else None
    return table if table is not None else open_log_dir(path, **opening)


def _named(path: Paths | LogDir) -> str:
    """The path of a side, for people."""
    if isinstance(path, LogDir):
        return " ".join(map(str, path.paths))
    return str(path) if isinstance(path, (str, os.PathLike)) else " ".join(map(str, path))


def _topics_of(source: Source) -> list[str]:
    """The topics of a side; empty text for the one of a table without a column for topics."""
    if isinstance(source, LogDir):
        return source.topics
    if "topic" not in source.schema.names:
        return [""]
    batches = table_batches(source, columns=["topic"])
    names: set[str] = {name for batch in batches for name in batch[0].unique().to_pylist()}
    return sorted(names)
