"""Joins fragments to chains of one partition, by what checksums cover, and names them.

A fragment goes on where the next offset begins, in the same or a later leader epoch, with the next sequence of each
producer. Several partitions may agree in all of that. So a join counts only if no other fragment fits on either side,
and it is certain only if a batch that is divided between both has a correct checksum. Sequences make it likely: a
producer that began with the log has the same ones in each of its partitions, and one that writes as many records to two
partitions, or to two topics, has the same ones there if both logs were equally long before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from kafkalog import format as kf
from kafkalog.undeleting.fragments import Fragment

Certainty = Literal["certain", "likely", "alone"]
LEVELS: Final[tuple[Certainty, ...]] = ("certain", "likely", "alone")
_LATEST_MS: Final = 5000  # a log goes on so much later, or after so many times the mean pause before
_PAUSES: Final = 50
_EARLIEST_MS: Final = 1000
_SAME_WRITER: Final = kf.CODEC_MASK | kf.TIMESTAMP_TYPE_BIT | kf.TRANSACTIONAL_BIT


class Join(NamedTuple):
    """Why one fragment is the continuation of another."""

    before: int
    after: int
    certainty: Certainty
    why: str
    cut: int = 0
    """Of a batch that is divided between both: its bytes after the first; the others lie before the second."""


class Divided(NamedTuple):
    """A batch that begins where a fragment ends, and does not end there."""

    size: int
    last_offset: int
    crc: int


@dataclass(slots=True)
class Chain:
    """Fragments of one partition, in the order of their offsets."""

    fragments: list[int]
    certainty: Certainty
    why: str
    name: str | None = None
    joins: list[Join] = field(default_factory=list)


class Joiner:
    """Finds the joins: at most one on each side of a fragment.

    `divided` returns the batch that begins where a fragment ends. `cut_of` returns how many of its bytes are there, if
    the others are before another fragment and its checksum is correct; else None.
    """

    def __init__(
        self,
        fragments: Sequence[Fragment],
        divided: Callable[[Fragment], Divided | None],
        cut_of: Callable[[Fragment, Fragment, Divided], int | None],
    ) -> None:
        self._fragments, self._divided, self._cut_of = fragments, divided, cut_of
        self._heads: dict[int, list[int]] = defaultdict(list)
        self._open = [number for number, one in enumerate(fragments) if not one.is_copy and not one.is_checkpoint]
        for number in self._open:
            self._heads[fragments[number].first_offset].append(number)
        self._continued: set[int] = set()
        self.n_ambiguous = 0
        """Fragments that several others may follow, or that may follow several."""

    def joins(self) -> list[Join]:
        """All joins."""
        joins = [join for number in self._open if (join := self._through_batch(number)) is not None]
        tails, heads = {join.before for join in joins}, {join.after for join in joins}
        fits: dict[int, list[int]] = {}
        n_before: dict[int, int] = defaultdict(int)
        for number in self._open:
            if number not in tails:
                following = self._heads[self._fragments[number].last_offset + 1]
                fits[number] = [one for one in following if one not in heads and self._agree(number, one)]
                for one in fits[number]:
                    n_before[one] += 1
        for number, following in fits.items():
            if len(following) != 1 or n_before[following[0]] != 1:
                self.n_ambiguous += bool(following)
            elif (join := self._judge(number, following[0])) is not None:
                joins.append(join)
        return joins

    def _through_batch(self, number: int) -> Join | None:
        tail = self._fragments[number]
        divided = self._divided(tail) if tail.image >= 0 and tail.is_v2 else None
        if divided is None:
            return None
        for other in self._heads[divided.last_offset + 1]:
            head = self._fragments[other]
            if head.image < 0 or other in self._continued or not self._agree(number, other, is_next=False):
                continue
            if (cut := self._cut_of(tail, head, divided)) is not None:
                self._continued.add(other)
                return Join(number, other, "certain", "a batch that is divided between both is intact", cut)
        return None

    def _agree(self, number: int, other: int, *, is_next: bool = True) -> bool:
        """Whether nothing contradicts that one is the continuation of the other."""
        tail, head = self._fragments[number], self._fragments[other]
        if number == other or head.first_epoch < tail.last_epoch or (tail.image < 0 and head.image < 0):
            return False
        if tail.names and head.names and not tail.names & head.names:
            return False
        for producer, following in tail.next_producers.items():
            first = head.first_producers.get(producer)
            if first is None:
                continue
            is_same_epoch = first.epoch == following.epoch
            if first.epoch < following.epoch or (is_next and is_same_epoch and first.sequence != following.sequence):
                return False
        return True

    def _judge(self, number: int, other: int) -> Join | None:
        tail, head = self._fragments[number], self._fragments[other]
        for producer, following in tail.next_producers.items():
            first = head.first_producers.get(producer)
            # a producer that began with the log has its offsets as sequences in each partition
            if (
                first is not None
                and first.epoch == following.epoch
                and first.sequence != kf.SEQUENCE_MASK & first.offset
            ):
                return Join(number, other, "likely", f"the sequences of producer {producer} go on")
        if head.first_marker in tail.next_producers:
            return Join(
                number, other, "likely", f"the next offset, and the end of producer {head.first_marker}'s transaction"
            )
        if (tail.last_attributes ^ head.first_attributes) & _SAME_WRITER:
            return None
        either = tail.next_producers.keys() | head.first_producers.keys()
        if either and not tail.next_producers.keys() & head.first_producers.keys():
            return None
        if tail.last_timestamp >= 0 and head.first_timestamp >= 0:
            pause = head.first_timestamp - tail.last_timestamp
            mean = max(tail.last_timestamp - tail.first_timestamp, 0) // max(tail.n_batches - 1, 1)
            if -_EARLIEST_MS <= pause <= max(_LATEST_MS, _PAUSES * mean):
                return Join(number, other, "likely", f"the next offset, {pause} ms later")
        return None


def chains_of(fragments: Sequence[Fragment], joins: Iterable[Join]) -> Iterator[Chain]:
    """Yield the chains.

    A chain of certain joins is certain. Likely joins make a likely chain of several; where one of them has a name, it
    stays certain by itself, and gives the others its name. A fragment without a join is alone, unless live batches
    name it.
    """
    joins = list(joins)
    certain = {join.before: join for join in joins if join.certainty == "certain"}
    likely = {join.before: join for join in joins if join.certainty == "likely"}
    chains = [
        chain for members, of in _walks(len(fragments), certain)
        for chain in _checked(fragments, members, of)
    ]  # fmt: skip
    first = {chain.fragments[0]: number for number, chain in enumerate(chains)}
    links = {
        number: likely[chain.fragments[-1]]._replace(before=number, after=first[likely[chain.fragments[-1]].after])
        for number, chain in enumerate(chains)
        if chain.fragments[-1] in likely and likely[chain.fragments[-1]].after in first
    }
    for members, of in _walks(len(chains), links):
        yield from _group(
            [chains[number] for number in members], [likely[chains[one.before].fragments[-1]] for one in of]
        )


def _walks(n: int, after: dict[int, Join]) -> Iterator[tuple[list[int], list[Join]]]:
    """Follow the joins from each number that none leads to."""
    targets = {join.after for join in after.values()}
    for number in range(n):
        if number in targets:
            continue
        members, of = [number], []
        while members[-1] in after:
            of.append(after[members[-1]])
            members.append(of[-1].after)
        yield members, of


def _checked(fragments: Sequence[Fragment], members: list[int], joins: list[Join]) -> Iterator[Chain]:
    """A chain with its name; one with two names is wrong, and each of its fragments is by itself."""
    known = [fragments[number].names for number in members if fragments[number].names]
    names = frozenset.intersection(*known) if known else frozenset()
    if known and not names and len(members) > 1:
        for number in members:
            yield from _checked(fragments, [number], [])
    elif len(names) == 1:
        yield Chain(members, "certain", "live segments have its batches, or go on from it", next(iter(names)), joins)
    elif joins:
        yield Chain(members, "certain", joins[0].why, None, joins)
    else:
        is_copy = fragments[members[0]].is_copy
        yield Chain(members, "alone", "a longer fragment has the same batches" if is_copy else "nothing joins it")


def _group(chains: list[Chain], joins: list[Join]) -> Iterator[Chain]:
    """Join chains that likely belong together: at most one of them may have a name, which all get."""
    names = {chain.name for chain in chains if chain.name is not None}
    if len(chains) == 1 or len(names) > 1:
        yield from chains  # chains of two partitions: one of the joins is wrong, and it is not known which
    elif names:
        for chain in chains:
            if chain.name is None:
                chain.certainty, chain.name, chain.why = "likely", next(iter(names)), joins[0].why
            yield chain
    else:
        members = [number for chain in chains for number in chain.fragments]
        inner = [join for chain in chains for join in chain.joins]
        yield Chain(members, "likely", joins[0].why, None, inner + joins)
