"""What `ls`, `verify` and `index-stats` print about many partitions, torn tails and damage."""

import json

import pytest
from builder import batch_v2, record_v2

from kafkalog.cli import main


@pytest.fixture
def logs(tmp_path):
    for number in range(4):
        (tmp_path / f"t-{number}").mkdir()
        batches = [batch_v2([record_v2(at) for at in range(5)], base_offset=base) for base in (0, 5, 10)]
        (tmp_path / f"t-{number}" / f"{0:020d}.log").write_bytes(b"".join(batches))
    return tmp_path


def test_ls_counts_the_records_that_can_be_read(logs, capsys):
    (logs / "log-start-offset-checkpoint").write_text("0\n2\nt 1 7\nt 2 10\n")
    assert main(["ls", str(logs), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["n_records"], row["n_readable_records"]) for row in rows] == [(15, 15), (15, 8), (15, 5), (15, 15)]
    assert main(["ls", str(logs)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[5] for line in lines[1:5]] == ["15", "8", "5", "15"]
    assert lines[-1].endswith("43 records")


def test_an_empty_disk_among_others_is_a_note_and_alone_an_error(logs, tmp_path_factory, capsys):
    empty = tmp_path_factory.mktemp("disk")
    for paths in ((logs, empty), (empty, logs)):
        assert main(["ls", *map(str, paths)]) == 0
        out, err = capsys.readouterr()
        assert out.splitlines()[-1].endswith("60 records")
        assert err.count("\n") == err.count(f"note: {empty}: not_kafka: ") == 1
    for paths in ((empty,), (empty, tmp_path_factory.mktemp("disk"))):
        assert main(["ls", *map(str, paths)]) == 3
        assert f"error: {empty}: not_kafka: " in capsys.readouterr().err


def test_ls_marks_a_torn_tail(logs, capsys):
    log = logs / "t-1" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + bytes.fromhex("000000000000000f"))
    assert main(["ls", str(logs)]) == 0
    marked = [line for line in capsys.readouterr().out.splitlines() if line.endswith("torn tail of 8 bytes")]
    assert [line.split()[0] for line in marked] == ["t-1"]


@pytest.mark.parametrize("command", ["ls", "verify"])
def test_damaged_partitions_are_listed_before_the_total(logs, capsys, command):
    for number in (1, 3):
        log = logs / f"t-{number}" / f"{0:020d}.log"
        data = bytearray(log.read_bytes())
        data[100 + 16] = 9  # the magic of a batch
        log.write_bytes(data[: len(data) // 3 + 16] + b"\x09" + data[len(data) // 3 + 17 :])
    assert main([command, str(logs)]) == 1
    *_, damaged, total = capsys.readouterr().out.splitlines()
    assert damaged == "damaged: t-1, t-3"
    assert total.startswith("total: ")


def test_a_line_a_partition_or_a_segment(log_dir, run_lines):
    code, out, err = run_lines("index-stats", log_dir)
    assert (code, err) == (0, "")
    assert len(out) == 1 + 10 + 1
    assert out[0].split()[:4] == ["PARTITION", "BYTES", "ENTRIES", "TIME"]
    assert out[7].split()[:4] == ["p-txn-0", "49,519", "36", "34"]
    assert out[-1].startswith("total: 10 partitions, 27 segments, 426.4 KiB of log; a lookup passes over ")
    code, out, _ = run_lines("index-stats", log_dir, "-s", "-t", "p-txn")
    assert len(out) == 1 + 6 + 1
    assert out[1].split()[:2] == ["p-txn-0", "00000000000000000000.log"]
    code, out, _ = run_lines("index-stats", log_dir / "p-txn-0" / "00000000000000000014.log")
    assert out[1].split()[:3] == ["p-txn-0", "15,973", "13"]


def test_json_is_an_object_a_partition_or_segment(log_dir, run_lines):
    code, out, _ = run_lines("index-stats", log_dir, "--json", "--what-if", "512,4K", "-t", "p-multi")
    rows = [json.loads(line) for line in out]
    assert code == 0
    assert [row["partition"] for row in rows] == [0, 1, 2]
    assert [one["index_interval_bytes"] for one in rows[0]["what_if"]] == [512, 4096]
    code, out, _ = run_lines("index-stats", log_dir, "--json", "-s", "-t", "p-txn")
    assert len(out) == 6
    assert all("what_if" not in json.loads(line) for line in out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--what-if", "x"], "not a number"),
        (["--what-if", "2G"], "below 2G"),
        (["-t", "nope"], "no topic"),
        (["--plot", "x.bmp"], "ends in .svg"),
    ],
)
def test_wrong_usage_is_said(options, message, log_dir, run_lines):
    code, out, err = run_lines("index-stats", log_dir, *options)
    assert (code, out) == (2, [])
    assert message in err


def test_damage_is_said_and_the_rest_is_measured(log_dir_copy, run_lines):
    partition = log_dir_copy / "p-zstd-java-0"
    with (partition / "00000000000000000000.log").open("r+b") as file:
        file.seek(5000)
        file.write(bytes(3000))
    index = log_dir_copy / "p-multi-1" / "00000000000000000000.index"
    index.write_bytes(index.read_bytes()[::-1])
    code, out, err = run_lines("index-stats", log_dir_copy)
    assert code == 1
    assert len(out) == 12
    assert err.count("kafkalog: damage: ") == 2
    assert "index_misleads" in err
    row = next(line for line in out if line.startswith("p-multi-1"))
    assert row.split()[1:4] == ["12,964", "-", "-"]
    assert "1 of the segments without an index that can be measured" in out[-1]
    code, out, err = run_lines("index-stats", log_dir_copy, "--on-corruption", "raise", "-t", "p-zstd-java")
    assert code == 1
    assert "--on-corruption skip" in err
    assert run_lines("index-stats", log_dir_copy / "nothing-here")[0] == 3
