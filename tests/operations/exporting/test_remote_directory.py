"""Exports to object stores: all files and then the manifest, or nothing."""

import json
import shutil

import fsspec
import obstore
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from conftest import GOLDEN
from obstore.store import MemoryStore
from refusals import fails_with

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import CorruptionError, OutputExistsError, SidecarError, UnsafePathError, WriteError
from kafkalog.operations.exporting.directory import MANIFEST

LOG_DIR = GOLDEN / "log_dir"
KEYS = ["topic", "partition"]
SECRET = "hush-4711"


@pytest.fixture
def store():
    return MemoryStore()


def place(store, key="lake"):
    return kafkalog.location(key, filesystem=store)


def names(store):
    return {one["path"] for one in obstore.list(store).collect()}


def content(store, key):
    return bytes(obstore.get(store, key).bytes())


def manifest(store, root="lake"):
    return json.loads(content(store, f"{root}/{MANIFEST}"))


def n_rows(store, root="lake"):
    """The rows of the files that the manifest names, whose sizes are those that it names."""
    n = 0
    for name, size in manifest(store, root)["files"].items():
        data = content(store, f"{root}/{name}")
        assert len(data) == size
        n += pa.parquet.read_metadata(pa.BufferReader(data)).num_rows
    return n


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl.gz", "arrow", "arrows"])
def test_an_object_has_the_bytes_of_a_local_file(suffix, store, tmp_path):
    kafkalog.export(LOG_DIR, tmp_path / f"x.{suffix}", topics="p-multi")
    kafkalog.export(LOG_DIR, place(store, f"a/x.{suffix}"), topics="p-multi")
    kafkalog.export(LOG_DIR, f"memory://export-test/x.{suffix}", topics="p-multi")
    memory = fsspec.filesystem("memory")
    expected = (tmp_path / f"x.{suffix}").read_bytes()
    assert memory.cat_file(f"/export-test/x.{suffix}") == expected == content(store, f"a/x.{suffix}")
    for to in (place(store, f"a/x.{suffix}"), f"memory://export-test/x.{suffix}"):
        with fails_with("output_exists"):
            kafkalog.export(LOG_DIR, to)
        assert kafkalog.export(LOG_DIR, to, topics="p-txn", overwrite=True).n_files == 1
    memory.rm("/export-test", recursive=True)


def test_a_large_object_is_written_in_parts(store, tmp_path):
    table = pa.table({"value": pa.array([bytes([n % 251]) * 100_000 for n in range(300)], pa.binary())})
    kafkalog.write_table(table, tmp_path / "log", topic="t", stage_in=tmp_path)
    kafkalog.export(tmp_path / "log", tmp_path / "x.arrow")
    for to in (place(store, "x.arrow"), "memory://export-large/x.arrow"):
        kafkalog.export(tmp_path / "log", to)
    memory = fsspec.filesystem("memory")
    expected = (tmp_path / "x.arrow").read_bytes()
    assert content(store, "x.arrow") == expected == memory.cat_file("/export-large/x.arrow")
    memory.rm("/export-large", recursive=True)


def test_a_directory_has_a_manifest_of_its_files(store):
    result = kafkalog.export(LOG_DIR, place(store), partition_by=KEYS)
    assert names(store) == {f"lake/{name}" for name in (*manifest(store)["files"], MANIFEST)}
    assert len(manifest(store)["files"]) == result.n_files
    assert n_rows(store) == result.n_records == kafkalog.scan(LOG_DIR).count_rows()
    with pytest.raises(OutputExistsError):
        kafkalog.export(LOG_DIR, place(store), partition_by=KEYS)
    with fails_with("output_exists"):
        kafkalog.export(LOG_DIR, place(store), partition_by=KEYS, resume=True)
    kafkalog.export(LOG_DIR, place(store), partition_by=KEYS, topics="p-txn", overwrite=True)
    assert names(store) == {f"lake/{name}" for name in (*manifest(store)["files"], MANIFEST)}
    assert n_rows(store) == kafkalog.scan(LOG_DIR, topics="p-txn").count_rows()


def test_each_run_adds_what_is_new(store, tmp_path):
    source = tmp_path / "log" / "p-txn-0"
    shutil.copytree(LOG_DIR / "p-txn-0", source)
    logs = sorted(source.glob("*.log"))
    for path in logs[2:]:
        path.rename(tmp_path / path.name)
    options = {"partition_by": KEYS, "resume": True, "storage_options": {"token": SECRET}}
    first = kafkalog.export(tmp_path / "log", place(store), **options)
    assert n_rows(store) == first.n_records > 0
    for path in logs[2:]:
        (tmp_path / path.name).rename(path)
    second = kafkalog.export(tmp_path / "log", place(store), **options)
    assert n_rows(store) == first.n_records + second.n_records == kafkalog.scan(source).count_rows()
    assert kafkalog.export(tmp_path / "log", place(store), **options).n_records == 0
    assert SECRET.encode() not in content(store, f"lake/{MANIFEST}")
    with pytest.raises(ValueError, match="columns"):
        kafkalog.export(tmp_path / "log", place(store), columns=["value"], **options)
    obstore.put(store, f"lake/{MANIFEST}", b"{}")
    with pytest.raises(SidecarError):
        kafkalog.export(tmp_path / "log", place(store), **options)


@pytest.mark.parametrize("resume", [False, True])
def test_of_two_runs_at_a_time_one_counts(store, resume, monkeypatch):
    put = obstore.put
    options = {"partition_by": KEYS, "topics": "p-multi", "resume": resume}

    def meanwhile(*arguments, **more):
        monkeypatch.setattr(obstore, "put", put)
        kafkalog.export(LOG_DIR, place(store), **options)
        return put(*arguments, **more)

    monkeypatch.setattr(obstore, "put", meanwhile)
    with fails_with("write_failed"):
        kafkalog.export(LOG_DIR, place(store), **options)
    assert n_rows(store) == 303
    assert len(names(store)) == 4


def test_an_answer_that_was_lost_is_no_failure(store, monkeypatch):
    put = obstore.put

    def twice(into, path, data, **options):
        put(into, path, data, **options)
        return put(into, path, data, **options) if path.endswith(MANIFEST) else None

    monkeypatch.setattr(obstore, "put", twice)
    kafkalog.export(LOG_DIR, place(store), partition_by=KEYS)
    assert n_rows(store) == kafkalog.scan(LOG_DIR).count_rows()


@pytest.mark.parametrize("kind", ["source", "data", "manifest"])
def test_a_run_that_fails_leaves_nothing(kind, store, tmp_path, monkeypatch):
    shutil.copytree(LOG_DIR, tmp_path / "log")
    put = obstore.put

    def failing(into, path, data, **options):
        if path.endswith(MANIFEST) if kind == "manifest" else "p-txn" in path:
            raise obstore.exceptions.GenericError(f"503 at https://x.y/?token={SECRET}")
        return put(into, path, data, **options)

    if kind == "source":
        path = max((tmp_path / "log" / "p-txn-0").glob("*.log"))
        path.write_bytes(path.read_bytes()[:-30] + b"x" + path.read_bytes()[-29:])
    else:
        monkeypatch.setattr(obstore, "put", failing)
    for options in ({"partition_by": KEYS}, {"partition_by": KEYS, "resume": True}):
        with pytest.raises((CorruptionError, WriteError)) as error:
            kafkalog.export(tmp_path / "log", place(store), **options)
        assert SECRET not in str(error.value)
        assert names(store) == set()
    with pytest.raises((CorruptionError, WriteError)):
        kafkalog.export(tmp_path / "log", place(store, "p-txn/_kafkalog_export.json"), format="parquet", topics="p-txn")
    assert names(store) == set()


def test_the_source_is_not_written_to(tmp_path):
    memory = fsspec.filesystem("memory")
    memory.put(str(LOG_DIR), "/export-source", recursive=True)
    for to in ("memory://export-source/x.parquet", "memory://export-source/p-multi-0"):
        with pytest.raises(UnsafePathError):
            kafkalog.export("memory://export-source", to, format="parquet")
    kafkalog.export("memory://export-source", "memory://export-source-2.parquet")
    memory.rm("/export-source", recursive=True)
    memory.rm("/export-source-2.parquet")


def test_s3_by_the_command(tmp_path, capsys):
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        host, port = running.get_host_and_port()
        options = {"endpoint": f"http://{host}:{port}", "region": "us-east-1", "access_key_id": "x"}
        options |= {"secret_access_key": SECRET, "max_retries": "0"}
        flags = [text for name, value in options.items() for text in ("--storage-option", f"{name}={value}")]
        argv = ["export", str(LOG_DIR), "-q", "--partition-by", "topic", "-o", "s3://bucket/lake", *flags]
        assert main(argv) != 0
        shown = capsys.readouterr().err
        assert "NoSuchBucket" in shown
        assert SECRET not in shown
        import boto3

        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=options["endpoint"], **keys).create_bucket(Bucket="bucket")
        assert main([*argv, "--resume"]) == 0
        assert main([*argv, "--resume"]) == 0
        assert main(argv) != 0
        assert main(["export", str(LOG_DIR), "-q", "-t", "p-multi", "-o", "s3://bucket/x.csv", *flags]) == 0
        found = kafkalog.location("s3://bucket", storage_options=options)
        files = json.loads(bytes(_read(found / "lake" / MANIFEST)))["files"]
        assert len(files) == len(kafkalog.open(LOG_DIR).topics)
        assert pa.csv.read_csv(pa.BufferReader(_read(found / "x.csv"))).num_rows == 303
    finally:
        running.stop()


def _read(place):
    with place.open() as source:
        return bytes(source.window(0, source.size))
