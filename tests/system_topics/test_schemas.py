"""Schemas out of the topic of a registry, in the form in which Confluent's writes its records."""

import json
import random

import pytest
from effort import counted, fuzz_inputs

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.cli import main
from kafkalog.system_topics.reading import KeyedRecord
from kafkalog.system_topics.schemas import SchemaReference, _RegistryReplay, read_schemas
from kafkalog.values.schemas import DirectorySchemas

AVRO = '{"type":"record","name":"A","fields":[]}'
PROTO = 'syntax = "proto3"; message B { A a = 1; }'


def schema(subject, version, number, text=AVRO, **more):
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    return key, {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False, **more}


def other(kind, subject, **value):
    return {"keytype": kind, "subject": subject, "magic": 0}, {"subject": subject, **value} if value else None


RECORDS = [
    ({"keytype": "NOOP", "magic": 0}, None),
    other("CONFIG", None, compatibilityLevel="BACKWARD"),
    schema("orders-value", 1, 1),
    schema("orders-value", 2, 2, '"string"'),
    schema("bill", 1, 3, PROTO, schemaType="PROTOBUF", references=[{"name": "a.proto", "subject": "a", "version": 1}]),
    schema("old", 1, 4),
    schema("old", 2, 5),
    other("DELETE_SUBJECT", "old", version=1),
    schema("gone", 1, 6),
    schema("gone", 1, 6, deleted=True),
    (schema("gone", 1, 6)[0], None),
    schema("cleared", 1, 7, deleted=True),
    other("CLEAR_SUBJECT", "cleared", offset=3),
    schema(":.other:bill", 1, 1, '"int"'),
    other("CONFIG", "orders-value", compatibilityLevel="FULL"),
    other("MODE", "bill", mode="READONLY"),
    other("MODE", "bill"),
]


def written(path, records=None):
    with PartitionWriter(path / "_schemas-0") as writer:
        for number, (key, value) in enumerate(RECORDS if records is None else records):
            data = None if value is None else json.dumps(value).encode()
            writer.append({"key": [json.dumps(key).encode()], "value": [data], "timestamp": [1000 + number]})
    return path


def test_subjects_versions_ids_types_and_references(tmp_path):
    found = kafkalog.schemas(written(tmp_path))
    assert not found.findings
    assert [(one.subject, one.version, one.id, one.type) for one in found] == [
        (":.other:bill", 1, 1, "AVRO"),
        ("bill", 1, 3, "PROTOBUF"),
        ("old", 2, 5, "AVRO"),
        ("orders-value", 1, 1, "AVRO"),
        ("orders-value", 2, 2, "AVRO"),
    ]
    assert found[1].references == [SchemaReference("a.proto", "a", 1)]
    assert (found.compatibility, found.modes) == ({"": "BACKWARD", "orders-value": "FULL"}, {})
    assert [one.subject for one in kafkalog.schemas(tmp_path, subjects="or*")] == ["orders-value"] * 2
    assert found.to_arrow().column("id").to_pylist() == [1, 3, 5, 1, 2]


def test_deleted_ones_are_known_while_they_are_in_the_file(tmp_path):
    found = kafkalog.schemas(written(tmp_path), deleted=True)
    assert {(one.subject, one.version): one.deleted for one in found if one.deleted} == {
        ("old", 1): "soft",
        ("gone", 1): "hard",
        ("cleared", 1): "hard",
    }
    (gone,) = [one for one in found if one.subject == "gone"]
    assert (gone.schema, gone.offset) == (AVRO, 8), "the record that registered it, not the one that deleted it"


def test_lookups_for_decoders(tmp_path):
    found = read_schemas(kafkalog.open_log_dir(written(tmp_path)))
    assert [one and one.subject for one in map(found.by_id, (1, 6, 99))] == ["orders-value", "gone", None]
    by_guid = found.by_guid("095D71CF-1255-6B9D-5E33-0AD575B3DF5D")
    assert by_guid is not None
    assert by_guid.id == 2
    assert [one and one.version for one in (found.find("old", -1), found.find("old", 1), found.find("x", 1))] == [
        2,
        1,
        None,
    ]


def test_a_version_that_was_replaced_still_decodes_its_values(tmp_path):
    """Two registries that both write give a version twice, with an id each."""
    written(tmp_path, [schema("s", 1, 1), schema("s", 1, 2, '"string"'), schema("s", 1, 2, '"string"', deleted=True)])
    found = read_schemas(kafkalog.open_log_dir(tmp_path))
    assert [(one.version, one.id, one.deleted) for one in found] == [(1, 2, "soft"), (1, 1, "hard")]
    assert [one and one.schema for one in map(found.by_id, (1, 2))] == [AVRO, '"string"']
    assert [one.id for one in kafkalog.schemas(tmp_path)] == []
    latest = found.find("s", 1)
    assert latest is not None
    assert latest.id == 2


RULES = {
    "domainRules": [
        {
            "name": "r",
            "doc": "d",
            "kind": "TRANSFORM",
            "mode": "WRITEREAD",
            "type": "ENCRYPT",
            "tags": ["PII", "A"],
            "params": {"b": "2", "a": "1"},
            "expr": "e",
            "onSuccess": "NONE",
            "onFailure": "ERROR,NONE",
            "disabled": True,
        },
        {"name": "q", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "disabled": False},
    ],
    "migrationRules": [{"name": "m", "kind": "TRANSFORM", "mode": "UPGRADE", "type": "JSONATA", "expr": "$"}],
    "encodingRules": [{"name": "x", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT_PAYLOAD"}],
    "enableAt": "CLIENT",
}
METADATA = {
    "tags": {"z.**": ["PII", "A"], "a": ["B"]},
    "properties": {"owner": "é", "confluent:version": "1"},
    "sensitive": ["s2", "s1"],
}
REFERENCES = [{"name": "a.proto", "subject": "a", "version": 3}, {"name": "b", "subject": "b", "version": 1}]
GUIDS = [
    ("095d71cf-1255-6b9d-5e33-0ad575b3df5d", '"string"', {}),
    (
        "ccc72787-cff3-4fdd-da50-0bd70ea931ed",
        '{"type":"record","name":"Zoë","fields":[]}',
        {"references": REFERENCES},
    ),
    ("69b0aa4d-4963-009a-d1b0-44a01bc8a9e9", '"int"', {"metadata": METADATA}),
    ("1d1d1f70-2ee5-5e03-8ce5-4f3b6703c50f", '"int"', {"metadata": {}}),
    ("9d2ded1e-7864-311f-d1be-0693fba809c9", '"int"', {"ruleSet": RULES}),
    ("00010203-0405-0607-0809-0a0b0c0d0e0f", '"int"', {"md5": "AAECAwQFBgcICQoLDA0ODw=="}),
]
"""What the registry's own classes (client 8.x) say of these records."""


def test_guids_are_those_of_the_registry(tmp_path):
    records = [schema("s", number, number, text, **more) for number, (_, text, more) in enumerate(GUIDS, 1)]
    found = kafkalog.schemas(written(tmp_path, records))
    assert not found.findings
    assert [one.guid for one in found] == [guid for guid, _, _ in GUIDS]
    assert [one.id for one in map(found.by_guid, (guid for guid, _, _ in GUIDS)) if one] == [1, 2, 3, 4, 5, 6]
    assert (found[2].metadata, found[4].rule_set) == (METADATA, RULES)
    assert json.loads(found.to_arrow().column("rule_set")[4].as_py()) == RULES
    broken = [schema("s", 1, 1, metadata={"tags": 5}), schema("s", 2, 2, ruleSet={"domainRules": [5]})]
    assert [finding.base_offset for finding in kafkalog.schemas(written(tmp_path, broken)).findings] == [6, 7]


def test_subjects_of_a_context_are_cleared_together(tmp_path):
    records = [
        *(schema(":.c:a", 1, 1, deleted=True), schema(":.c:a", 2, 2), schema(":.d:a", 1, 1, deleted=True)),
        *(other("DELETE_SUBJECT", ":.d:a", version=1), other("CLEAR_SUBJECT", ":.d:a")),
        other("CLEAR_SUBJECT", ":.c:", ts=1),
    ]
    found = kafkalog.schemas(written(tmp_path, records), deleted=True)
    assert [(one.subject, one.version, one.deleted) for one in found] == [
        (":.c:a", 1, "hard"),
        (":.c:a", 2, None),
        (":.d:a", 1, "soft"),
    ]


def test_settings_of_subjects(tmp_path):
    config = {"alias": "orders-value", "normalize": True, "compatibilityGroup": "major", "defaultMetadata": METADATA}
    records = [
        *(other("CONFIG", "a", **config), other("CONFIG", "b", compatibilityLevel="FULL"), other("CONFIG", "b")),
        *(other("CONFIG", "c", compatibilityLevel="NONE", validateFields=False), other("MODE", None, mode="IMPORT")),
        ({"keytype": "CONTEXT", "tenant": "default", "context": ".c"}, {"tenant": "default", "context": ".c"}),
        ({"keytype": "ASSOC", "subject": "a", "resourceName": "orders"}, {"guid": "g"}),
    ]
    found = kafkalog.schemas(written(tmp_path, records))
    assert not found.findings
    assert found.configs == {"a": config, "c": {"compatibilityLevel": "NONE", "validateFields": False}}
    assert (found.compatibility, found.modes) == ({"c": "NONE"}, {"": "IMPORT"})


def test_the_earliest_schema_of_an_id_counts(tmp_path):
    found = kafkalog.schemas(written(tmp_path, [schema("z", 1, 7, '"int"'), schema("a", 1, 7, '"long"')]))
    one = found.by_id(7)
    assert one is not None
    assert one.subject == "z", "a registry passes over another one with the same id"


def test_as_of_an_offset_and_a_time(tmp_path):
    written(tmp_path)
    assert [one.subject for one in kafkalog.schemas(tmp_path, end_offset=4)] == ["orders-value"] * 2
    before = kafkalog.schemas(tmp_path, end_timestamp=1007)
    assert [(one.subject, one.version) for one in before if one.subject == "old"] == [("old", 1), ("old", 2)]
    latest = max(kafkalog.read_table(tmp_path / "_schemas-0", columns=["timestamp"])[0].cast("int64").to_pylist())
    ahead = latest - 1007
    assert kafkalog.schemas(tmp_path, end_timestamp=f"end-{ahead}ms") == before
    with pytest.raises(ValueError, match="end_offset"):
        kafkalog.schemas(tmp_path, end_offset=-1)


def test_what_is_no_record_of_a_registry_is_a_finding(tmp_path):
    keys = [b"{", b"[]", b'{"keytype":"NEW"}', None, b'{"keytype":"SCHEMA","subject":"s","version":"1"}', b"[" * 5000]
    with PartitionWriter(tmp_path / "_schemas-0") as writer:
        writer.append({"key": keys, "value": [b"{}"] * len(keys)})
        key, value = schema("s", 1, 2**40)
        writer.append({"key": [json.dumps(key).encode()], "value": [json.dumps(value).encode()]})
    found = kafkalog.schemas(tmp_path)
    assert not found
    assert [finding.base_offset for finding in found.findings] == list(range(len(keys) + 1))
    assert {finding.reason for finding in found.findings} == {"internal_record"}


def test_mutated_records_end_in_schemas_or_findings():
    rng = random.Random(180)
    registry = _RegistryReplay()
    n_refused = 0
    for number in counted(range(fuzz_inputs(10))):
        key, value = (bytearray(json.dumps(part).encode()) for part in rng.choice(RECORDS))
        for data in (key, value):
            for _ in range(rng.randint(0, 2)):
                at = rng.randrange(len(data))
                data[at : at + rng.randint(0, 3)] = rng.choice((b"", b"0", b'"', b"null", rng.randbytes(2)))
        try:
            registry.apply(KeyedRecord(0, number, -1, bytes(key), bytes(value)))
        except ValueError:
            n_refused += 1
    assert registry.finished()
    assert n_refused


def test_the_command_says_the_same(tmp_path, capsys):
    path = str(written(tmp_path))
    assert main(["schemas", path, "--json", "--deleted"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [one.as_dict() for one in kafkalog.schemas(path, deleted=True)]
    assert main(["schemas", path, "-s", "bill"]) == 0
    _, row = capsys.readouterr().out.splitlines()
    assert row.split() == ["bill", "1", "3", "PROTOBUF", "1970-01-01T00:00:01Z", "a.proto=a:1"]
    assert main(["schemas", path, "-s", "bill", "--text"]) == 0
    assert PROTO in capsys.readouterr().out
    assert main(["schemas", path, "--history"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(RECORDS)
    (tmp_path / "_schemas-0").rename(tmp_path / "my-registry-0")
    assert main(["schemas", path, "--history", "--topic", "my-registry"]) == 0
    assert [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()] == [
        key["keytype"] for key, _ in RECORDS
    ]
    with pytest.raises(ValueError):
        kafkalog.history(path, "_schemas", registry_topic="my-registry")
    assert main(["schemas", path]) == 0, "none of the default topic is none at all"
    assert "no schemas" in capsys.readouterr().err
    assert main(["schemas", path, "--topic", "my-registry", "-s", "bil"]) == 2
    assert "no subject 'bil' here; did you mean 'bill'?" in capsys.readouterr().err
    assert main(["schemas", path, "--topic", "my-registri"]) == 2
    assert "no topic 'my-registri' here; did you mean 'my-registry'?" in capsys.readouterr().err


HOSTILE = [
    schema("../../etc/passwd", 1, 7, '"int"'),
    schema(":.ctx:../a\0b", 1, 7, '"long"'),
    schema(":.ctx:same", 3, 7, '"long"', guid="../../guid"),
    schema("half \ud800", 1, -5, '"\ud800"'),
    schema("plugin", 1, 8, "anything", schemaType="../X"),
    schema("money", 4, 9, '{"type":"record","name":"x.Money","fields":[{"name":"cents","type":"long"}]}'),
    schema("money", 5, 10, '{"type":"record","name":"x.Money","fields":[]}'),
    schema(
        "bill",
        1,
        11,
        '{"type":"record","name":"Bill","fields":[{"name":"price","type":"x.Money"}]}',
        references=[{"name": "x.Money", "subject": "money", "version": 4}],
    ),
    other("CONFIG", "bill", compatibilityLevel="FULL"),
]


def test_written_schemas_are_read_back_whatever_their_subjects_are(tmp_path, capsys):
    log_dir, output = tmp_path / "log", tmp_path / "schemas"
    log_dir.mkdir()
    written(log_dir, HOSTILE)
    assert main(["schemas", str(log_dir), "-o", str(output)]) == 0
    assert capsys.readouterr().err.endswith(f"8 versions of subjects, written to {output}\n")
    names = ["-5.avsc", "10.avsc", "11.avsc", "7-2.avsc", "7.avsc", "8.txt", "9.avsc", "manifest.json"]
    assert sorted(path.name for path in output.iterdir()) == names
    manifest = json.loads((output / "manifest.json").read_text())
    assert [row["subject"] for row in manifest["schemas"]] == [one.subject for one in kafkalog.schemas(log_dir)]
    assert manifest["configs"] == {"bill": {"compatibilityLevel": "FULL"}}
    known, source = kafkalog.schemas(log_dir), DirectorySchemas(output)
    for one in known:
        if "half" not in one.subject and one.subject != "plugin":
            for found in (source.find(one.subject, one.version), source.by_guid(one.guid)):
                assert (found.type, found.schema, [*found.references]) == (one.type, one.schema, one.references)
    assert source.by_id(7)[:3] == ("AVRO", '"int"', ())
    with PartitionWriter(tmp_path / "bills-0") as writer:
        writer.append({"value": [b"\0\0\0\0\x0b\x10"]})
    table = kafkalog.read_table(tmp_path / "bills-0", decode={"value": "avro"}, schemas=output, columns=["value"])
    assert table.column(0).to_pylist() == [{"price": {"cents": 8}}]


def test_what_some_schemas_refer_to_is_found_and_written_with_them(tmp_path, capsys):
    log_dir, output = tmp_path / "log", tmp_path / "schemas"
    log_dir.mkdir()
    total = '{"type":"record","name":"Total","fields":[{"name":"of","type":"Bill"}]}'
    bill = [{"name": "Bill", "subject": "bill", "version": 1}]
    circle = [
        schema("round", number, 20 + number, references=[{"name": "A", "subject": "round", "version": 3 - number}])
        for number in (1, 2)
    ]
    deleted = schema("money", 4, 9, HOSTILE[5][1]["schema"], deleted=True)
    written(log_dir, [*HOSTILE, schema("total", 1, 12, total, references=bill), deleted, *circle])
    assert main(["schemas", str(log_dir), "-s", "total", "-o", str(output)]) == 0
    assert capsys.readouterr().err.endswith(f"1 version of subjects, and 2 that they refer to, written to {output}\n")
    manifest = json.loads((output / "manifest.json").read_text())
    assert [(row["subject"], row["version"]) for row in manifest["schemas"]] == [
        ("bill", 1),
        ("money", 4),
        ("total", 1),
    ]
    assert sorted(path.name for path in output.iterdir()) == ["11.avsc", "12.avsc", "9.avsc", "manifest.json"]
    found = kafkalog.schemas(log_dir, subjects="total")
    with PartitionWriter(tmp_path / "totals-0") as writer:
        writer.append({"value": [b"\0\0\0\0\x0c\x10"]})
    for source in (output, found):
        options = {"decode": {"value": "avro"}, "schemas": source, "columns": ["value"]}
        table = kafkalog.read_table(tmp_path / "totals-0", **options)
        assert table.column(0).to_pylist() == [{"of": {"price": {"cents": 8}}}]
    assert [one.subject for one in found] == ["total"]
    assert found.find("money", 5) is None, "nothing refers to it"
    found = kafkalog.schemas(log_dir, subjects="round")
    del found[1:]
    assert [one.version for one in found.referred()] == [2]


def test_no_schemas_make_no_directory(tmp_path, capsys):
    written(tmp_path)
    output = tmp_path / "schemas"
    assert main(["schemas", str(tmp_path), "--end-offset", "0", "-o", str(output)]) == 0
    assert "nothing is written" in capsys.readouterr().err
    assert main(["schemas", str(tmp_path), "-s", "none-such*", "-o", str(output)]) == 2
    assert "no subject matches 'none-such*' here" in capsys.readouterr().err
    assert not output.exists()


def test_schemas_are_written_whole_or_not_at_all(tmp_path, capsys):
    log_dir = tmp_path / "log"
    log_dir.mkdir()
    written(log_dir)
    found = kafkalog.schemas(log_dir)
    found.write(tmp_path / "there")
    with pytest.raises(kafkalog.OutputExistsError):
        found.write(tmp_path / "there")
    with pytest.raises(kafkalog.UnsafePathError):
        found.write(log_dir / "_schemas-0" / "inside")
    assert main(["schemas", str(log_dir), "-o", "x", "--history"]) == 2
    assert "--history" in capsys.readouterr().err
    (tmp_path / "there" / "manifest.json").write_text('{"schemas": [{"file": 1}]}')
    with pytest.raises(ValueError):
        DirectorySchemas(tmp_path / "there")
