"""Dumps are, line for line, those of Kafka's own tool; a file after the other, each of its own kind."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

import builder
import golden_sets
import numpy as np
import pytest
from dumping_support import ONE, dumped
from effort import THOROUGH, thinned

import kafkalog
from kafkalog.operations.dumping import files
from kafkalog.operations.dumping.mismatches import MAX_PAIRS, Mismatches
from kafkalog.protocol.framing import TOPIC_DECODERS


class Golden(NamedTuple):
    """Dumps of one log dir by one release of the tool."""

    set_name: str
    archive: str
    folder: str
    dialect: str


GOLDEN = (
    Golden("k44", "clean", "dumps", "4.3"),
    Golden("k44", "unclean", "dumps_unclean", "4.3"),
    Golden("k44_extra", "clean", "dumps", "4.3"),
    Golden("k28", "clean", "dumps43", "4.3"),
    Golden("k28", "clean", "dumps28", "2.8"),
)


KINDS = {
    "log.plain": {},
    "log.deep": {"print_data_log": True},
    "index": {},
    "index.sanity": {"index_sanity_check": True},
    "index.verify": {"verify_index_only": True},
    "timeindex": {},
    "timeindex.sanity": {"index_sanity_check": True},
    "timeindex.verify": {"verify_index_only": True},
    "txnindex": {},
    "snapshot": {},
    # with the decoder of the topic
    "log.decoder": {},
    "checkpoint": {"topic_decoder": "cluster-metadata"},
}

DECODERS = {topic: name for name, topic in TOPIC_DECODERS.items()}


N_DUMPS = 1125


LOG4J = re.compile(r"\[\d{4}-[^]]*\] INFO [^\n]*\n")
"""What 2.8's own logging put between, and once into, the lines."""


def blocks(lines):
    """Lists of mismatches; the tool prints those of several files in the order of a hash table."""
    found = []
    for line in lines:
        if not line.startswith(("  ", "Indexed offset")):
            found.append([])
        found[-1].append(line)
    return sorted(found)


def golden_case(golden, name, text):
    """One file of dumps equals ours."""
    kind = name.removesuffix(".txt")
    if kind.startswith("timeindex") and "Found record size 0" in text:
        return  # for a time index, Kafka's tool walks a preallocated log into its zeros; ours ends before them
    lines = LOG4J.sub("", text).split("\n")[:-1]
    paths = [line.removeprefix("Dumping ") for line in lines if line.startswith("Dumping ")]
    n_printed = next((n for n, line in enumerate(lines) if re.match(r"Mismatches|Found [^\d]|Non-consec", line)), None)
    printed, listed = lines[:n_printed], lines[n_printed:] if n_printed is not None else []
    options = {**KINDS[kind], "dialect": golden.dialect}
    if kind == "log.decoder":
        options["topic_decoder"] = DECODERS[paths[0].rpartition("-")[0]]
    ours = [line for path in paths for line in dumped(path, **options)]
    ours = ["EXCEPTION" if line.startswith("EXCEPTION") else line for line in ours]
    assert ours == ["EXCEPTION" if line.startswith("EXCEPTION") else line for line in printed]
    everything = kafkalog.dump(paths, keep_going=True, **options)
    for _ in everything.chunks():
        pass
    here = f"{os.getcwd()}/"
    assert blocks([line.replace(here, "") for line in everything.mismatches()]) == blocks(listed)


@pytest.mark.parametrize(
    "golden", thinned([(golden,) for golden in GOLDEN], 4), ids=lambda golden: golden.folder + "-" + golden.set_name
)
def test_every_dump_of_kafkas_tool_is_printed_again(golden, monkeypatch):
    monkeypatch.chdir(golden_sets.unpacked(golden.set_name, golden.archive))
    files = sorted((golden_sets.unpacked(golden.set_name, "dumps") / golden.folder).rglob("*.txt"))
    assert len(files) > 20
    for file in files[:: 1 if THOROUGH else 10]:
        golden_case(golden, file.name, file.read_bytes().decode())


def test_the_golden_dumps_are_all_there():
    files = [file for name in golden_sets.SETS for file in golden_sets.unpacked(name, "dumps").rglob("*.txt")]
    assert len(files) == N_DUMPS
    assert {file.stem for file in files} == set(KINDS)
    assert sum(b"\nEXCEPTION " in file.read_bytes() for file in files) == 7


def test_nothing_is_wrong_with_what_brokers_left():
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    for name in golden_sets.SETS:
        for partition in golden_sets.partitions(name).values():
            dump = kafkalog.dump(
                sorted(path for path in partition.iterdir() if path.suffix in kinds), deep_iteration=True
            )
            assert sum(map(len, dump.chunks())) > 100
            assert dump.n_damage == 0, dump.findings


def test_a_log_that_is_not_named_after_an_offset_is_refused(tmp_path):
    path = tmp_path / "orders.log"
    path.write_bytes(builder.batch_v2([ONE]))
    with pytest.raises(kafkalog.NotKafkaError):
        list(kafkalog.dump(path))


def test_lists_are_bounded_and_say_how_much_they_leave_out():
    report = Mismatches()
    pairs = np.arange(2 * (MAX_PAIRS + 5)).reshape(2, -1)
    report.add_pairs("gap", "x", pairs[:, :MAX_PAIRS])
    report.add_pairs("gap", "x", pairs[:, MAX_PAIRS:])
    lines = list(report.lines())
    assert len(lines) == MAX_PAIRS + 2
    assert lines[-1] == "  ... and 5 more"


@pytest.mark.parametrize(
    "options",
    [
        {"dialect": "1.0"},
        {"key_decoder": "avro"},
        {"max_bytes": -1},
        {"max_message_size": 2**31},
        {"topic_decoder": "__consumer_offsets"},
        {"topic_decoder": "offsets", "value_decoder": "long"},
        {"topic_decoder": "share-group-state", "dialect": "2.8"},
    ],
)
def test_options_that_make_no_sense_are_value_errors(options):
    with pytest.raises(ValueError):
        kafkalog.dump("x.log", **options)


@pytest.mark.parametrize(
    ("path", "shown"), [("a//b/", "a/b"), ("/a/../b.log", "/a/../b.log"), ("//", "/"), ("/", "/"), ("a", "a")]
)
def test_a_path_is_shown_as_javas_file_shows_it(path, shown):
    assert files.as_file(path) == shown


def test_an_absolute_path_keeps_links_and_dots(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert files.absolute("x/../y.log") == f"{tmp_path}/x/../y.log"
    assert files.absolute("/x//y.log") == "/x/y.log"
