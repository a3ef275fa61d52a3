"""Which of the intact batches of a damaged segment are the log's own, where something contradicts them."""

import builder
import pytest
import salvage_trials
from searches import damaged, dense, messages, salvaged

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import CorruptionWarning, Reason


# each missed a batch once, for one of the reasons below
@pytest.mark.parametrize(
    ("seed", "number"),
    [(5, 724), *((20261122, n) for n in (943, 1106, 1265, 1718, 1955, 2436, 2992, 3048, 3086, 3697, 4194, 5480)),
     *((20261122, n) for n in (6310, 8137, 8589, 8784)), (20261124, 241), (20261131, 4), (20261132, 243),
     (20261138, 22), (20261139, 89), *((7, n) for n in (193, 213, 3707, 6928, 9593)),
     (1011, 2526), (1011, 2994), (1012, 1113), (1013, 3849), (1013, 4996),
     (1015, 1689), (1015, 2742), (1014, 6810), (1016, 819), (1016, 6341), (1016, 6812),
     (1017, 624), (1017, 1503), (31415, 1125), (271828, 747), (161803, 1488)],
)  # fmt: skip
def test_trials_that_once_missed_a_batch(seed, number):
    tally = salvage_trials.run(seed, [number])
    assert tally.wrong == []
    assert (tally.n_missed, tally.n_invented, tally.n_disordered) == (0, 0, 0)


def test_a_trial_that_once_invented_a_message():
    assert salvage_trials.run(1018, [2217]).wrong == []


@pytest.mark.parametrize("n_before", [0, 100])
def test_a_message_alone_with_the_first_offset_belongs_at_the_start(tmp_path, n_before):
    message = builder.message(0, b"k", b"v", magic=1)
    kept, report = salvaged(tmp_path, b"\xff" * n_before, message, b"\xff" * 100)
    assert kept == ([] if n_before else [message])
    assert report.total("n_bytes_suspect") == (len(message) if n_before else 0)


def test_a_message_alone_behind_damage_is_read_where_the_log_goes_on(tmp_path):
    (tmp_path / "t-0").mkdir()
    messages = [builder.message(n, b"k", b"v", magic=1) for n in range(2)]
    (tmp_path / "t-0" / kf.segment_file_name(0)).write_bytes(b"".join([messages[0], b"\xff" * 100, messages[1]]))
    scan = kafkalog.scan(tmp_path / "t-0", columns=["offset"], on_corruption="skip")
    with pytest.warns(CorruptionWarning):
        assert scan.to_table()["offset"].to_pylist() == [0, 1]


def test_of_two_epochs_that_contradict_each_other_that_of_other_batches_is_right(tmp_path):
    batches = dense(8)
    wrong = bytearray(batches[6])
    wrong[12:16] = (8124).to_bytes(4, "big")
    kept, _ = salvaged(tmp_path, *batches[:6], bytes(wrong), batches[7])
    assert kept == batches


def test_a_message_that_contradicts_the_next_costs_none_of_those_before(tmp_path):
    found = messages(30)
    lost, wrong = damaged(found[12]), found[20]
    found[20] = wrong[:5] + b"\xd9" + wrong[6:]
    kept, report = salvaged(tmp_path, *found[:12], lost, *found[13:])
    expected = messages(30)
    assert kept == [*expected[:12], *expected[13:20], *expected[21:]]
    assert report.total("n_batches_suspect") == 1


def test_zeros_at_the_end_of_a_segment_are_a_finding_unless_no_offset_is_missing(tmp_path):
    for name, n, next_base, expected in (
        ("complete", 5, 15, None),
        ("short", 4, 15, (12, 15, 3, "at_most")),
        ("last", 4, None, (12, None, None, None)),
    ):
        (tmp_path / name).mkdir()
        kept, report = salvaged(tmp_path / name, *dense(n), bytes(500), next_base=next_base)
        assert kept == dense(n)
        assert report.total("n_bytes_padding") == 500
        lost = report.partitions[0].lost
        assert [(one.first_offset, one.end_offset, one.n_records, one.certainty) for one in lost] == (
            [] if expected is None else [expected]
        )
        assert report.ok == (next_base != 15 or expected is None)
        for finding in report.findings.rows:
            assert (finding.reason, finding.position, finding.length) == (
                Reason.ZERO_FILL,
                len(b"".join(dense(n))),
                500,
            )


def test_a_sparse_file_ends_in_padding(tmp_path):
    partition = tmp_path / "t-0"
    partition.mkdir()
    log = partition / kf.segment_file_name(0)
    log.write_bytes(b"".join(dense(4)))
    with log.open("r+b") as file:
        file.truncate(2**20)
    report = kafkalog.salvage(partition, dry_run=True)
    assert (report.ok, report.partitions[0].lost) == (True, [])
    # the log was longer, by the checkpoint of its log dir
    (tmp_path / kf.HIGH_WATERMARK_CHECKPOINT).write_text("0\n1\nt 0 14\n")
    [hole] = kafkalog.salvage(partition, dry_run=True).partitions[0].lost
    assert (hole.first_offset, hole.end_offset, hole.n_records, hole.certainty) == (12, 14, 2, "at_most")
