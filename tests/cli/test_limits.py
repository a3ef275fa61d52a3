"""What is larger than a limit is neither damaged nor lost: each command names the limit, and ends with 5."""

import shutil

import pytest
from effort import thinned

import kafkalog


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A log dir with a batch of 1,100 bytes among small ones, in a closed and in the last segment."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").mkdir()
    with kafkalog.PartitionWriter("log/t-0") as writer:
        for _ in range(2):
            for size in (10, 1000, 10):
                writer.append({"key": [b"k"], "value": [bytes(range(250)) * (size // 250) or b"v"]})
            writer.roll()
    shutil.copytree("log", "other")
    return "log"


@pytest.mark.parametrize("least", thinned([20, 1000], 2))
@pytest.mark.parametrize(
    "argv",
    [
        "ls log",
        "verify log",
        "verify log --deep",
        "salvage log -o out",
        "salvage log --dry-run",
        "convert log -o out --on-corruption skip",
        "convert log -o out",
        "preflight log",
        "recover log --dry-run",
        "report log -o report.md",
        "merge log other -o out",
        "cat log --on-corruption skip",
        "space log",
        "batches log --summary",
        "reindex log -o out",
    ],
)
def test_a_limit_is_neither_damage_nor_loss(run_lines, log, argv, least):
    code, out, err = run_lines(*argv.split(), "--limits", f"max_batch_bytes={least}")
    text = "\n".join([*out, err])
    assert code == 5, text
    assert "max_batch_bytes=N to change the limit" in err
    for word in ("kafkalog: lost", "kafkalog: damage", "damaged:", "of damage", "next: kafkalog boot", ", lost: "):
        assert word not in text, word


def test_boot_names_the_limit_and_no_loss(run_lines, log):
    _, _, err = run_lines("boot", log, "--dry-run", "--limits", "max_batch_bytes=1000")
    assert "kafkalog: limit: " in err
    assert "kafkalog: lost" not in err


def test_a_damaged_size_is_damage_though_it_is_above_the_limit(run_lines, log, tmp_path):
    path = tmp_path / "log" / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[10:12] = (600).to_bytes(2, "big")  # leads into the middle of the next batch
    path.write_bytes(data)
    code, _, err = run_lines("verify", log, "--limits", "max_batch_bytes=500")
    assert code == 1
    assert "kafkalog: lost" in err
