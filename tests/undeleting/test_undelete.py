"""Deleted segments in images: every batch comes back, and none in a wrong partition."""

import itertools
import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from effort import examples, trials
from golden_sets import unpacked

import kafkalog
from kafkalog.cli import main
from kafkalog.codec import crc32c, decode_headers
from kafkalog.errors import OutputExistsError, ReadError, UnsafePathError
from kafkalog.log.searching.resync import find_batches
from kafkalog.storage.bad_sectors import BadSectorSource
from kafkalog.undeleting import divided_batches

BLOCK = 4096
LEVELS = ("certain", "likely", "alone")


def batches_of(data):
    """The batches of a segment, as bytes."""
    headers = decode_headers(data)
    return [data[start : start + size] for start, size in zip(headers.position, headers.size_in_bytes, strict=True)]


def write_partition(directory, rng, *, start=0, producer=None, n_segments=3, epoch=0, clock=1_700_000_000_000):
    """A partition with segments of a few batches of random sizes."""
    offset = start
    directory.parent.mkdir(parents=True, exist_ok=True)
    compression = rng.choice(["none", "lz4", "zstd", "gzip", "snappy"])
    with kafkalog.PartitionWriter(
        directory, start_offset=start, producer=producer, compression=compression, leader_epoch=epoch
    ) as writer:
        for number in range(n_segments):
            for _ in range(rng.randint(1, 6)):
                n = rng.randint(1, 30)
                times = pa.array([clock + (offset + i) * 10 for i in range(n)], pa.timestamp("ms", "UTC"))
                values = [rng.randbytes(rng.choice([10, 200, 3000])) for _ in range(n)]
                writer.append(pa.table({"key": [b"k"] * n, "value": values, "timestamp": times}))
                offset += n
            if number < n_segments - 1:
                writer.roll()


def make_image(path, files, rng, *, most_extents=3):
    """An image in which each file lies in up to three places, in any order, between blocks of other bytes.

    Returns the batches that are divided between two places, or whose header is divided between two blocks.
    """
    extents, divided = [], set()
    for file in files:
        data = file.read_bytes()
        blocks = -(-len(data) // BLOCK)
        cuts = sorted(rng.sample(range(1, blocks), min(rng.randrange(most_extents), blocks - 1))) if blocks > 1 else []
        starts = {cut * BLOCK for cut in cuts}
        at = 0
        for batch in batches_of(data):
            divided |= {batch} if any(at < start < at + len(batch) for start in starts) else set()
            divided |= {batch} if at % BLOCK > BLOCK - 17 else set()
            at += len(batch)
        for first, end in zip([0, *cuts], [*cuts, blocks], strict=True):
            extents.append(data[first * BLOCK : end * BLOCK].ljust((end - first) * BLOCK, b"\0"))
    rng.shuffle(extents)
    with open(path, "wb") as image:
        image.write(bytes(BLOCK))
        for extent in extents:
            image.write(extent)
            image.write(rng.randbytes(BLOCK) if rng.random() < 0.7 else b"")
    return divided


def check(output, log_dir, gone):
    """No directory has batches of two partitions; returns the deleted batches, and those that are back."""
    owners = {}
    for file in log_dir.glob("*/*.log"):
        for batch in batches_of(file.read_bytes()):
            owners.setdefault(batch, set()).add(file.parent.name)
    back = set()
    for directory in (one for level in LEVELS for one in (output / level).glob("*-*")):
        batches = [batch for file in sorted(directory.glob("*.log")) for batch in batches_of(file.read_bytes())]
        names = set.intersection(*(owners[batch] for batch in batches))
        assert names, directory
        assert directory.name.startswith("unknown") or directory.name in names
        back |= set(batches)
    wanted = {batch for file in gone for batch in batches_of(file.read_bytes())}
    return wanted, wanted & back


@pytest.mark.parametrize("seed", range(trials(2, 60)))
def test_all_batches_come_back_and_none_in_a_wrong_partition(tmp_path, seed):
    rng = random.Random(seed)
    root = tmp_path / "log_dir"
    producers = [rng.randrange(1, 10**6) for _ in range(rng.choice([1, 2, 5]))]
    for number in range(rng.randint(2, 6)):
        write_partition(
            root / f"t-{number}", rng, start=rng.choice([0, 0, rng.randrange(10**6)]), n_segments=rng.randint(1, 6),
            producer=rng.choice([None, (rng.choice(producers), 0)]), epoch=rng.randrange(4),
        )  # fmt: skip
    files = sorted(root.glob("*/*.log"))
    gone = files if seed % 3 == 0 else [file for file in files if rng.random() < 0.5]
    live = Path(shutil.copytree(root, tmp_path / "live"))
    for file in gone:
        (live / file.relative_to(root)).unlink()
    divided = make_image(tmp_path / "image", files if seed % 2 else gone or files, rng)
    report = kafkalog.undelete(tmp_path / "image", tmp_path / "out", log_dir=live if seed % 3 else None)
    deleted, back = check(tmp_path / "out", root, gone)
    assert deleted - back <= divided  # nothing leads to the end of the last batch of a file
    assert report.summary["n_batches"] >= len(back - divided)
    assert json.loads((tmp_path / "out" / "undelete.json").read_text()) == json.loads(json.dumps(report.as_dict()))


def test_a_batch_that_is_divided_between_two_places_is_whole_again(tmp_path):
    rng = random.Random(1)
    root = tmp_path / "log_dir"
    write_partition(root / "t-0", rng, n_segments=1)
    data = (root / "t-0" / f"{0:020}.log").read_bytes()
    cut = len(data) // 2 // BLOCK * BLOCK
    second = data[cut:].ljust(-(-len(data[cut:]) // BLOCK) * BLOCK, b"\0")
    (tmp_path / "image").write_bytes(second + rng.randbytes(BLOCK) + data[:cut] + rng.randbytes(BLOCK))
    report = kafkalog.undelete(tmp_path / "image", tmp_path / "out")
    assert report.to_dict()["partitions"][0]["certainty"] == "certain"
    assert (tmp_path / "out" / "certain" / "unknown-0001-0" / f"{0:020}.log").read_bytes() == data
    assert report.ok


def segment_of(directory, rng, n_batches, compression="none"):
    """The bytes of a new segment with batches of about 15 KiB."""
    directory.parent.mkdir(exist_ok=True)
    with kafkalog.PartitionWriter(directory, compression=compression) as writer:
        for _ in range(n_batches):
            writer.append(pa.table({"value": [rng.randbytes(500) for _ in range(30)]}))
    return (directory / f"{0:020}.log").read_bytes()


def blocks_of(data):
    return data.ljust(-(-len(data) // BLOCK) * BLOCK, b"\0")


@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_file_in_two_places_is_whole_again_whichever_batch_is_divided(tmp_path, number, is_swapped, compression):
    rng = random.Random(number)
    data = segment_of(tmp_path / "logs" / "t-0", rng, 5, compression)
    batches = batches_of(data)
    start = sum(map(len, batches[:number]))
    cut = (start + len(batches[number]) // 2) // BLOCK * BLOCK
    assert start < cut < start + len(batches[number])
    parts = [data[:cut], blocks_of(data[cut:])]
    between = rng.randbytes(3 * BLOCK) + b"text ".ljust(BLOCK, b"\0") + bytes(BLOCK) + rng.randbytes(BLOCK)
    (tmp_path / "image").write_bytes(between.join([b"", *(parts[::-1] if is_swapped else parts), b""]))
    report = kafkalog.undelete(tmp_path / "image", tmp_path / "out")
    assert (tmp_path / "out" / "certain" / "unknown-0001-0" / f"{0:020}.log").read_bytes() == data
    assert report.ok
    assert not report.summary["n_untried_batches"]


@pytest.mark.parametrize("n_batches", [1, 2, 4])
def test_batches_that_are_all_divided_are_whole_again(tmp_path, n_batches):
    rng = random.Random(n_batches)
    data = segment_of(tmp_path / "logs" / "t-0", rng, n_batches)
    size = len(data) // n_batches
    cuts = [0, *((number * size + size // 2) // BLOCK * BLOCK for number in range(n_batches)), len(data)]
    extents = [blocks_of(data[start:end]) for start, end in itertools.pairwise(cuts)]
    rng.shuffle(extents)
    (tmp_path / "image").write_bytes(rng.randbytes(BLOCK).join([b"", *extents, b""]))
    kafkalog.undelete(tmp_path / "image", tmp_path / "out")
    assert (tmp_path / "out" / "certain" / "unknown-0001-0" / f"{0:020}.log").read_bytes() == data


def test_the_rest_of_another_batch_is_never_taken(tmp_path):
    rng = random.Random(5)
    first, second = (segment_of(tmp_path / "logs" / name, rng, 3) for name in ("t-0", "t-1"))
    cut = len(first) // 6 // BLOCK * BLOCK
    # both have batches of the same sizes and offsets; the start of one and the end of the other were overwritten
    (tmp_path / "image").write_bytes(first[:cut] + rng.randbytes(BLOCK) + blocks_of(second[cut:]))
    report = kafkalog.undelete(tmp_path / "image", tmp_path / "out")
    assert report.summary["n_batches"] == 2
    assert sum(row["n_batches"] for row in report.to_dict()["partitions"]) == 2
    batches = batches_of((tmp_path / "out" / "alone" / "unknown-0001-0" / f"{30:020}.log").read_bytes())
    assert batches == batches_of(second)[1:]


def test_the_report_counts_the_divided_batches_that_were_not_looked_for(tmp_path, monkeypatch):
    rng = random.Random(6)
    data = segment_of(tmp_path / "logs" / "t-0", rng, 1)
    (tmp_path / "image").write_bytes(data[: 2 * BLOCK] + rng.randbytes(BLOCK) + blocks_of(data[2 * BLOCK :]))
    for limit in ("_MOST_STARTS", "_MOST_TRIED", "_MOST_NEAR", "_MOST_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(divided_batches, limit, 0)
            report = kafkalog.undelete(tmp_path / "image", dry_run=True)
        assert report.summary["n_untried_batches"] == 1, limit
    assert kafkalog.undelete(tmp_path / "image", dry_run=True).to_dict()["partitions"][0]["certainty"] == "certain"


def test_divisions_are_those_at_which_the_checksum_is_correct():
    rng = random.Random(8)
    for _ in range(examples(500)):
        block, size = rng.choice([64, 1024, 4096]), rng.randint(70, 40_000)
        batch = rng.randbytes(size)
        cuts = [cut for cut in range(rng.randint(1, block), size, block) if cut > 21]
        if not cuts:
            continue
        cut = rng.choice(cuts)
        first = np.frombuffer(batch[:cut] + rng.randbytes(size - cut), np.uint8)
        second = np.frombuffer(rng.randbytes(cut) + batch[cut:], np.uint8)
        crc = crc32c(batch[21:])
        assert [*divided_batches.divisions(first, second, crc, cuts[0], block)] == [cut]
        assert not [*divided_batches.divisions(first, second, crc ^ 1, cuts[0], block)]


@pytest.fixture
def retention(tmp_path):
    """A log dir whose first segments were deleted, and an image with these."""
    rng = random.Random(7)
    root = tmp_path / "log_dir"
    # its producer has other sequences than offsets
    write_partition(root / "orders-0", rng, start=40, producer=(5, 0))
    write_partition(root / "orders-1", rng, start=0, n_segments=2)
    live = Path(shutil.copytree(root, tmp_path / "live"))
    gone = sorted(root.glob("orders-0/*.log"))[:-1]
    for file in gone:
        (live / file.relative_to(root)).unlink()
    make_image(tmp_path / "image", sorted(root.glob("*/*.log")), rng, most_extents=1)
    return tmp_path / "image", live, gone


def test_live_segments_name_what_leads_to_them(tmp_path, retention):
    image, live, gone = retention
    report = kafkalog.undelete(image, tmp_path / "out", log_dir=live)
    assert [row["name"] for row in report.to_dict()["partitions"]] == ["orders-0"]
    # producers may have the same sequences in two partitions
    assert [row["certainty"] for row in report.to_dict()["partitions"]] == ["likely"]
    written = sorted((tmp_path / "out" / "likely" / "orders-0").glob("*.log"))
    assert b"".join(one.read_bytes() for one in written) == b"".join(one.read_bytes() for one in gone)
    assert kafkalog.verify(tmp_path / "out" / "likely").ok
    assert report.summary["n_live_batches"] + report.summary["n_deleted_batches"] == report.summary["n_batches"]
    # the next step serves all of it; without a metadata log, settings are unknown
    [step] = report.next
    assert main([*step.command[1:-2], "-o", str(tmp_path / "booted"), "-q"]) == 1
    served, before = (
        kafkalog.read_table(root, topics="orders") for root in (tmp_path / "booted" / "data", tmp_path / "log_dir")
    )
    assert served.num_rows == before.num_rows
    # all of it, on request
    everything = kafkalog.undelete(image, log_dir=live, all=True, dry_run=True)
    assert sum(row["n_batches"] for row in everything.to_dict()["partitions"]) == report.summary["n_batches"]


def test_a_search_goes_on_where_it_was_stopped(tmp_path, retention):
    image, live, _ = retention
    whole = kafkalog.undelete(image, log_dir=live, dry_run=True)
    journal = tmp_path / "journal"

    class Stop(Exception):
        pass

    def stop(n_bytes):
        raise Stop

    with pytest.raises(Stop):
        kafkalog.undelete(image, journal=journal, dry_run=True, progress=stop)
    for _ in range(2):  # the second finds all of it in the journal
        again = kafkalog.undelete(image, log_dir=live, journal=journal, dry_run=True)
        assert again.as_dict() == whole.as_dict()
    other = tmp_path / "other"
    other.write_bytes(image.read_bytes() + bytes(BLOCK))
    with pytest.raises(UnsafePathError):
        kafkalog.undelete(other, journal=journal, dry_run=True)


def test_two_searches_do_not_share_a_journal(tmp_path, retention):
    image, live, _ = retention
    journal = tmp_path / "journal"

    refused = []

    def again(n_bytes):
        refused.append(n_bytes)
        with pytest.raises(UnsafePathError, match="another search"):
            kafkalog.undelete(image, log_dir=live, journal=journal, dry_run=True)

    kafkalog.undelete(image, log_dir=live, journal=journal, dry_run=True, progress=again)
    assert refused
    kafkalog.undelete(image, log_dir=live, journal=journal, dry_run=True)


@pytest.mark.parametrize("seed", range(examples(6)))
def test_batches_that_stand_in_three_places_come_back_once(tmp_path, capsys, seed):
    rng = random.Random(seed)
    compression = rng.choice(["none", "lz4", "zstd"])
    orders, others = (segment_of(tmp_path / "log" / f"{name}-0", rng, 5, compression) for name in ("orders", "others"))
    batches = batches_of(orders)
    # a served segment, a deleted one with the same batches, and what a compaction kept of them
    compacted = b"".join(batches[number] for number in sorted(rng.sample(range(5), rng.randint(1, 4))))
    places = [orders, orders, compacted, others]
    rng.shuffle(places)
    image, position, positions = tmp_path / "image", BLOCK, []
    with open(image, "wb") as file:
        for data in places:
            file.seek(position)
            positions.append(position)
            file.write(blocks_of(data))
            position = file.tell() + rng.choice([BLOCK, 2**20])
        file.truncate(position)
    report = kafkalog.undelete(image, tmp_path / "out")
    written = [
        batch for file in (tmp_path / "out").glob("*/*/*.log") for batch in batches_of(file.read_bytes())
    ]  # fmt: skip
    assert sorted(written) == sorted([*batches, *batches_of(others)])
    copies = report.to_dict()["copies"]
    expected = [at for at, data in zip(positions, places, strict=True) if data is not others]
    expected.remove(positions[places.index(orders)])
    assert [row["position"] for row in copies] == expected
    (name,) = {row["name"] for row in copies}
    assert (tmp_path / "out" / "alone" / name / f"{0:020}.log").read_bytes() == orders
    assert sum(row["n_batches"] for row in copies) == report.summary["n_copied_batches"]
    # a copy by itself is no doubt about anything
    assert len(report.findings.rows) == len(report.to_dict()["partitions"]) == 2
    # live batches do not come back, wherever else they stand
    live = Path(shutil.copytree(tmp_path / "log", tmp_path / "live"))
    shutil.rmtree(live / "others-0")
    report = kafkalog.undelete(image, tmp_path / "named", log_dir=live)
    (file,) = (tmp_path / "named").glob("*/*/*.log")
    assert file.read_bytes() == others
    assert report.to_dict()["copies"] == []
    assert report.summary["n_live_batches"] == 10 + len(batches_of(compacted))
    # all of it, on request
    everything = kafkalog.undelete(image, all=True, dry_run=True)
    assert sum(row["n_batches"] for row in everything.to_dict()["partitions"]) == report.summary["n_batches"]


def test_the_marker_of_a_transaction_is_no_copy_of_that_of_another_partition(tmp_path):
    rng = random.Random(9)
    (tmp_path / "log").mkdir()
    segments = []
    for name in ("orders-0", "others-0"):
        with kafkalog.PartitionWriter(tmp_path / "log" / name, producer=(5, 1)) as writer:
            writer.append(pa.table({"value": [rng.randbytes(90) for _ in range(9)]}), transactional=True)
            writer.commit_transaction(timestamp=77)
        segments.append(batches_of((tmp_path / "log" / name / f"{0:020}.log").read_bytes()))
    first, second = segments
    assert first[1] == second[1]
    # of the other partition, the file system has the marker alone
    image = BLOCK * b"\x55" + blocks_of(b"".join(first)) + BLOCK * b"\x55" + blocks_of(second[1])
    (tmp_path / "image").write_bytes(image)
    report = kafkalog.undelete(tmp_path / "image", dry_run=True)
    assert [row["n_batches"] for row in report.to_dict()["partitions"]] == [2, 1]
    assert report.to_dict()["copies"] == []


def test_two_histories_are_never_one(tmp_path):
    rng = random.Random(3)
    root = tmp_path / "log_dir"
    write_partition(root / "t-0", rng, n_segments=1, epoch=1)
    write_partition(tmp_path / "other" / "t-0", rng, n_segments=2, epoch=3)
    make_image(tmp_path / "image", [*root.glob("*/*.log"), *tmp_path.glob("other/*/*.log")], rng, most_extents=1)
    kafkalog.undelete(tmp_path / "image", tmp_path / "out")
    epochs = []
    for directory in (one for level in LEVELS for one in (tmp_path / "out" / level).glob("*-*")):
        epochs.append(set(kafkalog.batches(directory).to_pandas()["partition_leader_epoch"]))
    assert all(len(some) == 1 for some in epochs)


def test_holes_are_not_read(tmp_path, retention):
    image, _, _ = retention
    with open(tmp_path / "large", "wb") as large:
        large.seek(2**37)
        large.write(image.read_bytes())
        large.truncate(2**38)
    small, big = (kafkalog.undelete(path, dry_run=True) for path in (image, tmp_path / "large"))
    assert small.summary == big.summary


@pytest.mark.parametrize("seed", range(examples(12)))
def test_holes_between_extents_change_nothing_and_are_not_read(tmp_path, seed):
    rng = random.Random(seed)
    write_partition(tmp_path / "log" / "t-0", rng, n_segments=4)
    parts = [file.read_bytes() for file in sorted((tmp_path / "log").glob("*/*.log"))]
    parts += [rng.randbytes(rng.choice([100, 5000, 2**18])) for _ in range(6)]
    rng.shuffle(parts)
    at, n_data = rng.choice([0, 2**19, 3 * 2**20]), 0
    with open(tmp_path / "sparse", "wb") as sparse, open(tmp_path / "dense", "wb") as dense:
        for part in parts:
            for file in (sparse, dense):
                file.seek(at)
                file.write(part)
            n_data += len(part)
            at = -(-(at + len(part)) // BLOCK) * BLOCK + rng.choice([0, BLOCK, 2**18, 2**18 + BLOCK, 2**20, 2**24])
        for file in (sparse, dense):
            file.truncate(at)
    # cp writes what is missing
    subprocess.run(["cp", "--sparse=never", tmp_path / "dense", tmp_path / "filled"], check=True)
    n_read = 0

    class Counted(BadSectorSource):
        def window(self, start, stop):
            nonlocal n_read
            n_read += stop - start
            return super().window(start, stop)

    def rows(path):
        with Counted(path) as source:
            return [
                row for runs in find_batches(source) for row in zip(runs.start.tolist(), runs.end.tolist(), strict=True)
            ]

    with_holes = rows(tmp_path / "sparse")
    n_of_holes, n_read = n_read, 0
    assert with_holes == rows(tmp_path / "filled")
    if os.stat(tmp_path / "sparse").st_blocks * 512 < at // 2:
        assert n_of_holes < n_data + len(parts) * 2**20 + 2**21 or n_of_holes < n_read


def test_what_is_refused(tmp_path, retention):
    image, live, _ = retention
    (tmp_path / "empty").touch()
    with pytest.raises(ReadError):
        kafkalog.undelete(tmp_path / "empty", dry_run=True)
    with pytest.raises(ReadError):
        kafkalog.undelete(tmp_path / "absent", dry_run=True)
    with pytest.raises(UnsafePathError):
        kafkalog.undelete(image, live / "out", log_dir=live)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    with pytest.raises(OutputExistsError):
        kafkalog.undelete(image, tmp_path / "there")
    with pytest.raises(ValueError, match="dry_run"):
        kafkalog.undelete(image)


def test_the_command_ends_with_1_unless_all_is_certain(tmp_path, retention, capsys):
    image, live, _ = retention
    root = tmp_path / "log_dir"
    assert main(["undelete", str(image), "--log-dir", str(root), "-o", str(tmp_path / "out")]) == 0  # all is live
    capsys.readouterr()
    assert main(["undelete", str(image), "--log-dir", str(live), "--dry-run"]) == 1
    assert "orders-0" in capsys.readouterr().out
    assert main(["undelete", str(image), "--dry-run", "--json"]) == 1
    output = capsys.readouterr()
    assert not json.loads(output.out)["ok"]
    assert "unproven" in output.err


def test_equal_traffic_of_two_partitions_is_never_certain(tmp_path):
    rng = random.Random(11)
    (tmp_path / "logs").mkdir()
    for name in ("orders-0", "orders-1"):
        # the second producer has other sequences than offsets, and the same in both
        for producer, counts in ((101, [50]), (202, [30, 30])):
            with kafkalog.PartitionWriter(tmp_path / "logs" / name, producer=(producer, 0)) as writer:
                for n in counts:
                    times = pa.array([1_700_000_000_000 + i for i in range(n)], pa.timestamp("ms", "UTC"))
                    writer.append(pa.table({"value": [rng.randbytes(300) for _ in range(n)], "timestamp": times}))
                    writer.roll()
    head = sorted((tmp_path / "logs" / "orders-0").glob("*.log"))[:2]
    tail = sorted((tmp_path / "logs" / "orders-1").glob("*.log"))[2:]
    make_image(tmp_path / "image", [*head, *tail], rng, most_extents=1)
    report = kafkalog.undelete(tmp_path / "image", dry_run=True)
    assert all(row["certainty"] != "certain" for row in report.to_dict()["partitions"])


def test_a_limit_of_a_search_counts_though_it_is_that_of_other_commands(tmp_path, capsys):
    config = kafkalog.LogConfig(max_message_bytes=2**26)
    with kafkalog.PartitionWriter(tmp_path / "orders-0", config=config) as writer:
        writer.append({"value": [bytes(33 * 2**20)]})
    image, journal = tmp_path / "orders-0" / f"{0:020}.log", tmp_path / "journal"
    search = ["undelete", str(image), "--dry-run", "--json"]
    for limits, n in (
        ([], 0),
        (["--limits", "max_findings=10"], 0),
        (["--limits", "max_batch_bytes=100M"], 1),
        (["--limits", "max_batch_bytes=104857600"], 1),
        (["--limits", "max_batch_bytes=200M"], 1),
    ):
        assert main([*search, *limits]) == 1
        out, err = capsys.readouterr()
        assert json.loads(out)["summary"]["n_deleted_batches"] == n
        # an empty result names the limit
        assert ("max_batch_bytes=33554432" in err) == (not n)
    assert kafkalog.undelete(image, dry_run=True).summary["n_batches"] == 0
    assert kafkalog.undelete(image, dry_run=True, limits=kafkalog.Limits()).summary["n_batches"] == 1
    # what a smaller limit left out is not missed for good
    assert main([*search, "--journal", str(journal)]) == 1
    assert main([*search, "--journal", str(journal), "--limits", "max_batch_bytes=200M"]) == 6
    assert "with --limits max_batch_bytes=33554432" in capsys.readouterr().err


def test_nothing_deleted_is_said(tmp_path, retention, capsys):
    _, live, _ = retention
    image = next(live.glob("*-0/*.log"))
    assert main(["undelete", str(image), "--log-dir", str(live), "-o", str(tmp_path / "out")]) == 0
    assert f"nothing deleted was found; see {tmp_path / 'out'}/undelete.html" in capsys.readouterr().err


def test_a_journal_is_never_written_into_a_source(tmp_path, retention):
    image, live, _ = retention
    before = image.read_bytes()
    for journal in (live / "journal", image):
        with pytest.raises(UnsafePathError):
            kafkalog.undelete(image, log_dir=live, journal=journal, dry_run=True)
    other = tmp_path / "other"
    other.write_bytes(b"something else")
    with pytest.raises(UnsafePathError, match="new file"):
        kafkalog.undelete(image, journal=other, dry_run=True)
    assert image.read_bytes() == before
    assert other.read_bytes() == b"something else"
    assert not (live / "journal").exists()


def make_ext4(image, root, gone, block):
    """An ext4 with a log dir, of which files were removed."""
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-b", str(block), "-F", "-d", root, image], check=True)
    commands = "".join(f"rm /{file.relative_to(root)}\n" for file in gone)
    subprocess.run(["debugfs", "-w", "-f", "-", image], input=commands, text=True, capture_output=True, check=True)


def make_xfs(image, root, gone, block):
    """An XFS with a log dir. Its inodes stay: nothing reads them, and their removal leaves the blocks as they are."""
    lines = ["/stand", "0 0", "d--755 0 0"]
    for directory in sorted(root.iterdir()):
        files = sorted(directory.iterdir())
        lines += [f"{directory.name} d--755 0 0", *(f"{file.name} ---644 0 0 {file}" for file in files), "$"]
    image.with_suffix(".proto").write_text("\n".join([*lines, "$", ""]))
    subprocess.run(["mkfs.xfs", "-q", "-b", f"size={block}", "-p", image.with_suffix(".proto"), image], check=True)


def check_all_are_back(tmp_path, root, gone, make, size):
    """Remove files of a log dir from a file system of `size` bytes that `make` makes: all of their batches return."""
    image = tmp_path / "image"
    with open(image, "wb") as file:
        file.truncate(size)
    make(image)
    live = Path(shutil.copytree(root, tmp_path / "live"))
    for file in gone:
        (live / file.relative_to(root)).unlink()
    kafkalog.undelete(image, tmp_path / "out", log_dir=live)
    deleted, back = check(tmp_path / "out", root, gone)
    assert back == deleted


@pytest.mark.parametrize(
    ("make", "block", "programs"),
    [
        (make_ext4, 1024, ("mke2fs", "debugfs")),
        (make_ext4, 4096, ("mke2fs", "debugfs")),
        (make_xfs, 4096, ("mkfs.xfs",)),
    ],
)
def test_files_that_were_removed_from_a_file_system(tmp_path, make, block, programs):
    if not all(map(shutil.which, programs)):
        pytest.skip(f"not tested here: {' and '.join(programs)}")
    rng = random.Random(block)
    root = tmp_path / "log_dir"
    for number in range(4):
        write_partition(root / f"t-{number}", rng, start=rng.randrange(10**6), n_segments=4, producer=(number, 0))
    gone = [file for file in sorted(root.glob("*/*.log")) if rng.random() < 0.6]
    size = 2**26 if make is make_ext4 else 2**29
    check_all_are_back(tmp_path, root, gone, lambda image: make(image, root, gone, block), size)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(trials(1, 4)))
@pytest.mark.parametrize("name", ["k44", "k28", "k44_extra"])
def test_files_of_real_brokers_that_were_removed_from_a_file_system(tmp_path, name, seed):
    if not all(map(shutil.which, ("mke2fs", "debugfs"))):
        pytest.skip("not tested here: mke2fs and debugfs")
    rng = random.Random(f"{name} {seed}")
    # transactions, compaction, retention and internal topics
    root = tmp_path / "log_dir"
    shutil.copytree(unpacked(name), root)
    files = sorted(file for file in root.glob("*/*.log") if file.stat().st_size)
    topics = [directory for directory in sorted(root.glob("*-*")) if rng.random() < 0.5]
    gone = [file for file in files if file.parent in topics or rng.random() < 0.2]
    size = 2 * sum(file.stat().st_size for file in files) + 2**27
    check_all_are_back(tmp_path, root, gone, lambda image: make_ext4(image, root, gone, 4096), size)


@pytest.mark.parametrize("is_live", [False, True])
def test_metadata_records_in_the_image_name_topics(tmp_path, capsys, is_live):
    source = unpacked("k44")
    wanted = {(row["topic"], row["topic_id"], row["partitions"]) for row in kafkalog.metadata(source).topics}
    files = sorted((source / "__cluster_metadata-0").glob("*.log"))
    users = sorted(file for file in source.glob("*-0/*.log") if file not in files and file.stat().st_size)[:3]
    make_image(tmp_path / "image", [*files, *users], random.Random(3), most_extents=1)
    options = {"log_dir": source} if is_live else {}
    report = kafkalog.undelete(tmp_path / "image", dry_run=True, **options)
    rows = report.to_dict()["topics"]
    assert wanted <= {(row["topic"], row["topic_id"], row["n_partitions"]) for row in rows}
    assert [row for row in rows if row["is_deleted"]] or len(rows) == len(wanted)
    assert any("by its records __cluster_metadata-0" in row["why"] for row in report.to_dict()["partitions"]) != is_live
    main(["undelete", str(tmp_path / "image"), "--dry-run"])
    assert "Metadata records in the images name these topics:" in capsys.readouterr().out


def test_values_of_users_are_no_metadata(tmp_path):
    values = [b"\x01\x02\x00", b"\x01", None, b"", b"\x01\x02\x00\x07orders"]
    kafkalog.write_table(pa.table({"value": values}), tmp_path / "log", topic="orders")
    (segment,) = (tmp_path / "log" / "orders-0").glob("*.log")
    report = kafkalog.undelete(segment, dry_run=True)
    assert report.to_dict()["topics"] == []
    assert report.to_dict()["partitions"][0]["why"] == "nothing joins it"


@pytest.mark.parametrize(
    ("head", "meant"),
    [(b"QFI\xfb\0\0\0\3", "qemu-img convert -O raw"), (b"KDMV", "vmdk"), (b"\x1f\x8b\x08\0", "unpack it first")],
)
def test_an_image_whose_blocks_are_not_in_the_order_of_the_disk_is_refused(tmp_path, head, meant):
    image = tmp_path / "disk.img"
    image.write_bytes(head + bytes(5000))
    with pytest.raises(kafkalog.UnsupportedError, match=meant):
        kafkalog.undelete(image, tmp_path / "out")
    assert not (tmp_path / "out").exists()
