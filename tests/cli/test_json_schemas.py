"""`--json` and `--report`: what commands print agrees with the JSON Schemas that the package has."""

import argparse
import functools
import json
import re
import shutil
from glob import glob
from pathlib import Path

import jsonschema
import pytest
from golden_sets import shared_log_dir, unpacked
from tiered_sets import TieredSet
from writing import TOPIC_ID

import kafkalog
from kafkalog.cli import main
from kafkalog.cli.app import build_parser
from kafkalog.cli.exits import EXIT_CODES_HELP, Exit
from kafkalog.cli.json_schemas import _OBJECTS, DEFINITIONS, OUTPUTS, json_schema
from kafkalog.cli.reading import batches
from kafkalog.operations.dumping.rows import ROWS
from kafkalog.scanning.batch_summary import DEFAULT_KEYS, KEYS

LOGS = ("p-txn-0", "p-multi-0", "p-v1-lz4-0", "p-compact-0")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    root = tmp_path_factory.mktemp("schemas") / "data"
    for name in LOGS:
        shutil.copytree(shared_log_dir() / name, root / name)
    for name in ("p-txn-0", "p-v1-lz4-0"):
        log = sorted((root / name).glob("*.log"))[1]
        log.write_bytes(log.read_bytes()[:70] + b"\0\0\0" + log.read_bytes()[73:])
    min((root / "p-multi-0").glob("*.index")).write_bytes(b"\1" * 20)
    sorted((root / "p-compact-0").glob("*.log"))[1].unlink()
    (root / "log-start-offset-checkpoint").write_text("0\n1\nx\n")
    kafkalog.export(shared_log_dir() / "p-multi-0", root.parent / "t.parquet")
    record = {"subject": "s", "version": 1, "id": 1, "schema": "{}", "deleted": False}
    key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    table = {"key": [json.dumps(key).encode()], "value": [json.dumps(record).encode()]}
    kafkalog.write_table(table, root.parent / "schemas", topic="_schemas")
    shutil.copytree(shared_log_dir() / "p-multi-0", root.parent / "tiered" / "data" / "p-multi-0")
    (root.parent / "tiered" / "data" / "p-multi-0" / "partition.metadata").write_text(
        f"version: 0\ntopic_id: {TOPIC_ID}"
    )
    tiered = TieredSet(root.parent / "tiered" / "data", root.parent / "tiered" / "remote")
    tiered.move("p-multi-0")
    min(tiered.remote.rglob("*.log")).unlink()
    return root


RUNS = (
    ("ls", "DAMAGED"),
    ("ls", "K44", "-t", "p-txn"),
    ("ls", "-s", "DAMAGED"),
    ("cat", "DAMAGED", "--on-corruption", "skip", "-n", "400", "--include-control"),
    ("cat", "SMALL/p-headers-0", "--value-format", "json", "--columns", "offset,value,value_error"),
    ("cat", "SMALL", "--explain"),
    ("sql", 'select count(*) as n from "p-multi"', "SMALL"),
    ("batches", "DAMAGED"),
    ("batches", "DAMAGED", "--summary"),
    ("lookup", "DAMAGED", "--offset", "150", "--timestamp", "latest"),
    ("lookup", "SMALL", "--offset", "99999", "--timestamp", "1700000000000"),
    ("dump", "SMALL/p-txn-0/00000000000000000000.log", "--print-data-log"),
    ("dump", "SMALL/p-txn-0/00000000000000000000.index", "SMALL/p-txn-0/00000000000000000000.timeindex"),
    ("dump", "K44/p-txn-0/*.txnindex", "K44/p-txn-0/*.snapshot"),
    ("dump", "DAMAGED/p-multi-0/00000000000000000000.index", "--verify-index-only"),
    ("dump", "SMALL/p-v1-lz4-0/00000000000000000000.log", "--deep-iteration"),
    ("dump", "K44/__consumer_offsets-0/*.log", "--offsets-decoder"),
    ("producers", "DAMAGED"),
    ("epochs", "SMALL", "--end-offset-for", "0", "--follower", "0,500"),
    ("groups", "K44"),
    ("groups", "K44", "--history"),
    ("transactions", "K44"),
    ("transactions", "DAMAGED"),
    ("transactions", "K44", "--history"),
    ("schemas", "SCHEMAS"),
    ("schemas", "SCHEMAS", "--history"),
    ("tiered", "verify", "REMOTE", "--log-dir", "REMOTE/../data"),
    ("metadata", "K44"),
    ("metadata", "K44", "--history"),
    ("index-stats", "DAMAGED", "-s"),
    ("index-stats", "SMALL", "--what-if", "1024"),
    ("verify", "DAMAGED"),
    ("verify", "SMALL", "--values", "--value-format", "json"),
    ("preflight", "DAMAGED"),
    ("preflight", "DAMAGED", "--unclean"),
    ("recover", "DAMAGED", "--dry-run"),
    ("truncate", "SMALL/p-multi-0", "--to-offset", "50", "--dry-run"),
    ("trim", "SMALL/p-multi-0", "--before-offset", "50", "--dry-run"),
    ("trim", "SMALL", "-t", "p-txn", "--retention-ms", "1000", "--dry-run"),
    ("compact", "K44", "--dry-run"),
    ("salvage", "DAMAGED", "-o", "OUT"),
    ("merge", "DAMAGED/p-txn-0", "SMALL/p-txn-0", "--dry-run"),
    ("undelete", "SMALL/p-multi-0/00000000000000000000.log", "--log-dir", "DAMAGED", "--dry-run"),
    ("diff", "DAMAGED/p-multi-0", "SMALL/p-multi-0"),
    ("boot", "SMALL", "--dry-run"),
    ("reindex", "DAMAGED", "-o", "OUT", "--damaged", "cut"),
    ("convert", "DAMAGED", "-o", "OUT", "--on-corruption", "skip"),
    ("load", "DAMAGED/../t.parquet", "-o", "OUT", "--topic", "t"),
    ("report", "DAMAGED", "--value-format", "json"),
    ("space", "DAMAGED", "--records", "--what-if", "zstd:3:4096"),
)


@functools.cache
def validator(name):
    schema = json_schema(name)
    # a class of results declares all of its fields, and so do the rows of a dump
    for one in {*_OBJECTS.values(), *re.findall(r"(?m)^dumped_\w+", ROWS)} & {*schema["$defs"]}:
        is_alone = not re.search(rf"\+{one}\b", DEFINITIONS)
        schema["$defs"][one] |= {"additionalProperties": False} if is_alone else {}
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_help_lists_the_keys_of_a_summary():
    listed = re.search(r"(?s)these columns \(default: ([\w,]+)\); also (.*?)\n[a-z]", batches.COMMAND.options)
    assert tuple(listed[1].split(",")) == DEFAULT_KEYS
    assert {*listed[1].split(","), *re.findall(r"\w+", listed[2])} == {*KEYS}


@pytest.mark.parametrize("run", RUNS, ids=" ".join)
def test_outputs_agree_with_their_schemas(run, damaged, tmp_path, capsys):
    places = {"DAMAGED": damaged, "SMALL": shared_log_dir(), "K44": unpacked("k44"), "OUT": tmp_path / "out"}
    places |= {"SCHEMAS": damaged.parent / "schemas", "REMOTE": damaged.parent / "tiered" / "remote"}
    words = [run[0]]
    for word in run[1:]:
        head, slash, rest = word.partition("/")
        path = f"{places[head]}{slash}{rest}" if head in places else word
        words += glob(path) if head in places and "*" in path else [path]
    code = main([*words, "--json", "--report", str(tmp_path / "report.json")])
    assert code in (0, 1)
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert objects
    check = validator(run[0])
    for one in objects:
        check.validate(one)
    written = json.loads((tmp_path / "report.json").read_text())
    validator("findings-file").validate(written)
    assert (written["version"], written["exit_code"]) == (1, code)
    for broken in ({}, []):
        assert run[0] in ("cat", "batches", "sql") or not check.is_valid(broken)


def parsers(parser, before=""):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, one in action.choices.items():
                yield before or name, one
                yield from parsers(one, before or name)


def test_every_command_with_json_has_a_schema(capsys):
    found = {name for name, one in parsers(build_parser()) if any("--json" in a.option_strings for a in one._actions)}
    assert found | {"findings-file"} == set(OUTPUTS)
    assert main(["--json-schema", "verify"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert (schema["$id"], schema["version"]) == ("urn:kafkalog:verify:1", 1)
    assert main(["--json-schema", "export"]) == 2


def test_the_one_table_of_exit_codes_has_all():
    page = Path(__file__).parents[2] / "docs" / "errors.md"
    if not page.exists():
        pytest.skip("the tests are installed without the docs")
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", page.read_text(), re.MULTILINE)
    assert [int(code) for code, _ in rows] == sorted(Exit)
    assert all(code in EXIT_CODES_HELP for code, _ in rows)
