"""The log dir that `sample` writes has what its help promises, and nothing is damaged."""

import json
import shlex

import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import OutputExistsError, UnsafePathError

NOW = "2026-11-21T08:00Z"


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory):
    return kafkalog.sample(tmp_path_factory.mktemp("sample") / "log", now=NOW)


def test_it_has_topics_groups_transactions_and_a_torn_tail(log_dir):
    assert log_dir.topics == ["__consumer_offsets", "customers", "orders", "payments"]
    assert {group.name: group.lag for group in kafkalog.groups(log_dir)} == {"billing": 0, "reports": 720}
    (payments,) = kafkalog.producers(log_dir, topics="payments", now="end")
    assert [one.producer_id for one in payments.open] == [1002]
    committed = kafkalog.scan(log_dir, topics="payments", isolation_level="read_committed").count_rows()
    assert (kafkalog.scan(log_dir, topics="payments").count_rows(), committed) == (120, 100)
    torn = [row.name for row in kafkalog.ls(log_dir) for finding in row.findings if finding.reason == "partial_tail"]
    assert torn == ["orders-2"]


def test_nothing_is_damaged_and_a_broker_recovers_it(log_dir):
    report = kafkalog.verify(log_dir, deep=True)
    assert report.ok, report.findings
    assert kafkalog.preflight(log_dir.paths[0]).verdict in ("starts", "recovers")


def test_values_are_json_and_times_end_now(log_dir):
    table = kafkalog.read_table(log_dir, topics="orders", value_format="json", columns=["timestamp", "value.user"])
    assert set(table["value.user"].to_pylist()) == {f"user-{number}" for number in range(50)}
    assert str(max(table["timestamp"].to_pylist())).startswith("2026-11-21 07:5")


def test_the_records_of_one_time_are_the_same(log_dir, tmp_path):
    again = kafkalog.sample(tmp_path / "again", now=NOW)
    for path in log_dir.paths[0].glob("*/*.log"):
        assert path.read_bytes() == (again.paths[0] / path.parent.name / path.name).read_bytes()


def test_the_command_prints_what_to_try_and_each_command_runs(tmp_path, capsys, monkeypatch):
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    assert main(["sample", "log dir", "--now", NOW]) == 0
    lines = [shlex.split(line, comments=True) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 6
    for program, *arguments in lines:
        assert program == "kafkalog"
        assert main(arguments) == 0, arguments
    assert main(["cat", "log dir", "-t", "orders", "--json", "-n", "1", "--encoding", "utf8"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["offset"] == 0


def test_what_is_there_is_left_alone(log_dir, tmp_path):
    with pytest.raises(OutputExistsError):
        kafkalog.sample(log_dir.paths[0])
    with pytest.raises(UnsafePathError):
        kafkalog.sample(log_dir.paths[0] / "new")
