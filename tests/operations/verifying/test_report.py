"""What a check says that it found."""

from __future__ import annotations

from kafkalog.errors import Finding, Reason
from kafkalog.operations.verifying.report import Verification, VerifiedPartition, VerifiedSegment


def test_only_damage_makes_a_result_that_is_not_ok() -> None:
    torn = Finding(Reason.PARTIAL_TAIL, path="logs/t-0/0.log", damage=False)
    segment = VerifiedSegment("logs/t-0/0.log", 0, 9, 700, findings=[torn])
    partition = VerifiedPartition("logs/t-0", None, None, [segment])
    result = Verification([partition])
    assert (segment.ok, partition.ok, result.ok) == (True, True, True)
    assert repr(result) == "Verification(1 partition, 1 segment, OK)"
    wrong = Finding(Reason.CRC_MISMATCH, path="logs/t-0/0.log", n_records=3)
    unread = Finding(Reason.CHECKPOINT_SYNTAX, path="logs/cleaner-offset-checkpoint")
    segment.findings.append(wrong)
    result.findings.append(unread)
    assert (segment.ok, partition.ok, result.ok) == (False, False, False)
    assert list(result.all_findings()) == [torn, wrong, unread]
    assert (partition.loss.n_findings, partition.loss.n_records) == (1, 3)
    assert repr(result) == "Verification(1 partition, 1 segment, 2 findings of damage)"
