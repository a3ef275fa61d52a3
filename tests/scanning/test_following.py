"""`cat --follow`: prints what a writer appends, over rolls and torn tails, until Ctrl-C."""

import json
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest

import kafkalog
from kafkalog.scanning.following import follow


class Follower:
    """A `kafkalog cat --follow --json` that runs, and the objects that it has printed."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "kafkalog", "cat", "--follow", "--json", "--encoding", "utf8", *arguments]
        self.process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.rows = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.rows.append(json.loads(line))

    def wait_for(self, n):
        wait_until(lambda: len(self.rows) >= n or self.process.poll() is not None)
        assert len(self.rows) == n

    def end(self):
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(200)
        self._reader.join()
        assert self.process.stderr is not None
        assert "Traceback" not in self.process.stderr.read()
        self.process.stderr.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def following():
    running = []

    def begin(*arguments):
        running.append(Follower(*arguments))
        return running[-1]

    yield begin
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def wait_until(holds, seconds=200):
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)


class Broker:
    """Appends batches to partitions, as a broker does: byte by byte into the last segment, with rolls."""

    def __init__(self, folder, log_dir):
        self._folder, self.log_dir, self._n = folder, log_dir, 0
        log_dir.mkdir()
        (log_dir / "meta.properties").write_text("version=1\nnode.id=1\n")

    def batch(self, partition, *values):
        """The bytes of a batch that goes to the end of a partition, and the file."""
        self._n += 1
        first = self.end(partition)
        (self._folder / str(self._n)).mkdir(parents=True)
        with kafkalog.PartitionWriter(self._folder / str(self._n) / partition) as writer:
            offsets = list(range(first, first + len(values)))
            writer.append(
                {"value": [one.encode() for one in values], "timestamp": [5] * len(values), "offset": offsets}
            )
        (made,) = (self._folder / str(self._n) / partition).glob("*.log")
        directory = self.log_dir / partition
        if not directory.is_dir():
            directory.mkdir()
            topic_id = f"AAAAAAAAAAAAAAAAAAA{self._n:03}"
            (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        logs = sorted(directory.glob("*.log"))
        return (logs[-1] if logs else directory / f"{first:020d}.log"), made.read_bytes()

    def append(self, partition, *values):
        path, data = self.batch(partition, *values)
        with path.open("ab") as file:
            file.write(data)

    def roll(self, partition):
        (self.log_dir / partition / f"{self.end(partition):020d}.log").touch()

    def end(self, partition):
        path = self.log_dir / partition
        return kafkalog.open_partition(path).log_end_offset if path.is_dir() else 0


def test_what_is_appended_is_printed_once_over_rolls_and_torn_tails(tmp_path, following):
    broker = Broker(tmp_path / "made", tmp_path / "log")
    broker.append("orders-0", "a", "b")
    follower = following(broker.log_dir, "--columns", "topic,partition,offset,value")
    follower.wait_for(2)
    path, data = broker.batch("orders-0", "c", "d")
    with path.open("ab") as file:
        file.write(data[:70])
        file.flush()
        time.sleep(1)
        assert len(follower.rows) == 2  # half a batch is waited for
        file.write(data[70:])
    follower.wait_for(4)
    broker.roll("orders-0")
    broker.append("orders-0", "e")
    follower.wait_for(5)
    # several rolls at once, a new partition and a new topic
    for value in "fgh":
        broker.roll("orders-0")
        broker.append("orders-0", value)
    broker.append("orders-1", "i")
    broker.append("bills-0", "j")
    follower.wait_for(10)
    # deleted and made again
    shutil.rmtree(broker.log_dir / "bills-0")
    wait_until(lambda: False, 1)
    broker.append("bills-0", "k")
    follower.wait_for(11)
    assert follower.end() == 130
    found = [(row["topic"], row["partition"], row["offset"], row["value"]) for row in follower.rows]
    assert [one[2:] for one in found if one[:2] == ("orders", 0)] == list(enumerate("abcdefgh"))
    assert [one for one in found if one[:2] != ("orders", 0)] in (
        [("bills", 0, 0, "j"), ("orders", 1, 0, "i"), ("bills", 0, 0, "k")],
        [("orders", 1, 0, "i"), ("bills", 0, 0, "j"), ("bills", 0, 0, "k")],
    )


def test_options_that_set_an_end_are_refused(run, log_dir, tmp_path):
    for options in (("-n", 3), ("--explain",), ("--end-offset", 5), ("--latest", "key")):
        assert run("cat", "--follow", log_dir / "p-multi-0", *options)[0] == 2
    path = log_dir / "p-multi-0" / "00000000000000000000.log"
    assert run("cat", "--follow", path)[0] == 2
    with tarfile.open(tmp_path / "logs.tar", "w") as archive:
        archive.add(log_dir / "p-multi-0", "kafka/p-multi-0")
    assert run("cat", "--follow", f"tar://kafka::{tmp_path}/logs.tar")[0] == 2


@pytest.mark.parametrize("names", [["backup"], ["a/backup", "b/backup"], ["backup", "orders-0"], ["."]])
def test_each_record_of_directories_of_any_name_is_followed_once(names, tmp_path, monkeypatch):
    broker = Broker(tmp_path / "made", tmp_path / "log")
    broker.append("orders-0", "a", "b")
    copies = []
    for name in names:
        copies.append(tmp_path / "copies" / name)
        shutil.copytree(broker.log_dir / "orders-0", copies[-1], dirs_exist_ok=True)
    monkeypatch.chdir(copies[0])
    paths = [Path()] if names == ["."] else copies if copies[1:] else copies[0]
    scans = follow(paths, pause=0.01)
    assert next(scans).count_rows() == 2 * len(names)
    path, data = broker.batch("orders-0", "c", "d", "e")
    for n, copy in enumerate(copies):
        with (copy / path.name).open("ab") as file:
            file.write(data)
        new = next(scans).to_table()
        assert new["offset"].to_pylist() == [2, 3, 4], n
    # a mapping of offsets names such a directory by the key that the log dir has for it
    log_dir = kafkalog.open_log_dir(paths)
    starts = {key: number + 1 for number, key in enumerate(log_dir)}
    options = {"start_offset": starts, "end_offset": dict.fromkeys(log_dir, 4)}
    n = sum(4 - start for start in starts.values())
    scan = kafkalog.scan(paths, **options)
    assert scan.count_rows() == len(scan.tail(4)) == sum(one.count_rows() for one in scan.plan()) == n
    batches = kafkalog.batches(paths, start_offset=dict.fromkeys(log_dir, 2)).to_table()
    assert batches["base_offset"].to_pylist() == [2] * len(names)
