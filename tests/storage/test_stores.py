"""Logs in object stores: the same answers as from local files, few requests, and clear errors where a store fails."""

from __future__ import annotations

import contextlib
import pickle
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import obstore
import pyarrow as pa
import pytest
from conftest import GOLDEN
from effort import THOROUGH, thinned
from mutants import repaired
from obstore.store import MemoryStore
from peaks import NEEDS_PROC, printed_by
from refusals import fails_with

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import (
    CorruptionError,
    FileChangedError,
    NotKafkaError,
    ReadError,
    UnsafePathError,
    UnsupportedError,
)
from kafkalog.scanning.planning import plan
from kafkalog.scanning.tasks import read_task
from kafkalog.storage.stores import delta_options

LOG_DIR = GOLDEN / "log_dir"
SECRET = "hush-4711"


class Requests:
    """An obstore store in memory with the golden log dir; `log` has each request.

    `fault(kind, path, call)` makes each answer: it may change that of the call, or raise.
    """

    def __init__(self, monkeypatch, root=LOG_DIR):
        self.store, self.log = MemoryStore(), list[tuple[str, str, Any]]()
        self.fault = lambda kind, path, call: call()
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            obstore.put(self.store, f"log/{file.relative_to(root)}", file.read_bytes())
        for kind in ("list_with_delimiter", "head", "get"):
            monkeypatch.setattr(obstore, kind, self._counted(kind, getattr(obstore, kind)))

    def _counted(self, kind, call):
        def counted(store, path=None, **options):
            self.log.append((kind, path or "", 0 if kind != "get" else options["options"]["range"]))
            return self.fault(kind, path or "", lambda: call(store, path, **options))

        return counted

    @property
    def place(self):
        """The log dir."""
        return kafkalog.location("log", filesystem=self.store)

    def count(self, kind):
        """How many requests of a kind there were."""
        return sum(one == kind for one, _, _ in self.log)


class Answer:
    """What `obstore.get` returns, with other bytes or metadata."""

    def __init__(self, data, meta):
        self._data, self.meta = data, meta

    def bytes(self):
        """The bytes."""
        return self._data


@pytest.fixture
def requests(monkeypatch):
    return Requests(monkeypatch)


@pytest.fixture(scope="module")
def in_memory():
    """The URL of the golden log dir in fsspec's memory."""
    memory = fsspec.filesystem("memory")
    memory.put(str(LOG_DIR), "/stores-test", recursive=True)
    yield "memory://stores-test"
    memory.rm("/stores-test", recursive=True)


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """A directory with log.tar and log.zip."""
    place = tmp_path_factory.mktemp("archives")
    with tarfile.open(place / "log.tar", "w") as tar:
        tar.add(LOG_DIR, "backup/log_dir")
    with zipfile.ZipFile(place / "log.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(path for path in LOG_DIR.rglob("*") if path.is_file()):
            packed.write(file, f"backup/log_dir/{file.relative_to(LOG_DIR)}")
    return place


def printed(capsys, *argv):
    """What a command prints for users."""
    assert main([*argv]) == 0
    return capsys.readouterr().out


@pytest.fixture(params=["memory", "obstore", "tar", "zip", "cache"])
def place(request, in_memory, archives, monkeypatch):
    """The golden log dir in a store."""
    match request.param:
        case "memory":
            return in_memory
        case "obstore":
            return Requests(monkeypatch).place
        case "cache":
            return f"simplecache::file://{LOG_DIR}"
        case kind:
            return f"{kind}://backup/log_dir::{archives}/log.{kind}"


def test_a_store_gives_what_local_files_give(place):
    local, stored = kafkalog.open(LOG_DIR), kafkalog.open(place)
    assert [*stored] == [*local]
    for key in local:
        mine, other = stored[key], local[key]
        for level in ("read_uncommitted", "read_committed"):
            options = {"isolation_level": level, "on_corruption": "skip", "include_control": True}
            assert mine.to_table(**options) == other.to_table(**options)
        assert mine.log_start_offset == other.log_start_offset
        assert mine.high_watermark == other.high_watermark
        assert mine.topic_id == other.topic_id
        assert mine.leader_epochs.tolist() == other.leader_epochs.tolist()
        assert [one.name for one in (segment.path for segment in mine.segments)] == [
            segment.path.name for segment in other.segments
        ]
    found, expected = kafkalog.verify(stored), kafkalog.verify(local)
    assert [one.reason for one in found.findings] == [one.reason for one in expected.findings]
    assert kafkalog.dataset(stored).count_rows() == kafkalog.dataset(local).count_rows()
    assert [(one.n_records, one.end) for one in kafkalog.ls(stored)] == [
        (one.n_records, one.end) for one in kafkalog.ls(local)
    ]


def test_commands_take_urls(in_memory, tmp_path, capsys):
    path, url = f"{LOG_DIR}/p-multi-0", f"{in_memory}/p-multi-0"
    for argv in (
        ("cat", "--json"),
        ("batches", "--json"),
        ("lookup", "--offset", "42"),
        ("epochs",),
        ("index-stats",),
        ("verify",),
        ("ls", "-s"),
    ):
        assert printed(capsys, argv[0], url, *argv[1:]).replace(url, path) == printed(
            capsys, argv[0], path, *argv[1:]
        ), argv
    for name in ("00000000000000000000.log", "00000000000000000000.timeindex"):
        expected = printed(capsys, "dump", f"{path}/{name}", "--print-data-log" if "log" in name[-3:] else "--json")
        found = printed(capsys, "dump", f"{url}/{name}", "--print-data-log" if "log" in name[-3:] else "--json")
        assert found.replace(url, path) == expected
    table = kafkalog.read_table(path, columns=["offset", "value"])
    for command in ("convert", "salvage"):
        assert main([command, url, "-q", "-o", str(tmp_path / command)]) == 0
        made = kafkalog.open_log_dir(next((tmp_path / command).rglob("*.log")).parent)
        assert made.to_table(columns=["offset", "value"]) == table
    assert main(["export", url, "-q", "-o", str(tmp_path / "x.parquet")]) == 0
    assert kafkalog.read_pandas(url).equals(kafkalog.read_pandas(path))


def test_what_writes_takes_no_url(in_memory, tmp_path, capsys):
    for command in ("reindex", "recover", "truncate"):
        options = {"truncate": ("--to-offset", "3", "--in-place"), "recover": ("--in-place",)}
        assert main([command, f"{in_memory}/p-multi-0", *options.get(command, ("--in-place",))]) != 0
        assert "copy it to a local directory first" in capsys.readouterr().err
    place = kafkalog.location(f"{in_memory}/p-multi-0")
    for call in (
        lambda: kafkalog.reindex(place, in_place=True),
        lambda: kafkalog.recover(place, in_place=True),
        lambda: kafkalog.truncate(place, to_offset=3, in_place=True),
    ):
        with pytest.raises(UnsafePathError):
            call()
    with pytest.raises(UnsafePathError):
        kafkalog.convert(LOG_DIR, f"{in_memory}/x")
    assert not [*tmp_path.iterdir()]


def test_archives_and_packed_files_say_how_to_proceed(archives, tmp_path):
    for name, hint in (
        ("log.tar", "tar://"),
        ("log.tar.gz", "unpack"),
        ("00000000000000000000.log.gz", "unpack"),
        ("00000000000000000000.log.zst", "unpack"),
    ):
        (tmp_path / name).write_bytes(b"x")
        for path in (tmp_path / name, f"simplecache::file://{tmp_path / name}"):
            with pytest.raises(NotKafkaError) as error:
                kafkalog.open(path)
            assert hint in error.value.detail


def test_many_segments_take_one_listing(tmp_path, monkeypatch):
    source = (LOG_DIR / "p-multi-1" / f"{0:020d}.log").read_bytes()
    (tmp_path / "orders-0").mkdir()
    for number in range(1000):
        (tmp_path / "orders-0" / f"{number * 1000:020d}.log").write_bytes(source if not number else b"")
    requests = Requests(monkeypatch, tmp_path)
    partition = kafkalog.open(requests.place / "orders-0")
    assert len(partition.segments) == 1000
    assert partition.size_in_bytes == len(source)
    assert [one for one in requests.log if one[1].startswith("log/orders-0")] == requests.log
    assert requests.count("list_with_delimiter") == 1
    assert requests.count("head") == requests.count("get") == 0


def test_tags_that_are_listed_without_quotes_are_those_of_the_objects(requests):
    def unquoted(kind, path, call):
        found = call()
        if kind == "list_with_delimiter":
            objects = [{**one, "e_tag": one["e_tag"].strip('"')} for one in found["objects"]]
            return {"objects": objects, "common_prefixes": found["common_prefixes"]}
        return found

    requests.fault = unquoted
    with pytest.raises(FileChangedError):
        kafkalog.scan(requests.place).count_rows()
    place = requests.place
    place.store._quotes_tags = True
    assert kafkalog.scan(place).count_rows() == kafkalog.scan(LOG_DIR).count_rows()


def test_an_object_that_is_replaced_or_deleted_is_an_error(requests):
    for change in (
        lambda key: obstore.put(requests.store, key, b"other"),
        lambda key: obstore.delete(requests.store, key),
    ):
        partition = kafkalog.open(requests.place / "p-multi-1")
        change(partition.segments[0].path.key)
        with fails_with("file_changed"):
            partition.to_table()


def _denied(kind, path, call):
    raise obstore.exceptions.PermissionDeniedError(f"403 for https://x.y/{path}?sig={SECRET}")


def _failing(kind, path, call):
    raise obstore.exceptions.GenericError(f"500 at https://user:{SECRET}@x.y/{path}\n\nDebug source:\n{SECRET}")


def _expired(kind, path, call):
    raise obstore.exceptions.GenericError(f"400: <Code>ExpiredToken</Code> token={SECRET}")


@pytest.mark.parametrize("fault", [_denied, _failing, _expired])
def test_what_a_store_refuses_is_one_clear_error(requests, fault):
    partition = kafkalog.open(requests.place / "p-multi-1")
    assert partition.log_start_offset == 0
    requests.fault = fault
    for call in (partition.to_table, lambda: kafkalog.open(requests.place)):
        n = len(requests.log)
        with pytest.raises(ReadError) as error:
            call()
        assert SECRET not in f"{error.value!r} {error.value}"
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__
        assert "\n" not in error.value.detail
        assert len(requests.log) <= n + 2  # the library has asked again where that helps


def test_credentials_are_shown_nowhere(capsys):
    options = {"access_key_id": SECRET, "secret_access_key": SECRET, "region": "x", "endpoint": "http://127.0.0.1:1"}
    place = kafkalog.location("s3://bucket/log", storage_options={**options, "max_retries": 0})
    assert SECRET not in repr(place) + repr(place.store) + str(place)
    assert SECRET.encode() not in pickle.dumps(place)
    with pytest.raises(ReadError) as error:
        kafkalog.open(place)
    assert SECRET not in str(error.value)
    for url in (f"s3://{SECRET}@bucket/x", f"https://user:{SECRET}@x.y/log", f"tar://x::s3://k:{SECRET}@b/x.tar"):
        with pytest.raises(ValueError, match="user info") as refused:
            kafkalog.open(url)
        assert SECRET not in str(refused.value)
        assert main(["ls", url]) == 2
        assert SECRET not in capsys.readouterr().err


def test_pickles_lead_back_to_the_store(requests, in_memory):
    planned = plan(in_memory, topics="p-multi")
    rows = [len(batch) for task in pickle.loads(pickle.dumps(planned.tasks)) for batch in read_task(task)]
    assert sum(rows) == kafkalog.scan(LOG_DIR, topics="p-multi").count_rows()
    place = kafkalog.location(in_memory)
    code = (
        "import sys, pickle, kafkalog, fsspec; fsspec.filesystem('memory').put(sys.argv[1], '/stores-test',"
        " recursive=True); print(len(kafkalog.open(pickle.loads(bytes.fromhex(sys.argv[2])))))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(LOG_DIR), pickle.dumps(place).hex()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(found.stdout) == len(kafkalog.open(LOG_DIR))
    with pytest.raises(TypeError):
        pickle.dumps(requests.place)


def test_a_missing_library_is_named(monkeypatch):
    for module, url in (("obstore.store", "s3://bucket/log"), ("fsspec", "memory://log")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UnsupportedError) as error:
            kafkalog.open(url)
        assert error.value.reason == "not_installed"


@pytest.fixture(scope="module")
def s3():
    """A server with a bucket, and a client of it."""
    import boto3
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    keys = {"aws_access_key_id": SECRET, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", **keys)
    client.create_bucket(Bucket="bucket")
    for file in sorted(path for path in LOG_DIR.rglob("*") if path.is_file()):
        client.put_object(Bucket="bucket", Key=f"x/{file.relative_to(LOG_DIR)}", Body=file.read_bytes())
    yield f"http://{host}:{port}", client
    running.stop()


def test_s3(s3):
    endpoint, client = s3
    options = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": SECRET, "secret_access_key": SECRET}
    stored = kafkalog.open("s3://bucket/x", storage_options=options)
    assert stored.to_table() == kafkalog.read_table(LOG_DIR)
    key = f"x/p-multi-1/{0:020d}.log"
    content = client.get_object(Bucket="bucket", Key=key)["Body"].read()
    client.put_object(Bucket="bucket", Key=key, Body=b"other")
    with pytest.raises(FileChangedError):
        stored["p-multi-1"].to_table()
    with fails_with("file_unreadable"):
        kafkalog.open("s3://absent/x", storage_options=options)
    client.put_object(Bucket="bucket", Key=key, Body=content)


ELSEWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize("cache", thinned(["", "filecache::", "blockcache::", "simplecache::"], 2))
@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({"AWS_ENDPOINT_URL": "HERE"}, {}),
        ({"AWS_ENDPOINT_URL": "HERE", "AWS_ALLOW_HTTP": "true"}, {}),
        ({"AWS_ENDPOINT_URL": ELSEWHERE, "AWS_ENDPOINT_URL_S3": "HERE"}, {}),
        ({}, {"endpoint": "HERE"}),
        ({}, {"endpoint_url": "HERE", "key": SECRET, "secret": SECRET, "region_name": "us-east-1", "max_retries": 1}),
        ({}, {"s3": {"endpoint_url": "HERE"}}),
        ({"AWS_ENDPOINT_URL": ELSEWHERE, "AWS_ENDPOINT_URL_S3": ELSEWHERE}, {"endpoint": "HERE"}),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # fsspec leaves files of blocks open
def test_an_endpoint_comes_from_options_or_the_environment(environment, options, cache, s3, tmp_path, monkeypatch):
    options = options if cache else options.get("s3", options)

    def here(given):
        return {
            name: here(one) if isinstance(one, dict) else s3[0] if one == "HERE" else one for name, one in given.items()
        }

    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    keys = {"AWS_ACCESS_KEY_ID": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    for name, value in {**keys, **here(environment)}.items():
        monkeypatch.setenv(name, value)
    options = here(options) | ({"cache_storage": str(tmp_path)} if cache else {})
    stored = kafkalog.open(f"{cache}s3://bucket/x/p-multi-1", storage_options=options)
    assert stored.to_table() == kafkalog.read_table(LOG_DIR / "p-multi-1")


# --- bytes and requests ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A log dir with a partition of 24 MiB in three segments, with indexes."""
    root = tmp_path_factory.mktemp("large")
    values = np.random.default_rng(1).integers(0, 256, (6144, 4096), np.uint8)
    table = pa.table({"value": pa.array([value.tobytes() for value in values], pa.binary())})
    config = kafkalog.LogConfig.from_properties({"segment.bytes": 2**23})
    kafkalog.write_table(table, root / "log", topic="t", batch_size=2**14, config=config, stage_in=root)
    return root / "log"


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(("start", "end"), [(None, None), (1000, 1500), (3000, 3001), (6000, None)])
def test_little_more_is_fetched_than_is_needed(large, monkeypatch, start, end, threads):
    requests = Requests(monkeypatch, large)
    options = {"start_offset": start, "end_offset": end}
    table = kafkalog.scan(requests.place, threads=threads, **options).to_table()
    assert table == kafkalog.scan(large, **options).to_table()
    size = kafkalog.open(large / "t-0").size_in_bytes
    needed = size * table.num_rows // 6144
    fetched = sum(place[1] - place[0] for kind, _, place in requests.log if kind == "get")
    assert fetched <= 1.1 * needed + 2**21
    assert requests.count("list_with_delimiter") <= 3
    assert requests.count("get") <= 2 + needed // 2**21 + 16
    assert max(place[1] - place[0] for kind, _, place in requests.log if kind == "get") <= 2**23


def test_max_disorder_ends_a_range_of_times_early(large, tmp_path, monkeypatch, capsys):
    stamps = np.arange(6144) * 1000
    stamps[500::7] -= 3000
    stamps[3000] = 1500  # later than the claim, and in none of the ranges
    table = kafkalog.read_table(large, columns=["value"])
    table = table.append_column("timestamp", pa.array(stamps, pa.timestamp("ms", "UTC")))
    config = kafkalog.LogConfig.from_properties({"segment.bytes": 2**23})
    kafkalog.write_table(table, tmp_path / "log", topic="t", batch_size=2**14, config=config, stage_in=tmp_path)
    requests = Requests(monkeypatch, tmp_path / "log")
    for start, end in ((1000, 1500), (0, 1), (3000, 3001), (6000, None), (5000, 6143)):
        times = {"start_timestamp": start * 1000, "end_timestamp": end and end * 1000}
        expected = kafkalog.read_table(tmp_path / "log", **times)
        if end is None:
            with pytest.raises(ValueError, match="end_timestamp"):
                kafkalog.scan(requests.place, **times, max_disorder=0)
            continue
        requests.log.clear()
        scan = kafkalog.scan(requests.place, **times, max_disorder=3000, use_time_index=True)
        assert scan.to_table() == expected
        fetched = sum(place[1] - place[0] for kind, _, place in requests.log if kind == "get")
        assert fetched <= 1.2 * expected.nbytes + 2**23
        assert [finding.reason.value for finding in scan.findings] == ["end_assumed"] * (end < 6000)
        assert all(end < finding.base_offset <= end + 10 for finding in scan.findings)
    # a wrong claim is what the user said; without indexes nothing is assumed
    options = {"end_timestamp": 1_002_000, "max_disorder": 0}
    assert kafkalog.scan(tmp_path / "log", **options).count_rows() == 1003
    for path in (tmp_path / "log" / "t-0").glob("*.timeindex"):
        path.write_bytes(b"")
    scan = kafkalog.scan(tmp_path / "log", **options)
    assert scan.count_rows() == 1004
    assert not scan.findings
    assert main(["cat", str(tmp_path / "log"), "--end-timestamp", "5000", "--max-disorder", "9", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6


@pytest.mark.parametrize("threads", [1, 4])
def test_an_hour_of_log_append_time_is_fetched_alone(threads, large, tmp_path, monkeypatch):
    stamps = pa.array(np.arange(6144) * 5000, pa.timestamp("ms", "UTC"))
    table = kafkalog.read_table(large, columns=["value"]).append_column("timestamp", stamps)
    kafkalog.write_table(table, tmp_path / "log", topic="t", batch_size=2**14, stage_in=tmp_path)
    log = tmp_path / "log" / "t-0" / f"{0:020d}.log"
    data, at = bytearray(log.read_bytes()), 0
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        data[at + 22] |= 8  # a broker's clock
        data[at:end] = repaired(bytes(data[at:end]))
        at = end
    log.write_bytes(data)
    requests = Requests(monkeypatch, tmp_path / "log")
    hour = {"start_timestamp": 3_600_000 * 3, "end_timestamp": 3_600_000 * 4}
    scan = kafkalog.scan(requests.place, **hour, threads=threads, use_time_index=True)
    found = scan.to_table()
    assert found == kafkalog.read_table(tmp_path / "log", **hour)
    assert found.num_rows >= 716
    fetched = sum(place[1] - place[0] for kind, _, place in requests.log if kind == "get")
    assert fetched <= 1.2 * found.nbytes + 2**21
    assert [finding.reason.value for finding in scan.findings] == ["end_assumed"]


# --- each request may fail, at any time ------------------------------------------------------------------------------


class Fault:
    """Makes the answers to requests wrong, from one of them on; `n_left` counts down to it."""

    def __init__(self, kind, n_left, requests, rng):
        self._kind, self.n_left, self._store, self._rng = kind, n_left, requests.store, rng

    def __call__(self, kind, path, call):
        """See `Requests.fault`."""
        self.n_left -= 1
        if self.n_left >= 0:
            return call()
        if self._kind == "deleted":
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, path)
        elif self._kind == "replaced" and kind == "get":
            obstore.put(self._store, path, bytes(obstore.get(self._store, path).bytes())[:-1] + b"x")
        elif self._kind in ERRORS:
            raise ERRORS[self._kind]
        found = call()
        if kind != "get":
            return self._stale(found) if self._kind == "stale" and kind != "head" else found
        data, meta = bytes(found.bytes()), dict(found.meta)
        if self._kind == "short":
            data = data[: int(self._rng.integers(len(data)))]
        elif self._kind == "long":
            data += b"x"
        elif self._kind == "etag":
            meta["e_tag"] = '"other"'
        elif self._kind == "size":
            meta["size"] += 1
        elif self._kind == "flipped":
            at = int(self._rng.integers(len(data)))
            data = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        return Answer(data, meta)

    def _stale(self, found):
        """A listing that still has an object as it was before it was written again, and one that is gone."""
        objects = [{**one, "size": max(one["size"] - 1, 0), "e_tag": '"old"'} for one in found["objects"]]
        gone = [{**one, "path": f"{one['path'][:-5]}9.log"} for one in objects if one["path"].endswith(".log")]
        return {**found, "objects": [*objects, *gone[:1]]}


ERRORS = {
    "403": obstore.exceptions.PermissionDeniedError(f"403 for https://x.y/z?sig={SECRET}"),
    "401": obstore.exceptions.UnauthenticatedError(f"401 for https://user:{SECRET}@x.y/z"),
    "expired": obstore.exceptions.GenericError(f"400: <Code>ExpiredToken</Code> token={SECRET}"),
    "500": obstore.exceptions.GenericError(f"500 Internal Server Error\n\nDebug source:\n{SECRET}"),
    "503": obstore.exceptions.GenericError("503 Slow Down, after 5 retries"),
    "reset": obstore.exceptions.GenericError("error sending request: connection reset by peer"),
    "hang": obstore.exceptions.GenericError("operation timed out"),
    "gone": FileNotFoundError(f"https://x.y/z?token={SECRET}"),
}
FAULTS = (*ERRORS, "deleted", "replaced", "stale", "short", "long", "etag", "size", "flipped")


@pytest.mark.parametrize("kind", thinned(FAULTS, 3))
def test_a_fault_at_any_request_is_an_error_or_does_no_harm(kind, large, monkeypatch):
    rng = np.random.default_rng([20261127, FAULTS.index(kind)])
    expected = kafkalog.read_table(large)
    errors = list[kafkalog.KafkalogError]()
    for _ in range(16 if THOROUGH else 3):
        with monkeypatch.context() as patch:
            requests = Requests(patch, large)
            requests.fault = Fault(kind, int(rng.integers(3 if kind == "stale" else 12)), requests, rng)
            try:
                scan = kafkalog.scan(requests.place, threads=int(rng.integers(1, 5)))
                assert scan.to_table() == expected
                assert not scan.n_damage
            except kafkalog.KafkalogError as error:
                errors.append(error)
    assert errors
    for error in errors:
        assert str(error.path).startswith("MemoryStore://log")
        assert SECRET not in f"{error!r} {error}"
        assert error.__cause__ is None
        assert "\n" not in error.detail
        is_about_bytes = isinstance(error, (FileChangedError, CorruptionError)) or "returned" in error.detail
        assert not is_about_bytes or error.position is not None


# --- a web server that misbehaves ------------------------------------------------------------------------------------


class Web(BaseHTTPRequestHandler):
    """Serves a directory with ranges and pages of links; `faults` has how to fail the next requests."""

    root: Path
    faults: list[str]
    ended: threading.Event

    def log_message(self, *args):
        """Print nothing."""

    def do_HEAD(self):
        """Answer without a body."""
        self.do_GET()

    def do_GET(self):
        """Answer."""
        fault = self.faults[0] if self.faults else ""
        if (self.faults and self.faults[-1] != fault) or len(self.faults) > 1:
            self.faults.pop(0)
        if fault == "hang":
            self.ended.wait(250)
        elif fault == "reset":
            self.connection.close()
            return
        elif fault.isdecimal():
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path = self.root / self.path.strip("/")
        if path.is_dir():
            links = (f'<a href="{one.name}{"/" * one.is_dir()}">x</a>' for one in path.iterdir())
            self._answer(200, "".join(links).encode(), {})
        elif path.is_file():
            size, ranged = path.stat().st_size, self.headers["Range"]
            start, end = map(int, ranged.removeprefix("bytes=").split("-")) if ranged else (0, size - 1)
            more = {"Content-Range": f"bytes {start}-{end}/{size}"} if ranged else {}
            with path.open("rb") as file:
                file.seek(start)
                self._answer(206 if ranged else 200, file.read(end + 1 - start), {"ETag": '"x"', **more})
        else:
            self._answer(404, b"", {})

    def _answer(self, code, data, headers):
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), "Last-Modified": _THEN, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


_THEN = "Tue, 14 Nov 2023 22:13:20 GMT"


@pytest.fixture
def web():
    """The URL of a server for the golden log dir, and its faults."""
    with serving(LOG_DIR) as served:
        yield served


@contextlib.contextmanager
def serving(root):
    """The URL of a server for a directory, and its faults."""
    faults, ended = [], threading.Event()
    handler = type("Handler", (Web,), {"root": root, "faults": faults, "ended": ended})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", faults
        ended.set()
        server.shutdown()


_PEAK = """
import sys, kafkalog, kafkalog.storage.stores, obstore.store, kafkalog.scanning.read
from peaks import peak

before = peak()
n = sum(batch.num_rows for batch in kafkalog.scan(sys.argv[1], threads=int(sys.argv[2])).to_batches())
print(n, (peak() - before) // 2**20)
"""


@pytest.mark.slow
@NEEDS_PROC
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_has_a_bound_whatever_the_size_of_an_object(threads, tmp_path):
    values = np.random.default_rng(1).integers(0, 256, (2048, 2**16), np.uint8)
    table = pa.table({"value": pa.array([value.tobytes() for value in values], pa.binary())})
    kafkalog.write_table(table, tmp_path / "log", topic="t", stage_in=tmp_path)
    with serving(tmp_path / "log") as (url, _):
        # freed pieces go back to the system at once; by default glibc keeps some of them for each thread
        environment = {"MALLOC_MMAP_THRESHOLD_": "262144", "AWS_EC2_METADATA_DISABLED": "true"}
        printed = printed_by(_PEAK, f"{url}/t-0/{0:020d}.log", threads, **environment)
    n, mib = map(int, printed.split())
    assert n == 2048
    assert mib <= 32 + 32 + 2 * threads


def test_web_servers_that_list_directories_are_read(web):
    url, _ = web
    assert kafkalog.open(f"{url}/p-txn-0").to_table() == kafkalog.read_table(LOG_DIR / "p-txn-0")
    name = f"p-multi-1/{0:020d}.log"
    assert kafkalog.read_table(f"{url}/{name}") == kafkalog.read_table(LOG_DIR / name)


@pytest.mark.parametrize("fault", ["hang", "reset", "500", "403"])
def test_a_server_that_fails_is_one_error_in_time(web, fault):
    url, faults = web
    options = {"timeout": 1 if fault == "hang" else 60, "max_retries": 1}
    segment = kafkalog.open(f"{url}/p-multi-1/{0:020d}.log", storage_options=options)
    faults.append(fault)
    # a server that hangs does so for as long as the test may take
    with pytest.raises(ReadError):
        segment.to_table()


def test_a_cache_in_a_named_directory_serves_the_next_run(in_memory, tmp_path):
    memory, opened = fsspec.filesystem("memory"), []
    options = {"cache_storage": str(tmp_path), "check_files": "true", "skip_instance_cache": True}

    def n_rows():
        return kafkalog.scan(f"filecache::{in_memory}/p-multi-0", storage_options=options).count_rows()

    with pytest.MonkeyPatch.context() as patch:
        real = type(memory)._open
        patch.setattr(type(memory), "_open", lambda *args, **how: (opened.append(args[1]), real(*args, **how))[1])
        assert n_rows() == 122
        assert sum(path.endswith(".log") for path in opened) == 2
        opened.clear()
        assert (n_rows(), opened) == (122, [])


def test_a_delta_table_has_the_timeout_and_the_retries_of_other_reads():
    deltalake = pytest.importorskip("deltalake")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, and never answers
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = {"endpoint": endpoint, "region": "r", "key": SECRET, "secret": SECRET, "timeout": 1, "max_retries": 0}
        told = delta_options("s3://bucket/table", options)
        started = time.monotonic()
        with pytest.raises(OSError):
            deltalake.DeltaTable.is_deltatable("s3://bucket/table", told)
    assert time.monotonic() - started < 60  # its defaults end after 180 seconds
    wanted = {"timeout": "1s", "read_timeout": "1s", "connect_timeout": "1s", "max_retries": "0", "allow_http": "true"}
    assert wanted.items() <= told.items()
    assert delta_options("s3://bucket/table", {"region": "r"})["timeout"] == "10m"
