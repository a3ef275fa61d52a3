"""Nights of exports by a cluster, from a store into tables of the store, killed at any moment: exactly once."""

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
from spark.lake_session import TABLES, options_of
from spark.sessions import QUICK_JVM, check_java, settings
from spark.test_cluster import spark_home

import kafkalog

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3600)]

N_KILLS = int(os.environ.get("KAFKALOG_NIGHTS", "4"))
SERVER = """
import logging, threading
from moto.server import ThreadedMotoServer
logging.disable()
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("http://%s:%s" % server.get_host_and_port(), flush=True)
threading.Event().wait()
"""
FIELDS = [("id", "long"), ("name", "string"), ("amount", "double"), ("tags", {"type": "array", "items": "string"})]


@pytest.fixture
def store(monkeypatch):
    """A server that speaks S3, by the environment of this process and its children."""
    boto3 = pytest.importorskip("boto3", reason="not tested here: boto3 is not installed")
    pytest.importorskip("moto.server", reason="not tested here: moto is not installed")
    # in a process of its own: libraries that read tables wait for it with the interpreter's lock
    running = subprocess.Popen([sys.executable, "-W", "ignore", "-c", SERVER], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    address = running.stdout.readline().strip()
    variables = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "hush-4711",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=variables["AWS_ENDPOINT_URL"])
    client.create_bucket(Bucket="bucket")
    yield client
    running.kill()
    running.communicate()


class Pipeline:
    """A log of two topics that grows each night, and the values that were written."""

    def __init__(self, client, folder):
        self.client, self.folder, self.draw = client, folder, random.Random(57)
        self.log, self.schemas = folder / "log", folder / "schemas"
        self.home = spark_home(folder / "home")
        self.log.mkdir()
        self.schemas.mkdir()
        self.truth = {value: [] for value in ("json", "avro")}
        self.n_night = 0
        self.seconds = 10.0
        """How long the last table took, whatever else the machine does."""

    def grow(self):
        """Some records more, which have a field more every few nights."""
        n_fields = min(1 + self.n_night // 5, len(FIELDS))
        schema = {"type": "record", "name": "order", "fields": [{"name": n, "type": t} for n, t in FIELDS[:n_fields]]}
        (self.schemas / f"{n_fields}.avsc").write_text(json.dumps(schema))
        for topic in self.truth:
            for partition in range(2):
                rows = [self._row(n_fields) for _ in range(self.draw.randint(20, 60))]
                values = [self._encoded(topic, row, schema, n_fields) for row in rows]
                with kafkalog.PartitionWriter(self.log / f"{topic}-{partition}", batch_size=500) as writer:
                    writer.append({"value": values})
                first = sum(place == partition for place, *_ in self.truth[topic])
                self.truth[topic] += [(partition, first + at, row) for at, row in enumerate(rows)]
        self.n_night += 1
        for path in sorted(path for path in self.log.rglob("*") if path.is_file()):
            self.client.upload_file(str(path), "bucket", f"log/{path.relative_to(self.log)}")

    def _row(self, n_fields):
        number = self.draw.randrange(10**6)
        values = {"id": number, "name": f"n{number}", "amount": number / 4, "tags": [f"t{number % 3}"]}
        return {name: values[name] for name, _ in FIELDS[:n_fields]}

    @staticmethod
    def _encoded(topic, row, schema, number):
        if topic == "json":
            return json.dumps(row).encode()
        fastavro = pytest.importorskip("fastavro", reason="not tested here: fastavro is not installed")
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
        return b"\0" + number.to_bytes(4, "big") + out.getvalue()

    def start(self):
        session = str(Path(__file__).with_name("lake_session.py"))
        root = str(Path(__file__).parents[1])
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([root, str(Path(root).parent)]),
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_TOOL_OPTIONS": QUICK_JVM,
            "KAFKALOG_TEST_SETTINGS": json.dumps(settings(self.folder)),
            "PYICEBERG_CATALOG__LAKE__URI": f"sqlite:///{self.folder}/catalog.db",
            "PYICEBERG_CATALOG__LAKE__WAREHOUSE": "s3://bucket/iceberg",
            "PYICEBERG_CATALOG__LAKE__S3__ENDPOINT": os.environ["AWS_ENDPOINT_URL"],
        }
        command = [sys.executable, "-W", "ignore", session, "s3://bucket/log", "s3://bucket/lake", str(self.schemas)]
        return subprocess.Popen(
            command, cwd=self.folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def killed(self):
        """A night whose driver is killed while it writes one of the tables, or before that one of its workers."""
        process = self.start()
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
        for _ in range(self.draw.randrange(len(TABLES))):
            begin = time.monotonic()
            assert process.stdout.readline(), process.communicate()
            self.seconds = time.monotonic() - begin
        time.sleep(self.draw.uniform(0, self.seconds))
        if self.draw.random() < 0.3:
            for worker in python_workers(process.pid):
                os.kill(worker, signal.SIGKILL)
            time.sleep(self.draw.uniform(0, self.seconds))
        end(process)

    def table(self, format, topic):
        """A table, as the library of its format has it."""
        if format == "delta":
            deltalake = pytest.importorskip("deltalake", reason="not tested here: deltalake is not installed")
            return deltalake.DeltaTable(f"s3://bucket/lake/{topic}")
        catalogs = pytest.importorskip("pyiceberg.catalog.sql", reason="not tested here: pyiceberg is missing")
        where = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": "s3://bucket/iceberg"}
        options = {**where, "s3.endpoint": os.environ["AWS_ENDPOINT_URL"]}
        return catalogs.SqlCatalog("lake", **options).load_table(f"kafka.{topic}")

    def rows(self, format, topic):
        """The partition, the offset and the value of each row, read by the library of the format."""
        table = self.table(format, topic)
        read = table.to_pyarrow_table() if format == "delta" else table.scan().to_arrow()
        return by_offset((row["partition"], row["offset"], plain(row["value"])) for row in read.to_pylist())

    def rows_of_files(self, format, topic):
        """The same rows, read by DuckDB from the files that the table consists of."""
        table = self.table(format, topic)
        urls = table.file_uris() if format == "delta" else table.inspect.files()["file_path"].to_pylist()
        paths = []
        for url in urls:
            name = url.removeprefix("s3://bucket/")
            paths.append(str(self.folder / "files" / name))
            Path(paths[-1]).parent.mkdir(parents=True, exist_ok=True)
            self.client.download_file("bucket", name, paths[-1])
        read = f"read_parquet({paths}, hive_partitioning = true, union_by_name = true)"
        found = duckdb.execute(f'select partition, "offset", value from {read}').fetchall()
        return by_offset((partition, offset, plain(value)) for partition, offset, value in found)


def end(process):
    """Kill a driver and all its processes, which are a group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def python_workers(group):
    """The Python workers of executors in a process group."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(path.name)) == group and b"pyspark.daemon" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except (OSError, ProcessLookupError):
            continue
    return found


def by_offset(rows):
    return sorted(rows, key=lambda row: row[:2])


def plain(row):
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_tables_of_a_store_have_each_record_once_over_kills(store, tmp_path):
    check_java()
    pytest.importorskip("deltalake", reason="not tested here: deltalake is not installed")
    pytest.importorskip("pyiceberg_core", reason="not tested here: pyiceberg is not installed")
    pipeline = Pipeline(store, tmp_path)
    for _ in range(N_KILLS):
        pipeline.grow()
        pipeline.killed()
    process = pipeline.start()
    out, errors = process.communicate(timeout=600)
    assert out.split()[-1:] == ["done"], errors[-3000:]
    for format, topic in TABLES:
        assert pipeline.rows(format, topic) == by_offset(pipeline.truth[topic])
        assert pipeline.rows_of_files(format, topic) == by_offset(pipeline.truth[topic])
    # the command, too, finds that nothing is new; and a table that it makes of the same log has the same rows
    for topic in ("json", "avro"):
        options = options_of(topic, str(pipeline.schemas))
        assert kafkalog.export("s3://bucket/log", f"s3://bucket/lake/{topic}", format="delta", **options).n_records == 0
        kafkalog.export(pipeline.log, f"s3://bucket/lake/{topic}-local", format="delta", **options)
        assert pipeline.rows("delta", f"{topic}-local") == pipeline.rows("delta", topic)
