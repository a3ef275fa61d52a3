"""`kafkalog truncate`, `trim` and `recover`: their output and exit codes."""

import json
import shutil

import golden_sets
import pytest

import kafkalog
from kafkalog.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def partition(tmp_path):
    target = tmp_path / "data" / "p-txn-0"
    shutil.copytree(golden_sets.partitions("k44")["p-txn-0"], target)
    return target


def run(capsys, *arguments):
    code = main([*map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_end_goes(partition, tmp_path, capsys):
    code, out, err = run(capsys, "truncate", partition, "--to-offset", 200, "--dry-run")
    assert code == 0
    assert "2 segments deleted" in out
    assert "would be removed" in err
    code, out, _ = run(capsys, "truncate", partition, "--to-offset", 200, "--json", "-o", tmp_path / "copy")
    row = json.loads(out)
    assert kafkalog.open_partition(tmp_path / "copy" / partition.name).log_end_offset == row["log_end_offset"]
    code, _, err = run(capsys, "truncate", partition, "--to-epoch", 0, "--in-place", "--backup", tmp_path / "old", "-v")
    assert code == 0


def test_the_start_goes(partition, tmp_path, capsys):
    backup = tmp_path / "old"
    code, out, err = run(capsys, "trim", partition, "--before-offset", 200, "--in-place", "--backup", backup)
    assert (code, "offsets 200..430  3 segments deleted" in out) == (0, True)
    assert "old files kept" in err
    assert kafkalog.open_partition(partition).log_start_offset == 200


@pytest.mark.parametrize("place", [("truncate", "--to-offset"), ("trim", "--before-offset")])
def test_a_partition_that_cannot_be_cut_is_damage(partition, tmp_path, capsys, place):
    command, option = place
    other = partition.parent / "p-txn-1"
    shutil.copytree(partition, other)
    (partition / "server.log").write_text("not a segment")
    before = {path.name: path.read_bytes() for path in partition.iterdir()}
    in_place = ("--in-place", "--backup", tmp_path / "old")
    for how in (("--dry-run",), ("-o", tmp_path / "copy"), in_place):
        code, _, err = run(capsys, command, partition.parent, option, 200, *how)
        assert code == 1
        assert "server.log: unknown_file: not named after an offset" in err
    assert {path.name: path.read_bytes() for path in partition.iterdir()} == before
    assert not (tmp_path / "copy").exists()
    cut = kafkalog.open_log_dir(partition.parent)
    bounds = {str(key): (one.log_start_offset, one.log_end_offset) for key, one in cut.items()}
    assert bounds["p-txn-0"] == (0, 430)
    assert bounds["p-txn-1"] in ((200, 430), (0, 198), (0, 199), (0, 200))
    # where nothing is to be cut, nothing is in the way
    at = 430 if command == "truncate" else 0
    assert run(capsys, command, partition.parent, option, at, "--dry-run")[0] == 0


def test_wrong_usage(partition, capsys):
    for arguments in (
        ["truncate", partition, "--dry-run"],
        ["truncate", partition, "--to-offset", "x", "--dry-run"],
        ["truncate", partition, "--to-epoch", "-1", "--dry-run"],
        ["truncate", partition, "--to-offset", 5, "--to-epoch", 5, "--dry-run"],
        ["trim", partition, "--before-offset", 5],
        ["trim", partition, "--before-offset", 431, "--dry-run"],
        ["trim", partition, "--before-timestamp", "2026-11-", "--dry-run"],
    ):
        assert run(capsys, *arguments)[0] == 2, arguments


def test_damage_beyond_the_most_findings_is_counted(partition, tmp_path, capsys):
    shutil.copytree(partition, partition.parent / "p-txn-1")
    for path in partition.parent.iterdir():
        (path / "server.log").write_text("not a segment")
    report = tmp_path / "report.json"
    limits = ("--limits", "max_findings=1", "--report", report)
    code, _, err = run(capsys, "trim", partition.parent, "--before-offset", 200, "--dry-run", *limits)
    found = json.loads(report.read_text())
    assert (code, len(found["findings"]), found["n_more_findings"]) == (1, 1, 1)
    assert "1 more findings of damage" in err


@pytest.fixture
def log_dir(tmp_path):
    source = golden_sets.unpacked("k44")
    root = tmp_path / "data"
    root.mkdir()
    for name in ("p-multi-0", "p-txn-0"):
        shutil.copytree(source / name, root / name)
    shutil.copy(source / "meta.properties", root)
    return root


def run_recover(capsys, *arguments):
    code = main(["recover", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_healthy_log_dir_gets_its_marker(log_dir, tmp_path, capsys):
    code, out, err = run_recover(capsys, log_dir, "-o", tmp_path / "out")
    assert code == 0
    assert out.count("1 file rebuilt") == 2  # leader epochs: one that begins at the log end goes, as in a broker
    assert "2 partitions: 0 segments cut or deleted, 0 bytes" in err
    assert (tmp_path / "out" / ".kafka_cleanshutdown").exists()


def test_damage_is_said_and_counted(log_dir, tmp_path, capsys):
    log = sorted((log_dir / "p-txn-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    code, out, err = run_recover(capsys, log_dir, "--dry-run", "--report", tmp_path / "report.json")
    assert code == 1
    assert f"{log.name} cut" in out
    assert out.count("deleted") == 4
    assert "would be cut or deleted" in err
    assert json.loads((tmp_path / "report.json").read_text())["findings"][0]["reason"] == "crc_mismatch"
    code, out, _ = run_recover(capsys, log_dir, "--in-place", "--backup", tmp_path / "old", "--json")
    assert code == 1
    *rows, total = [json.loads(line) for line in out.splitlines()]
    assert [(row["topic"], row["n_bytes_lost"] > 0) for row in rows] == [("p-multi", False), ("p-txn", True)]
    assert total["n_bytes_lost"] == rows[1]["n_bytes_lost"]
    assert (tmp_path / "old" / "p-txn-0" / log.name).read_bytes() == data
    code, _, err = run_recover(capsys, log_dir, "--dry-run")
    assert (code, "0 segments" in err) == (0, True)


def test_damage_that_recovery_does_not_read_is_said_to_remain(tmp_path, capsys):
    disk = shutil.copytree(golden_sets.GOLDEN / "log_dir", tmp_path / "disk")
    code, _, err = run_recover(capsys, disk, "--dry-run")
    # topics without an id: a boot serves them, and reads what recovery does not
    assert (code, "nothing cut" in err, "next: kafkalog boot" in err) == (1, True, True)
    assert f"next: kafkalog verify {disk} (recovery reads no segment before the recovery point" in err
    assert "verify shows damage there, which remains" in err


def test_wrong_usage_in_recover(log_dir, tmp_path, capsys):
    (tmp_path / "there" / "old").mkdir(parents=True)
    for arguments, code in (
        ([log_dir], 2),
        ([log_dir, "--in-place"], 2),
        ([log_dir, "-o", "x", "--backup", "y"], 2),
        ([log_dir, log_dir, "--dry-run"], 2),
        ([log_dir, "--dry-run", "--index-interval-bytes", "many"], 2),
        ([log_dir, "-o", tmp_path / "there"], 6),
        ([log_dir, "-o", log_dir / "new"], 6),
        ([tmp_path / "absent", "--dry-run"], 3),
    ):
        assert run_recover(capsys, *arguments)[0] == code, arguments


def test_a_name_that_stops_a_broker_is_damage(log_dir, capsys):
    (log_dir / "p-txn-0" / "server.log").write_text("mine")
    code, _, err = run_recover(capsys, log_dir, "--dry-run")
    assert code == 1
    assert err.count("server.log") == 1
