"""The client of the guide's page about batches in memory: it fetches from a real broker and produces to it."""

import re
from pathlib import Path

import pytest
from conformance.kafka import Broker

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "codec.md"

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_what_the_guides_client_copies_is_what_a_consumer_reads(tmp_path, client):
    page = GUIDE.read_text()
    names = {}
    exec(re.search(r"<!-- client -->\n```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1], names)
    with Broker(tmp_path) as broker, broker.serving(client):
        client.ask("create", topics=[{"name": name, "partitions": 1, "configs": {}} for name in ("source", "copy")])
        codecs = ("none", "gzip", "snappy", "lz4", "zstd")
        what = {"kind": "headers", "partitions": 1, "seed": 3, "first": 0, "per_batch": 20, "idempotent": False}
        client.ask("produce", topic="source", records=400, codecs=codecs, **what)
        host, port = broker.address.split(":")
        connection = names["Connection"](host, int(port))
        names["copy"](connection, "source", "copy")
        truth = client.consume(tmp_path / "records.json").records
        fields = ("timestamp", "key", "value", "headers")
        source, copied = (
            [[record[name] for name in fields] for record in truth[topic]] for topic in ("source", "copy")
        )
        assert len(source) == 400
        assert copied == source
        fetched, _ = connection.fetch("source", 0, 0)
        connection.answers.close()
        connection.socket.close()
        for row, record in enumerate(truth["source"][: fetched.n_records]):
            assert [fetched.offset[row], fetched.timestamp[row]] == [record["offset"], record["timestamp"]]
            assert [fetched.key[row], fetched.value[row]] == [record["key"], record["value"]]
            assert [(name.decode(), value) for name, value in fetched.headers[row]] == record["headers"]
