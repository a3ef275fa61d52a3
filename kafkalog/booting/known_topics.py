"""Which topics the cluster's metadata know: deleted ones stay away, and an old metadata log is no proof of a deletion.

A directory may be of a topic that was deleted while its broker was down. It may also be of one that was created after
the metadata log was copied, or after its damage. Topic ids, which are never used twice, tell the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kafkalog import format as kf
from kafkalog.booting.sources import Copy
from kafkalog.errors import Finding, KafkalogError, Reason
from kafkalog.state.cluster_image import ClusterMetadata

ACCEPTED = "To accept all directories of that name, use --set {}:topic.id={} (settings)"
Standing = Literal["known", "deleted", "newer", "other", "unknown", "misnamed"]


@dataclass(slots=True)
class KnownTopics:
    """What the metadata know about the topics of some copies."""

    metadata: ClusterMetadata
    where: str
    """The log dir of the metadata log."""
    doubt: str = ""
    """Why the metadata lack the last changes; "" if nothing shows that they do."""
    left_out: list[Copy] = field(default_factory=list)
    """Copies of topics that are not brought back."""

    @classmethod
    def of(
        cls, metadata: ClusterMetadata, where: str, copies: Mapping[kf.TopicPartition, Sequence[Copy]], doubt: str = ""
    ) -> KnownTopics:
        """Compare the metadata with the copies; `doubt` is what other log dirs show."""
        found = cls(metadata, where)
        found.doubt = doubt or found._doubt([one for some in copies.values() for one in some])
        return found

    def _doubt(self, copies: Iterable[Copy]) -> str:
        if not self.metadata.is_complete:
            gaps = self.metadata.gaps
            return gaps[0].detail.partition(":")[0] if gaps else "it is empty"
        for finding in self.metadata.findings:
            if finding.reason is Reason.INTERNAL_RECORD:
                return f"a record cannot be decoded ({finding.detail})"
        for copy in copies:
            assigned = self.metadata.partition(copy.key)
            epoch = copy.latest_epoch
            if assigned is not None and self.standing(copy) == "known" and epoch > assigned.leader_epoch:
                return f"{copy.path} has leader epoch {epoch}, and {assigned.leader_epoch} there: it is older"
            if self.standing(copy) == "newer":
                return f"{copy.key.topic} was created later: its topic id, {_id_of(copy)}, was never there"
        return ""

    def standing(self, copy: Copy) -> Standing:
        """Whether the metadata know a copy's topic, or have deleted it, or are older than it.

        "other": of that name; "misnamed": they have its id under another name.
        """
        topic_id, known = _id_of(copy), self.metadata.topic_ids.get(copy.key.topic)
        if topic_id is not None and topic_id in self.metadata.removed_topic_ids:
            return "deleted"
        if known is not None and topic_id in (None, known):
            return "known"
        if known is not None and (topic_id in self.metadata.topic_ids.values() or self.metadata.start_offset):
            return "other"
        if known is None and topic_id is not None and topic_id in self.metadata.topic_ids.values():
            return "misnamed"
        # a snapshot no longer has the topics that were deleted before it
        return "newer" if topic_id is not None and not self.metadata.start_offset else "unknown"

    def leave_out_others(
        self, copies: dict[kf.TopicPartition, list[Copy]], accepts: Callable[[str], bool]
    ) -> list[Finding]:
        """Take the copies out that have the id of another topic, unless a caller accepts them; one finding each.

        A deleted topic of that name is another one, too, if there is one of that name now.
        """
        found = []
        for key, some in list(copies.items()):
            known = self.metadata.topic_ids.get(key.topic)
            if known is None or accepts(key.topic):
                continue
            standings = [self.standing(copy) for copy in some]
            others = {"other", "deleted", *(("newer",) if "known" in standings else ())}
            for copy, standing in zip(some, standings, strict=True):
                if standing in others:
                    detail = (
                        f"left out: its topic id is {_id_of(copy)}, but that of the metadata log in {self.where} is"
                        f" {known}: it is of another topic, or of a deleted one of that name."
                        f" {ACCEPTED.format(key.topic, known)}"
                    )
                    if (name := self._meant(copy, standing)) is not None:
                        detail = self._as_meant(copy, name, copies)
                    is_loss = standing != "deleted"
                    found.append(Finding(Reason.LEFT_OUT, detail, path=str(copy.path), damage=is_loss))
                    self.left_out.append(copy)
        self._drop_left_out(copies)
        return found

    def _drop_left_out(self, copies: dict[kf.TopicPartition, list[Copy]]) -> None:
        gone = {copy.path for copy in self.left_out}
        for key, some in list(copies.items()):
            copies[key] = [copy for copy in some if copy.path not in gone]
            if not copies[key]:
                del copies[key]

    def leave_out(self, copies: dict[kf.TopicPartition, list[Copy]]) -> list[Finding]:
        """Take the copies out of topics that were deleted, as far as the metadata tell; one finding each."""
        found = []
        for some in copies.values():
            for copy in some:
                standing = self.standing(copy)
                if copy.is_asked_for or standing in ("known", "newer", "other"):
                    continue
                if standing == "unknown" and self.doubt:
                    continue
                if (name := self._meant(copy, standing)) is not None:
                    is_loss = kf.TopicPartition(name, copy.key.partition) not in copies
                    detail = self._as_meant(copy, name, copies)
                    found.append(Finding(Reason.LEFT_OUT, detail, path=str(copy.path), damage=is_loss))
                    self.left_out.append(copy)
                    continue
                if standing == "deleted":
                    detail = f"left out: the metadata log in {self.where} deletes its topic"
                else:
                    detail = f"left out: the metadata log in {self.where} has no such topic; it may have been deleted"
                detail += ". To bring it back, use --include-unknown (include_unknown=True)"
                is_loss = standing == "unknown"
                found.append(Finding(Reason.LEFT_OUT, detail, path=str(copy.path), damage=is_loss))
                self.left_out.append(copy)
        self._drop_left_out(copies)
        return found

    def _meant(self, copy: Copy, standing: Standing) -> str | None:
        """The topic of a directory that somebody has renamed, by its id, or without one by its capitals."""
        known = self.metadata.topic_ids
        if standing in ("misnamed", "other"):
            return next((name for name, topic_id in known.items() if topic_id == _id_of(copy)), None)
        if standing != "unknown" or _id_of(copy) is not None:
            return None
        return next((name for name in known if name.lower() == copy.key.topic.lower()), None)

    def _as_meant(self, copy: Copy, topic: str, copies: Mapping[kf.TopicPartition, Sequence[Copy]]) -> str:
        """What is said of a copy that is of another topic than that of its name."""
        key = kf.TopicPartition(topic, copy.key.partition)
        is_here = any(self.standing(one) == "known" for one in copies.get(key, ()))
        rest = ", which is here under that name" if is_here else ": give the directory that name"
        return f"left out: it is {key}, by the metadata log in {self.where}{rest}"

    def without_settings(self, topic: str) -> Finding | None:
        """The finding about a topic whose settings an old or incomplete metadata log does not have."""
        if not self.doubt:
            return None
        detail = (
            f"the settings of {topic} are not known: the metadata log in {self.where} has none, and lacks the last"
            f" changes ({self.doubt}). Name a newer copy (--metadata), or the settings (--metadata FILE, --set"
            f" {topic}:NAME=VALUE)"
        )
        return Finding(Reason.METADATA_INCOMPLETE, detail)


def _id_of(copy: Copy) -> str | None:
    try:
        return copy.topic_id
    except KafkalogError:
        return None
