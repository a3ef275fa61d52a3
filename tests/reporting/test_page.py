"""The page and the other forms of a report: small, for no network, and safe against hostile names."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

import kafkalog
from kafkalog.errors import Findings, OutputExistsError, UnsafePathError
from kafkalog.reporting.contents import Contents
from kafkalog.reporting.report import Report
from kafkalog.reporting.tables import Table, cell_text

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m|`*_\n# h\u2028<!--"


def hostile_report():
    found = Contents(kafkalog.Limits(), 0)
    for table in found.tables.values():
        values = {"text": HOSTILE, "list": [HOSTILE], "bool": True, "share": 0.5, "decimal": 1.5}
        table.rows = [tuple(values.get(kind, 7) for kind in table.columns.values())] * 3
    names = ("n_bytes_lost", "n_topics", "n_partitions", "n_segments", "n_bytes", "n_file_bytes", "n_records")
    summary = dict.fromkeys((*names, "n_damage", "n_groups", "lag", "n_hanging", "n_records_is_minimum"), 0)
    summary |= {"verdict": "starts", "is_clean": True, "losses": HOSTILE}
    return Report([HOSTILE], 0, summary, found.tables, Findings())


class Page(HTMLParser):
    """The elements of a page, and what its scripts hold."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.attributes = set()
        self.scripts = []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "meta" and dict(attrs).get("http-equiv"):
            self.policy = dict(attrs)["content"] or ""

    def handle_data(self, data):
        if self.tags[-1:] == ["script"] and data.strip():
            self.scripts.append(data)
            self.tags.append("")


def test_hostile_names_have_no_effect_on_the_page():
    report = hostile_report()
    text = report.to_html()
    page = Page(text)
    data, script = page.scripts
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert not {name for name in page.attributes if name.startswith("on")} | {"src", "href"} & page.attributes - {
        "href"
    }
    assert re.search(r'href="(?!#)|url\(|@import|https?:', text) is None, "the page needs no network"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.policy
    assert page.policy.startswith("default-src 'none'")
    shown = json.loads(data)["findings"]["rows"][0]
    assert shown[1].startswith("</script><script>alert(1)")
    assert not any(char in text for char in "\u202e\x1b\u2028")
    line = next(line for line in report.to_markdown().splitlines() if "alert" in line and line.startswith("|"))
    assert re.search(r"(?<!\\)[<>`*\[]", line) is None


def test_a_page_of_ten_thousand_partitions_is_small():
    report = hostile_report()
    name = "topic-with-a-usual-name"
    for table in report.tables.values():
        values = {"text": name, "list": [name], "bool": True, "share": 0.51234, "decimal": 1234.567}
        table.rows = [tuple(values.get(kind, 1_700_000_000_000) for kind in table.columns.values())] * 10_000
    text = report.to_html()
    assert len(text.encode()) < 10_000_000
    assert "more are not on this page" in text
    assert text.count("<tr") < 5000


def test_cells():
    table = Table.of("sizes: Sizes. Of files.\n path ~2, n_bytes bytes? ~1, at time, part share")
    assert table.least == ("n_bytes", "path")
    assert table.texts(("a", None, 0, 0.125)) == ["a", "", "1970-01-01T00:00:00Z", "12.5%"]
    assert (table.title, table.about, table.nullable) == ("Sizes", "Of files.", {"n_bytes"})
    assert [cell_text(one, "number") for one in (1234, True, None, [1, 2])] == ["1,234", "yes", "", "1, 2"]


def test_a_report_is_written_once(tmp_path):
    report = hostile_report()
    report.write(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["version"] == 1
    with pytest.raises(OutputExistsError):
        report.write(tmp_path / "a.json")
    report.write(tmp_path / "a.json", overwrite=True)
    assert "srcdoc" in report._repr_html_()
    report.paths = [str(tmp_path)]
    with pytest.raises(UnsafePathError):
        report.write(tmp_path / "b.md")


def test_the_first_screen_has_the_verdict_the_next_step_and_who_it_is_and_the_damaged_come_first(tmp_path):
    root = tmp_path / "data"
    kafkalog.sample(root)
    (log,) = (root / "payments-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[3000] ^= 0xFF
    log.write_bytes(data)
    report = kafkalog.report(root)
    text = report.to_html()
    first = text[: text.index("<nav>")]
    assert "kafkalog boot" in first
    assert report.summary["cluster_id"] in first
    assert report.summary["node_id"] == "1"
    tables = json.loads(Page(text).scripts[0])
    for name in ("partitions", "topics", "start"):
        assert tables[name]["first"] == 1
        assert "payments" in tables[name]["rows"][0][0]
        assert "loses" in tables[name]["rows"][0][:4]
    # the forms for programs keep their order
    assert [*report.as_dict()["partitions"][0]] == [*report.tables["partitions"].columns]
    assert report.as_dict()["partitions"][-1]["topic"] == "payments"


def test_plots_are_as_wide_as_the_window_and_their_numbers_are_text(tmp_path):
    kafkalog.sample(tmp_path / "data")
    text = kafkalog.report(tmp_path / "data").to_html()
    topics = text[text.index('<section id="topics">') :].partition("<table>")[0]
    bars = re.findall(r'<dt>(.*?)</dt><dd><i style="width:([\d.]+)%" title=".*?"></i>([\d,]+)</dd>', topics)
    assert [name for name, *_ in bars] == ["orders", "payments", "customers", "__consumer_offsets"]
    assert bars[0][1] == "80.0"  # the rest is for the number
    n_bytes = [int(number.replace(",", "")) for *_, number in bars]
    assert [round(80 * n / n_bytes[0], 1) for n in n_bytes] == [float(width) for _, width, _ in bars]
    assert 'preserveAspectRatio="none"' in text
    assert "min-width: 34rem" not in text
