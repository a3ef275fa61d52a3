"""How much was lost: of each finding its offsets and records and how sure that is, of each run a total a partition."""

import json
import struct
import warnings
from pathlib import Path

import builder
import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import Finding, Reason
from kafkalog.reporting.contents import Contents
from kafkalog.survey.losses import Lost, total

N_BATCHES, N_RECORDS = 20, 10
LOG = f"{0:020d}.log"


def test_a_loss_of_unknown_length_has_no_end():
    loss = kafkalog.Loss()
    loss.add(kafkalog.errors.Finding(kafkalog.errors.Reason.SIZE_NEGATIVE, "", base_offset=5))
    assert (str(loss), loss.last_offset) == ("an unknown number of records, offsets 5..?", 5)
    loss.add(kafkalog.errors.Finding(kafkalog.errors.Reason.SIZE_NEGATIVE, "", base_offset=7, last_offset=9))
    assert str(loss).endswith("offsets 5..10")


@pytest.mark.parametrize(
    ("certainty", "text"),
    [("exact", "7 records"), ("header", "7 records by their headers"), ("at_most", "at most 7 records")],
)
def test_a_number_of_lost_records_reads_the_same_in_a_range_a_total_and_a_report(certainty, text):
    found = Finding(Reason.OFFSET_GAP, path="t-0", base_offset=3, last_offset=9, n_records=7, certainty=certainty)
    lost = Lost.of(found)
    assert str(lost) == f"offsets 3..10, lost: {text} (offset_gap)"
    assert str(total([lost])) == f"{text}, offsets 3..10"
    contents = Contents(kafkalog.Limits(), 0)
    contents.add_findings([found])
    assert contents.lost()["losses"] == f"{text} in 1 partition"


def make(directory, base=0, n=N_BATCHES):
    directory.mkdir(parents=True, exist_ok=True)
    batches = []
    for row in range(n):
        records = [builder.record_v2(value=b"v", offset_delta=delta) for delta in range(N_RECORDS)]
        batches.append(builder.batch_v2(records, base_offset=base + row * N_RECORDS))
    (directory / f"{base:020d}.log").write_bytes(b"".join(batches))
    size = len(batches[0])
    entries = [struct.pack(">ii", row * N_RECORDS + N_RECORDS - 1, row * size) for row in range(1, n)]
    (directory / f"{base:020d}.index").write_bytes(b"".join(entries))
    return directory


def change(path, at, new):
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)


@pytest.fixture
def partition(tmp_path):
    return make(tmp_path / "logs" / "t-0")


@pytest.fixture
def size(partition):
    return (partition / LOG).stat().st_size // N_BATCHES


def scan(path, on_corruption="skip", **options):
    one = kafkalog.scan(path, columns=["offset"], on_corruption=on_corruption, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        one.to_table()
    return one


def lost(finding):
    return finding.base_offset, finding.last_offset, finding.n_records, finding.certainty


DAMAGE = {
    # a checksum does not say what is wrong: the header may be
    "checksum": (lambda size: (5 * size + size - 1, b"\x99"), (50, 59, 10, "exact")),
    # the header fits between its neighbours
    "length": (lambda size: (5 * size + 8, b"\x7f"), (50, 59, 10, "exact")),
    "magic": (lambda size: (5 * size + 16, b"\x09"), (50, 59, 10, "exact")),
    # the neighbours leave room for so many
    "hole": (lambda size: (5 * size, bytes(3 * size)), (50, 79, 30, "at_most")),
    "offset": (lambda size: (5 * size + 4, b"\x40"), (50, 59, 10, "exact")),
    # zeros over both numbers of the last batch, and nothing behind it to tell where it ended: it held ten records
    "last": (lambda size: (19 * size + 23, bytes(38)), (190, 190, 1, "header")),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_each_finding_says_which_offsets_and_how_many_records(partition, size, what):
    edit, expected = DAMAGE[what]
    change(partition / LOG, *edit(size))
    for threads in (1, 3):
        one = scan(partition, threads=threads)
        assert [lost(finding) for finding in one.findings] == [expected]
        assert one.losses == {
            str(partition): kafkalog.Loss(1, expected[2] or 0, expected[3], 0, expected[0], expected[1])
        }
    (verified,) = kafkalog.verify(partition).partitions
    assert lost(next(finding for finding in verified.findings if finding.damage)) == expected
    assert verified.loss == one.losses[str(partition)]


def test_damage_at_the_end_of_a_segment_ends_where_the_next_begins(partition, size):
    make(partition, N_BATCHES * N_RECORDS)
    change(partition / LOG, 18 * size, bytes(2 * size))
    assert [lost(one) for one in scan(partition).findings] == [(180, 199, 20, "at_most")]


def test_where_nothing_tells_the_number_is_not_made_up(partition, size):
    change(partition / LOG, 18 * size, b"\x99" * (2 * size))
    one = scan(partition)
    assert [lost(finding)[1:] for finding in one.findings] == [(None, None, None)]
    assert one.losses[str(partition)].n_unknown == 1


def test_stop_loses_everything_to_the_end_of_the_log(partition, size):
    make(partition, N_BATCHES * N_RECORDS)
    for at, new in ((5 * size + size - 1, b"\x99"), (5 * size + 16, b"\x09")):
        change(partition / LOG, at, new)
        one = scan(partition, "stop")
        assert [lost(finding) for finding in one.findings] == [(50, 399, 350, "at_most")]
        report = _convert(partition, partition.parent.parent / f"out{at}", "stop")
        assert [lost(finding) for finding in report.findings.rows] == [(50, 399, 350, "at_most")]


def test_totals_are_a_partition_each_and_say_how_sure_they_are(partition, size):
    other = make(partition.with_name("u-0"))
    for row in (3, 7):
        change(partition / LOG, row * size + size - 1, b"\x99")
    change(partition / LOG, 12 * size, bytes(2 * size))
    change(other / LOG, 4 * size + 16, b"\x09")
    one = scan(partition.parent)
    assert {
        Path(path).name: (loss.n_findings, loss.n_records, loss.certainty) for path, loss in one.losses.items()
    } == {
        "t-0": (3, 40, "at_most"),
        "u-0": (1, 10, "exact"),
    }
    assert str(one.losses[str(other)]) == "10 records, offsets 40..50"
    assert str(one.losses[str(partition)]) == "at most 40 records, offsets 30..140"


def test_findings_that_are_not_kept_are_counted(partition, size):
    for row in range(2, 15):
        change(partition / LOG, row * size + size - 1, b"\x99")
    one = scan(partition, limits=kafkalog.Limits(max_findings=3))
    assert len(one.findings) == 3
    assert one.losses[str(partition)].n_records == 130


def _convert(path, to, on_corruption):
    with pytest.warns(kafkalog.CorruptionWarning):
        return kafkalog.convert(path, to, on_corruption=on_corruption)


SKIP = ["--on-corruption", "skip"]
REPORTING = {
    "cat": ["LOGS", *SKIP],
    "export": ["LOGS", "-o", "OUT.parquet", *SKIP],
    "convert": ["LOGS", "-o", "OUT", *SKIP],
    "verify": ["LOGS"],
    "ls": ["LOGS"],
    "batches": ["LOGS", *SKIP],
    "index-stats": ["LOGS", *SKIP],
}


def report_of(command, logs, to):
    """Run a command that meets damage, and return its report."""
    report = to / "report.json"
    words = [word.replace("OUT", str(to / "out")).replace("LOGS", str(logs)) for word in command]
    assert main([*words, "--report", str(report)]) == 1
    found = json.loads(report.read_text())
    assert (found["command"], found["exit_code"]) == (command[0], 1)
    return found


# a magic that does not exist ends a walk of headers, too
@pytest.mark.parametrize("command", REPORTING)
def test_a_report_is_written_to_a_file(partition, size, tmp_path, command):
    change(partition / LOG, 5 * size + 16, b"\x09")
    found = report_of([command, *REPORTING[command]], partition.parent, tmp_path)
    damage = [one for one in found["findings"] if one["damage"] and one["path"].endswith(".log")]
    assert [(one["reason"], one["last_offset"], one["n_records"]) for one in damage] == [("bad_magic", 59, 10)]
    (total,) = found["partitions"]
    assert (total["path"], total["n_records"], total["certainty"]) == (str(partition), 10, "exact")


@pytest.mark.parametrize("command", ["cat", "export", "convert", "verify", "reindex"])
def test_a_checksum_is_reported_where_it_is_checked(partition, size, tmp_path, command):
    change(partition / LOG, 5 * size + size - 1, b"\x99")
    words = REPORTING.get(command, ["LOGS", "-o", "OUT"])
    found = report_of([command, *words], partition.parent, tmp_path)
    damage = [one for one in found["findings"] if one["damage"]]
    assert [(one["reason"], one["last_offset"], one["n_records"]) for one in damage] == [("crc_mismatch", 59, 10)]
    (total,) = found["partitions"]
    assert (total["path"], total["n_records"], total["certainty"]) == (str(partition), 10, "exact")


def test_all_is_in_a_report_where_nothing_is_damaged(partition, tmp_path):
    assert main(["ls", str(partition.parent), "--report", str(tmp_path / "report.json")]) == 0
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["exit_code"], found["findings"], found["partitions"]) == (0, [], [])


def test_a_report_is_never_put_into_a_log_dir(partition, capsys):
    assert main(["verify", str(partition), "--report", str(partition / "report.json")]) == 6
    assert not (partition / "report.json").exists()
    assert "unsafe_path" in capsys.readouterr().err


def test_an_error_is_in_the_report_too(partition, size, tmp_path):
    change(partition / LOG, 5 * size + size - 1, b"\x99")
    report = tmp_path / "report.json"
    assert main(["cat", str(partition), "--report", str(report)]) == 1
    found = json.loads(report.read_text())
    assert [one["reason"] for one in found["findings"]] == ["crc_mismatch"]
