"""A registry that answers HTTP, and every way in which it may not."""

from __future__ import annotations

import json
import pickle
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from refusals import fails_with

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.system_topics.schemas import SchemaReference
from kafkalog.values.registry import Registry, schema_source
from kafkalog.values.schemas import DirectorySchemas, SchemaText

GUID = "0b7d6f0e-8a3d-4f3e-9a5e-0123456789ab"
TEXT = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]})


class Answers(ThreadingHTTPServer):
    """What the registry has, and what it was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.found = {}
        self.asked = []


class Handler(BaseHTTPRequestHandler):
    """Answers from `Answers.found`."""

    server: Answers

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        status, body = self.server.found.get(self.path, (404, b"{}"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        """Say nothing."""


@pytest.fixture
def server():
    one = Answers()
    thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield one
    one.shutdown()
    thread.join()
    one.server_close()


def url(server, user=""):
    return f"http://{user}127.0.0.1:{server.server_port}/"


def test_schemas_are_looked_up_once(server):
    reference = {"name": "x", "subject": "a/b", "version": 2}
    server.found["/schemas/ids/7"] = 200, json.dumps({"schema": TEXT}).encode()
    answer = {"schema": "syntax", "schemaType": "PROTOBUF", "references": [reference]}
    server.found[f"/schemas/guids/{GUID}"] = 200, json.dumps(answer).encode()
    server.found["/subjects/a%2Fb/versions/2?deleted=true"] = 200, json.dumps({"schema": TEXT, "id": 7}).encode()
    registry = pickle.loads(pickle.dumps(Registry(url(server, "me:s%20ecret@"))))
    for _ in range(2):
        assert registry.by_id(7) == SchemaText("AVRO", TEXT, ())
        assert registry.by_guid(GUID) == SchemaText("PROTOBUF", "syntax", (SchemaReference("x", "a/b", 2),))
        assert registry.find("a/b", 2) == SchemaText("AVRO", TEXT, ())
        assert registry.by_id(8) is None
    assert len(server.asked) == 4
    assert {how for _, how in server.asked} == {"Basic bWU6cyBlY3JldA=="}


@pytest.mark.parametrize("answer", [(500, b""), (200, b"no"), (200, b"[]"), (200, b"{}"), (200, b" " * (5 * 2**20))])
def test_an_answer_that_is_no_schema_is_an_error(server, answer):
    server.found["/schemas/ids/7"] = answer
    with fails_with("file_unreadable"):
        Registry(url(server)).by_id(7)


def test_a_registry_that_is_not_there_is_an_error():
    with fails_with("file_unreadable"):
        Registry("http://127.0.0.1:1", timeout=0.5).by_id(7)


def test_a_scan_asks_the_registry(server, tmp_path):
    server.found["/schemas/ids/7"] = 200, json.dumps({"schema": TEXT}).encode()
    with PartitionWriter(tmp_path / "t-0") as writer:
        writer.append({"value": [b"\0\0\0\0\7\x10", b"\0\0\0\0\7\x12"]})
    options = {"decode": {"value": "avro"}, "schemas": url(server), "columns": ["value.a"]}
    assert kafkalog.read_table(tmp_path / "t-0", **options).column(0).to_pylist() == [8, 9]
    assert len(server.asked) == 1
    server.found.clear()
    with fails_with("file_unreadable"):
        kafkalog.read_table(tmp_path / "t-0", **{**options, "schemas": "http://127.0.0.1:1"})


def test_sources_are_told_apart(tmp_path):
    assert isinstance(schema_source(tmp_path), DirectorySchemas)
    assert isinstance(schema_source("https://registry:8081/api"), Registry)
    for wrong in ("http://", tmp_path / "nothing"):
        with pytest.raises(ValueError, match="schemas:"):
            schema_source(wrong)
    with pytest.raises(TypeError):
        schema_source(7)


def test_names_in_schemas_do_not_lead_out_of_the_directory(tmp_path):
    (tmp_path / "secret.avsc").write_text('"int"')
    (tmp_path / "schemas").mkdir()
    source = DirectorySchemas(tmp_path / "schemas")
    assert source.named("../secret") is None
    assert source.named(str(tmp_path / "secret.avsc")) is None
    assert DirectorySchemas(tmp_path).named("secret") == SchemaText("AVRO", '"int"', ())
