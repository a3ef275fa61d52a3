"""`kafkalog spark`: the same answers and exit codes as the commands without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.cli.exits import UsageError
from kafkalog.cli.spark.running import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call `main`, which takes the session that is there: exit code, stdout, stderr."""

    def call(*argv: object) -> tuple[int, str, str]:
        code = main(["spark", *map(str, argv)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def damage(root: Path) -> Path:
    path = root / "p-multi-1" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    return path


def test_scan_counts_by_partition_and_answers_sql(run: Run, log_dir: Path) -> None:
    code, out, _ = run("scan", log_dir, "-t", "p-multi", "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    expected = kafkalog.read_table(log_dir, topics="p-multi", columns=["partition"])["partition"].to_pylist()
    assert [row["n_records"] for row in rows] == [expected.count(number) for number in range(3)]
    assert rows[0]["first_timestamp"] == "2023-11-14T22:13:20.000000Z"
    query = "select partition p, max(offset) last from records group by partition order by 1"
    code, out, _ = run("scan", log_dir, "-t", "p-multi", "--sql", query)
    assert (code, out) == (0, "p\tlast\n0\t123\n1\t98\n2\t81\n")
    code, _, err = run("scan", log_dir, "--sql", "select nonsense from records")
    assert code == 2
    assert "nonsense" in err


def test_batches_tell_who_sends_what(run: Run, log_dir: Path) -> None:
    code, out, _ = run("batches", log_dir, "-t", "p-txn", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    table = kafkalog.batches(log_dir, topics="p-txn").to_table()
    assert code == 0
    assert {row["compression"]: row["n_batches"] for row in rows} == {
        name: table["compression"].to_pylist().count(name) for name in ("lz4", "none")
    }


def test_verify_says_what_verify_says(run: Run, log_dir_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("verify", log_dir_copy)
    assert code == 0
    assert (
        out == "total: 10 partitions, 27 segments, 687 batches, 436,651 bytes; records not decoded (--deep); all OK\n"
    )
    path = damage(log_dir_copy)
    code, out, _ = run("verify", log_dir_copy, "--json")
    assert code == main(["verify", "--json", str(log_dir_copy)]) == 1
    theirs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ours = {row["path"]: row for row in map(json.loads, out.splitlines())}
    for row in theirs[:-1]:
        assert {name: ours[row["path"]][name] for name in row if name in ours[row["path"]]} == row
    code, out, _ = run("verify", log_dir_copy, "-t", "p-multi")
    assert code == 1
    assert out.startswith(f"{path}  1 finding of damage\n  ! {path.name}@")
    assert out.endswith("; 1 finding of damage\n")


def test_verify_has_a_line_where_something_is_damaged_or_worth_knowing(run: Run, log_dir: Path, tmp_path: Path) -> None:
    partition = Path(shutil.copytree(log_dir / "p-multi-2", tmp_path / "p-multi-2"))
    last = max(partition.glob("*.log"))
    last.write_bytes(last.read_bytes() + b"torn")
    code, out, _ = run("verify", partition)
    assert code == 0
    assert out.startswith("total: 1 partition, 1 segment, 19 batches, ")
    code, out, _ = run("verify", partition, "-v")
    assert code == 0
    assert out.startswith(f"{last}  OK\n  - {last.name}@")
    assert "partial_tail" in out


def test_rebuilt_files_are_said(run: Run, log_dir_copy: Path, tmp_path: Path) -> None:
    gone = log_dir_copy / "p-multi-0" / "00000000000000000000.index"
    expected = gone.read_bytes()
    gone.unlink()
    code, out, err = run("reindex", log_dir_copy, "-t", "p-multi", "--in-place")
    assert code == 0
    assert out.splitlines()[0].startswith("new      offset ")
    assert "1 new" in err
    assert gone.read_bytes() == expected
    damage(log_dir_copy)
    code, _, err = run("reindex", log_dir_copy, "-t", "p-multi", "--dry-run", "--json")
    assert code == 1
    assert "crc_mismatch" in err
    assert run("reindex", log_dir_copy, "--dry-run", "--backup")[0] == 2


def test_an_export_is_made_once(run: Run, log_dir_copy: Path, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    code, _, err = run("export", log_dir_copy, "-t", "p-multi", "-o", out, "--partition-by", "topic,partition")
    assert code == 0
    assert "303 records" in err
    assert sum(pq.read_metadata(path).num_rows for path in out.rglob("*.parquet")) == 303
    code, _, err = run("export", log_dir_copy, "-o", out)
    assert code == 6
    assert "--overwrite" in err
    path = damage(log_dir_copy)
    code, _, err = run("export", log_dir_copy, "-o", tmp_path / "other")
    assert code == 1
    assert f"{path}@" in err
    assert "--on-corruption skip" in err
    assert run("scan", log_dir_copy)[0] == 1
    assert run("scan", tmp_path / "nothing")[0] == 3


JOBS = {
    "scan": ["--on-corruption", "skip"],
    "batches": [],
    "verify": [],
    "reindex": ["--dry-run"],
    "export": ["-o", "OUT", "--on-corruption", "skip"],
}


@pytest.mark.parametrize("job", JOBS)
def test_a_report_has_what_every_task_found(run: Run, log_dir_copy: Path, tmp_path: Path, job: str) -> None:
    path = damage(log_dir_copy)
    if job == "batches":  # which reads headers only
        data = bytearray(path.read_bytes())
        data[16] = 9
        path.write_bytes(data)
    report = tmp_path / "report.json"
    options = [word.replace("OUT", str(tmp_path / "out")) for word in JOBS[job]]
    code, _, err = run(job, log_dir_copy, *options, "--task-bytes", "4K", "--report", report)
    found = json.loads(report.read_text())
    assert (found["command"], found["exit_code"], code) == (f"spark {job}", 1, 1)
    damaged = [one for one in found["findings"] if one["damage"]]
    assert [one["path"] for one in damaged] == [str(path)]
    assert damaged[0]["last_offset"] is not None
    (total,) = found["partitions"]
    assert total["path"] == str(path.parent)
    assert (total["n_records"], total["certainty"]) == (damaged[0]["n_records"], damaged[0]["certainty"])
    assert total["n_records"] > 0
    assert f"lost: {path.parent}: " in err


@pytest.mark.parametrize(
    "argv",
    [(), ("scan",), ("scan", "x", "--conf", "nonsense"), ("export", "x"), ("verify", "x", "--task-bytes", "0")],
)
def test_wrong_usage_ends_with_2(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", *argv]) == 2
    assert "kafkalog spark" in capsys.readouterr().err


def test_what_is_missing_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no java in JAVA_HOME"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="Java 17 or later on PATH"):
        check_java()


def test_without_pyspark_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql", None)
    assert main(["spark", "verify", str(log_dir)]) == 2
    assert "pip install pyspark" in capsys.readouterr().err
