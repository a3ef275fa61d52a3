"""What notebooks show: tables in which text out of files is escaped.

Headless Chromium showed log dirs, partitions, segments, scans, datasets and reports as tables; markup and scripts in
keys and filters stood there as text, and ran nothing.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal

import pytest
from golden_sets import LOG_DIR, unpacked

import kafkalog
from kafkalog import format as kf
from kafkalog import html
from kafkalog.errors import Finding, Reason
from kafkalog.html import JsonFields, ReportList
from kafkalog.result_kinds import kinds_of

HOSTILE = "<script>alert(1)</script>&\"'\u202e\x1b[31m"
ALLOWED = {"p", "table", "thead", "tbody", "tr", "th", "td", "pre"}


class Reader(HTMLParser):
    """Collects tags, attributes, and the texts of cells."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.attributes = set()
        self.texts = []
        self.open = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert set(self.tags) <= ALLOWED
        assert {name for name, _ in self.attributes} <= {"style"}

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes.update(attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        assert all(one.isprintable() or one == "\n" for one in data)
        if data.strip():
            self.texts.append(data)


def shown(value):
    return Reader(value._repr_html_())


def test_text_is_shown_and_never_markup():
    read = Reader(html.table(HOSTILE, [HOSTILE], [[HOSTILE], [1], [None], ["x" * 10_000]], n_rows=70))
    assert read.texts[:3] == ["<script>alert(1)</script>&\"'\\u202e\\x1b[31m"] * 3
    assert read.texts[-1] == "and 66 more"
    assert len(read.texts[4]) < 400
    assert Reader(html.preformatted(f"a\n{HOSTILE}")).tags == ["pre"]


@pytest.fixture
def hostile(tmp_path, log_dir):
    """A log dir whose path is markup; names of topics cannot be."""
    root = tmp_path / "<img src=x onerror=alert(1)>"
    root.mkdir()
    shutil.copytree(log_dir / "p-multi-1", root / "orders-0")
    log = next((root / "orders-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    return root


def test_everything_that_a_notebook_shows_is_escaped(hostile, tmp_path):
    log_dir = kafkalog.open_log_dir(hostile)
    partition = log_dir["orders-0"]
    scan = kafkalog.scan(hostile, topics="orders", filters=[("key", "==", "<script>")])
    values = [
        log_dir,
        partition,
        partition.segments[0],
        scan,
        scan.explain(),
        scan.to_dataset(),
        kafkalog.batches(hostile, topics="orders"),
        partition.segments[0].batches,
        kafkalog.verify(hostile),
        kafkalog.preflight(hostile),
        kafkalog.salvage(hostile, dry_run=True),
        kafkalog.recover(hostile, dry_run=True),
        kafkalog.reindex(hostile, dry_run=True),
        kafkalog.write_table({"value": [b"<b>"]}, tmp_path / "<i>", topic="t"),
    ]
    for value in values:
        assert shown(value).texts
        assert len(repr(value)) < 1000
    assert any("onerror" in text for text in shown(log_dir).texts)
    assert any("crc_mismatch" in text for text in shown(kafkalog.verify(hostile)).texts)
    for value in (scan, scan.to_dataset()):
        assert any("<script>" in text for text in shown(value).texts)
    for value in (scan.to_dataset(), kafkalog.batches(hostile, topics="orders")):
        title, *cells = shown(value).texts
        assert title == repr(value)
        assert "onerror" in title
        assert "compression" in cells or "timestamp" in cells
        assert "topics=['orders']" in cells
    assert "no control batches" not in "".join(shown(kafkalog.batches(hostile)).texts)


def test_a_log_dir_gives_the_partitions_of_a_topic(log_dir):
    opened = kafkalog.open_log_dir(log_dir)
    topic = opened["p-multi"]
    assert [key.partition for key in topic] == [0, 1, 2]
    assert repr(topic).endswith("'p-multi', 3 partitions)")
    assert topic.count_rows() == opened.count_rows(topics="p-multi")
    assert topic["p-multi", 1].path == opened["p-multi-1"].path
    with pytest.raises(KeyError):
        topic["p-txn"]
    with pytest.raises(KeyError):
        opened["no-such-topic"]
    completions = opened._ipython_key_completions_()
    assert completions[:2] == ["p-compact", "p-delrec"]
    assert "p-multi-2" in completions


def test_an_internal_topic_that_is_asked_for_is_read(tmp_path):
    kafkalog.write_table({"value": [b"x"]}, tmp_path / "log", topic="__transaction_state", internal=True)
    opened = kafkalog.open_log_dir(tmp_path / "log")
    assert opened.count_rows() == 0
    assert opened["__transaction_state"].count_rows() == 1


def test_what_topics_say_has_a_short_text_and_a_table():
    path = unpacked("k44")
    metadata, groups = kafkalog.metadata(path), kafkalog.groups(path)
    transactions = kafkalog.transactions(path, now="2026-11-21T08:00Z")
    found = kafkalog.lookup(path / "p-multi-0", offset=[5, 10**6])
    assert repr(groups) == f"Groups(6 groups, lag {sum(group.lag or 0 for group in groups):,})"
    assert repr(found) == "Lookup(2 traces, 1 found)"
    assert repr(found[0]).startswith("Trace(p-multi-0, offset 5: offset 5, ")
    for value, text in ((metadata, "1 broker, 1 controller"), (transactions, "transactional ids")):
        assert text in repr(value)
    for value in (metadata, groups, transactions, found):
        assert len(repr(value)) < 200
        texts = shown(value).texts
        assert texts[0] == repr(value)
        assert len(texts) > 5
        assert not [name for name in dir(value) if name.startswith("_")]
    assert "p-g-classic" in shown(groups).texts
    assert not any("_committed" in text for text in shown(groups).texts)


def test_a_scan_shows_its_topics_and_filters(log_dir):
    chosen = kafkalog.scan(log_dir, topics="p-multi", start_offset=3, filters="key == 'k'", columns=["offset"])
    for text in ("topics=['p-multi']", "start_offset=3", "key ==", "columns=['offset']"):
        assert text in repr(chosen)
    long = kafkalog.scan(log_dir, filters=[("key", "in", [b"k%d" % number for number in range(1000)])])
    assert len(repr(long)) < 1000
    assert not [name for name in dir(chosen) if name.startswith("_")]


@dataclass
class Row(JsonFields):
    topic_partition: kf.TopicPartition | None
    path: Path
    n: int | None
    share: float
    findings: list[Finding]
    names: dict[str, str]
    reason: Reason
    how: Literal["a", "b"]
    _json_properties = ("ok",)
    _json_without = ("how",)

    @property
    def ok(self) -> bool:
        return True


def test_kinds_are_those_of_the_fields_for_json():
    kinds = kinds_of(Row)
    assert kinds == {
        "ok": "bool",
        "topic": "text?",
        "partition": "int?",
        "path": "any",
        "n": "int?",
        "share": "number",
        "findings": "[Finding]",
        "names": "{text}",
        "reason": "text",
    }
    row = Row(None, Path("x"), None, 0.5, [], {}, Reason.ZERO_FILL, "a")
    assert list(row.as_dict()) == list(kinds)


def test_tables_have_the_declared_types_where_no_row_has_a_value():
    table = ReportList([Row(None, Path("x"), None, 1, [], {}, Reason.ZERO_FILL, "a")]).to_arrow()
    assert str(table.schema.field("n").type) == "int64"
    assert str(table.schema.field("share").type) == "double"
    assert table.to_pylist() == [
        {"ok": True, "topic": None, "partition": None, "path": "x", "n": None, "share": 1.0,
         "findings": "[]", "names": "{}", "reason": "zero_fill"}
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["ls", "verify", "producers", "epochs", "lookup", "groups", "transactions", "preflight"]
)
def test_the_dict_of_each_result_is_json(name, log_dir):
    result = getattr(kafkalog, name)(log_dir, **({"offset": 3} if name == "lookup" else {}))
    assert isinstance(json.loads(json.dumps(result.to_dict())), list if isinstance(result, list) else dict)


def test_a_list_is_printed_as_lines_of_the_columns_that_fit():
    rows = kafkalog.ls(LOG_DIR)
    first, names, *lines = str(rows).splitlines()
    assert (first, names.split()[:3], len(lines)) == (repr(rows), ["topic", "partition", "size_in_bytes"], len(rows))
    assert all(len(line) <= 120 and line.startswith(row.topic) for line, row in zip(lines, rows, strict=True))
    many = type(rows)(list(rows) * 5)
    assert str(many).splitlines()[-1] == f"... and {len(many) - 20} more"
    assert str(type(rows)()) == repr(type(rows)())
    hostile = type(rows)([replace(rows[0], topic="a\x1b[2J")])
    assert "\x1b" not in str(hostile)
