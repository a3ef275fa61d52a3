"""`kafkalog.report`: its numbers are those of other commands, and it shows what is planted and nothing else."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from effort import thinned
from golden_sets import shared_log_dir, unpack, unpacked
from writing import TOPIC_ID, write

import kafkalog
from kafkalog.cli import main
from kafkalog.reporting.report import Report

NOW = "2026-11-26T00:00:00Z"


def rows(report: Report, name: str) -> list[dict[str, Any]]:
    return [*report.tables[name].objects()]


def place(finding: Any) -> tuple[Any, ...]:
    one = finding if isinstance(finding, dict) else finding.as_dict()
    return one["path"], one["reason"], one["position"], one["base_offset"], one["damage"]


def planted_log(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)


@pytest.fixture(scope="module")
def damaged_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = unpack(tmp_path_factory.mktemp("report"), "k44", "unclean")
    planted_log(sorted((root / "p-txn-0").glob("*.log"))[1])
    planted_log(sorted((root / "__consumer_offsets-0").glob("*.log"))[0])
    sorted((root / "p-multi-0").glob("*.timeindex"))[0].write_bytes(b"\1" * 24)
    return root


@pytest.mark.parametrize("name", ["clean", "damaged"])
def test_its_numbers_are_those_of_the_other_commands(name: str, damaged_root: Path) -> None:
    root = unpacked("k44") if name == "clean" else damaged_root
    report = kafkalog.report(root, now=NOW)
    verified = kafkalog.verify(root)
    of_verify = {place(one) for one in verified.all_findings()}
    found = {place(one) for one in rows(report, "findings")}
    assert of_verify <= found
    assert {one for one in found - of_verify if one[-1]} == set()
    assert [
        (row["path"], row["first_offset"], row["n_records"], row["certainty"]) for row in rows(report, "losses")
    ] == [
        (lost.path, lost.first_offset, lost.n_records, lost.certainty)
        for one in verified.partitions
        for lost in one.losses
    ]
    plans = kafkalog.preflight(root, now=NOW)
    assert (report.summary["verdict"], report.summary["n_bytes_lost"]) == (plans.verdict, plans.n_bytes_lost)
    assert {row["path"]: row["verdict"] for row in rows(report, "start")} == {
        one.path: one.verdict for one in plans.partitions if one.verdict != "starts"
    }
    assert len(rows(report, "problems")) == len(plans.problems)
    listed = {one.path: one for one in kafkalog.ls(root)}
    partitions = {row["path"]: row for row in rows(report, "partitions")}
    assert listed.keys() == partitions.keys() - {path for path in partitions if path.endswith(("-delete", "-stray"))}
    for path, one in listed.items():
        row = partitions[path]
        assert (row["n_records"], row["n_bytes"]) == (one.n_readable_records, one.size_in_bytes)
        assert (row["log_start_offset"], row["log_end_offset"]) == (one.start, one.end)
        assert (row["first_timestamp"], row["max_timestamp"]) == (one.first_timestamp, one.max_timestamp)
        assert row["codecs"] == one.codecs
    known = kafkalog.groups(root)
    assert [(row["group"], row["state"], row["lag"]) for row in rows(report, "groups")] == [
        (one.name, one.state, one.lag) for one in known
    ]
    assert sum(row["lag"] or 0 for row in rows(report, "lags")) == report.summary["lag"]
    transactions = kafkalog.transactions(root, now=NOW)
    assert [row["abort_command"] for row in rows(report, "transactions") if row["is_hanging"]] == [
        one.abort_command for one in transactions.hanging
    ]
    assert report.summary["n_hanging"] == len(transactions.hanging)
    assert report.ok == (name == "clean")
    total = sum(file.stat().st_size for path in partitions for file in Path(path).iterdir())
    assert sum(row["n_bytes"] for row in rows(report, "files")) == report.summary["n_file_bytes"] == total
    for table in ("days", "codecs", "topics"):
        assert sum(row["n_bytes"] for row in rows(report, table)) == report.summary["n_bytes"]


def flipped(directory: Path, rng: random.Random) -> Path:
    """A bit of a record."""
    path = rng.choice([one for one in directory.glob("*.log") if one.stat().st_size > 100])
    planted_log(path)
    return path


def moved_entry(directory: Path, rng: random.Random) -> Path:
    path = rng.choice([one for one in directory.glob("*.index") if one.stat().st_size >= 8])
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 4, struct.unpack_from(">i", data, 4)[0] + 1)
    path.write_bytes(data)
    return path


def wrong_time(directory: Path, rng: random.Random) -> Path:
    path = rng.choice([one for one in directory.glob("*.timeindex") if one.stat().st_size >= 12])
    path.write_bytes(struct.pack(">qi", 5, 0) + path.read_bytes()[12:])
    return path


def wrong_snapshot(directory: Path, rng: random.Random) -> Path:
    path = rng.choice(sorted(directory.glob("*.snapshot")))
    path.write_bytes(path.read_bytes()[:5] + b"\xff" + path.read_bytes()[6:])
    return path


def wrong_epochs(directory: Path, rng: random.Random) -> Path:
    path = directory / "leader-epoch-checkpoint"
    path.write_text("0\n1\nnothing\n")
    return path


def no_segment(directory: Path, rng: random.Random) -> Path:
    """A segment in the middle is gone, with its indexes."""
    stem = sorted(directory.glob("*.log"))[1].stem
    for path in directory.glob(f"{stem}.*"):
        path.unlink()
    return directory


def not_an_offset(directory: Path, rng: random.Random) -> Path:
    path = directory / "copy.log"
    path.write_bytes(b"")
    return path


FAULTS: tuple[Callable[[Path, random.Random], Path], ...] = (
    *(flipped, moved_entry, wrong_time, wrong_snapshot, wrong_epochs, no_segment, not_an_offset),
)
WRITTEN = "written-0"
PARTITIONS = (WRITTEN, "p-txn-0", "p-multi-0", "p-compact-0", "p-headers-0", "p-zstd-java-0", "p-multi-1")


@pytest.mark.parametrize("seed", thinned(range(60), 4))
def test_what_is_planted_is_in_the_report_and_nothing_else(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    root = tmp_path / "data"
    root.mkdir()
    names = rng.sample(PARTITIONS, 3)
    for name in names:
        if name == WRITTEN:
            write(root / name)
        else:
            shutil.copytree(shared_log_dir() / name, root / name)
    planted: set[str] = set()
    # two files of one partition may bear on each other: one fault a partition
    for name in names[: rng.randrange(4)]:
        fault = rng.choice([one for one in FAULTS if one is not no_segment or name == WRITTEN])
        planted.add(str(fault(root / name, rng)))
    report = kafkalog.report(root, now=NOW)
    assert {row["path"] for row in rows(report, "findings") if row["damage"]} == planted
    assert (report.findings.n_damage > 0) == bool(planted)
    damaged = {row["path"] for row in rows(report, "partitions") if row["n_damage"]}
    assert damaged == {one if Path(one).is_dir() else str(Path(one).parent) for one in planted}
    markdown = report.to_markdown()
    assert f"State: {'no damage' if not planted else ''}" in markdown


def test_records_that_do_not_decode(tmp_path: Path) -> None:
    table = {"value": [b'{"a": 1}', b"{", b"2", b"\xff", None]}
    kafkalog.write_table(table, tmp_path / "log", topic="t")
    kafkalog.write_table({"value": [b"[]"]}, tmp_path / "log", topic="good")
    report = kafkalog.report(tmp_path / "log", decode={"value": "json"})
    found = {row["topic"]: row for row in rows(report, "undecodable")}
    assert (found["t"]["n_records"], found["t"]["n_undecoded"], found["t"]["first_offset"]) == (5, 2, 1)
    assert found["good"]["n_undecoded"] == 0
    only = kafkalog.report(tmp_path / "log", topics="good")
    assert [row["topic"] for row in rows(only, "topics")] == ["good"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, page, ticket = tmp_path / "data", tmp_path / "report.html", tmp_path / "ticket.md"
    root.mkdir()
    write(root / "t-0", topic_id=TOPIC_ID)
    assert main(["report", str(root), "-o", str(page), "--now", NOW]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert main(["report", str(root), "-o", str(page)]) == 6
    flipped(root / "t-0", random.Random(1))
    assert main(["report", str(root), "-o", str(ticket)]) == 1
    assert "crc\\_mismatch" in ticket.read_text()
    assert main(["report", str(root), "-o", str(tmp_path / "x.pdf")]) == 2
    assert main(["report", str(root), "-o", str(root / "x.html")]) == 6
    capsys.readouterr()
    assert main(["report", str(root), "--json", "--now", NOW]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(json.dumps(kafkalog.report(str(root), now=NOW).as_dict()))
