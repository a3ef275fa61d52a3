"""`kafkalog convert`: what it says, and what it ends with."""

import json

import golden_sets
import pytest

import kafkalog
from kafkalog import format as kf
from kafkalog.cli import main

Capture = pytest.CaptureFixture[str]


def run(capsys, source, output, *arguments):
    code = main(["convert", *map(str, (source, "-o", output, *arguments))])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_partition_is_converted_and_summed_up(tmp_path, capsys):
    source = golden_sets.partitions("k28")["p-v1-none-0"]
    code, out, _ = run(capsys, source, tmp_path / "copy", "--compression", "zstd", "--compression-level", "5")
    assert code == 0
    assert out.startswith("p-v1-none-0  offsets 0..310  records 310 -> 310  batches 310 -> ")
    (partition,) = kafkalog.open(tmp_path / "copy").values()
    assert {int(codec) for segment in partition.segments for codec in segment.batches.codec} == {kf.Codec.ZSTD}


def test_json_has_a_line_a_partition_and_a_dry_run_writes_nothing(tmp_path, capsys):
    root = golden_sets.unpacked("k44")
    arguments = ["-t", "p-multi", "--drop", "key starts_with key-1", "--json", "--dry-run"]
    code, out, err = run(capsys, root, tmp_path / "copy", *arguments)
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["topic"], line["partition"]) for line in lines] == [("p-multi", number) for number in range(3)]
    for line in lines:
        assert line["n_records_before"] == line["n_records_after"] + line["n_records_dropped"]
        assert line["n_records_dropped"] > 10
    assert "would be" in err
    assert list(tmp_path.iterdir()) == []


def test_records_are_kept_dropped_and_redacted_as_said(tmp_path, capsys):
    source = golden_sets.partitions("k44")["p-multi-0"]
    (tmp_path / "secret").write_text("pepper\n")
    arguments = [
        "--filter",
        "offset < 100",
        "--drop",
        "offset in 3,4",
        "--redact",
        "value=null",
        "--redact",
        "key=hash",
    ]
    where = ["--redact-where", "offset >= 50", "--redact-secret-file", tmp_path / "secret"]
    code, out, _ = run(capsys, source, tmp_path / "t-7", *arguments, *where)
    assert code == 0
    before = {row["offset"]: row for row in kafkalog.read_table(source).to_pylist()}
    after = kafkalog.read_table(tmp_path / "t-7").to_pylist()
    assert [row["offset"] for row in after] == [offset for offset in before if offset < 100 and offset not in (3, 4)]
    for row in after:
        if row["offset"] < 50:
            assert (row["key"], row["value"]) == (before[row["offset"]]["key"], before[row["offset"]]["value"])
        else:
            is_hash = row["key"] is not None and len(row["key"]) == 64
            assert is_hash == (before[row["offset"]]["key"] is not None)
            assert row["value"] is None
    assert "dropped" in out
    assert "redacted" in out


def test_segments_are_cut_by_settings(tmp_path, capsys):
    source = golden_sets.partitions("k44")["p-none-java-0"]
    code, _, _ = run(capsys, source, tmp_path / "t-0", "--segment-bytes", "2M", "--config", "index.interval.bytes=0")
    assert code == 0
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 1
    assert (tmp_path / "t-0" / "00000000000000000000.index").stat().st_size > 8 * 20


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--compression", "brotli"], 2, "no codec 'brotli'"),
        (["--compression-level", "3"], 2, "needs compression"),
        (["--redact", "value"], 2, "PART=HOW"),
        (["--redact", "value=md5"], 2, "'null' or 'hash'"),
        (["--redact-where", "key == a"], 2, "need redact"),
        (["--config", "segment.bytes=none"], 2, "segment"),
        (["--config", "segmnt.bytes=1048576"], 2, "segmnt.bytes"),
        (["-q", "--config", "segmnt.bytes=1048576"], 2, "segment.bytes"),
        (["--config", "foo=1"], 2, "foo"),
        (["--drop", "nope == 1"], 2, "no column 'nope'"),
        (["--redact", "key=hash", "--redact-secret-file", "/nonexistent/secret"], 3, "No such file"),
    ],
)
def test_wrong_usage_is_said(arguments, code, words, tmp_path, capsys, log_dir):
    found, out, err = run(capsys, log_dir, tmp_path / "copy", *arguments)
    assert (found, out) == (code, "")
    assert words in err
    assert list(tmp_path.iterdir()) == []


def test_a_hash_without_a_secret_is_warned_of(tmp_path, capsys):
    source = golden_sets.partitions("k44")["p-multi-0"]
    (tmp_path / "secret").write_text("pepper\n")
    for options, is_warned in (
        (["--redact", "key=hash"], True),
        (["--redact", "key=hash", "--redact-secret-file", tmp_path / "secret"], False),
        (["--redact", "value=null"], False),
    ):
        code, _, err = run(capsys, source, tmp_path / "copy", "--dry-run", *options)
        assert code == 0
        assert ("--redact-secret-file" in err) == is_warned


def test_internal_topics_are_converted_if_they_are_wanted(tmp_path, capsys):
    for name in ("orders", "__consumer_offsets"):
        kafkalog.write_table({"value": [b"1"]}, tmp_path / "log", topic=name)
    code, _, err = run(capsys, tmp_path / "log", tmp_path / "a")
    assert (code, [path.name for path in (tmp_path / "a").iterdir()]) == (0, ["orders-0"])
    assert "the internal topic '__consumer_offsets' is left out" in err
    for target, options in (("b", ["--internal"]), ("c", ["-t", "orders,__consumer_offsets"])):
        code, _, err = run(capsys, tmp_path / "log", tmp_path / target, *options)
        assert (code, sorted(path.name for path in (tmp_path / target).iterdir())) == (
            0,
            ["__consumer_offsets-0", "orders-0"],
        )
        assert "left out" not in err
