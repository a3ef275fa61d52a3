"""What results have in common: truth, a length, items by position and by name, and findings in one place."""

import shutil

import pytest

import kafkalog
from kafkalog.html import PartsReport


@pytest.fixture(scope="module")
def damaged(tmp_path_factory, log_dir):
    """A log dir with a damaged batch in p-multi-0."""
    copy = tmp_path_factory.mktemp("results") / "damaged"
    shutil.copytree(log_dir, copy)
    log = min((copy / "p-multi-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    return copy


pytestmark = pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")


def results(path, out):
    yield kafkalog.verify(path)
    yield kafkalog.salvage(path, out / "saved", dry_run=True)
    yield kafkalog.preflight(path)
    yield kafkalog.recover(path, dry_run=True)
    yield kafkalog.report(path)
    yield kafkalog.merge([path], out / "merged", dry_run=True)
    yield kafkalog.boot(path, out / "booted", dry_run=True)
    yield kafkalog.convert(path, out / "converted", dry_run=True, on_corruption="skip")
    yield kafkalog.reindex(path, dry_run=True)
    yield kafkalog.ls(path)


@pytest.fixture(scope="module")
def found(damaged, log_dir, tmp_path_factory):
    """The results of all verbs about each of the two log dirs."""
    return {path: [*results(path, tmp_path_factory.mktemp("found"))] for path in (damaged, log_dir)}


def test_a_result_is_true_if_it_is_ok_and_a_list_if_it_has_items(damaged, log_dir, found):
    for path in (damaged, log_dir):
        for result in found[path]:
            assert bool(result) == getattr(result, "ok", True), result
    verified = kafkalog.verify(damaged)
    assert not verified
    assert not verified["p-multi", 0]
    assert verified["p-multi", 1]
    assert not verified["p-multi-0"].segments[0]
    assert not kafkalog.groups(log_dir)


def test_a_result_has_all_findings_below_it(damaged):
    verified = kafkalog.verify(damaged)
    assert [one.reason for one in verified.findings] == ["crc_mismatch"]
    assert [one.reason for one in verified["p-multi", 0].findings] == ["crc_mismatch"]
    assert verified.own_findings == verified["p-multi", 0].own_findings == []
    assert verified.to_dict()["findings"] == verified.findings.to_dict()
    assert "1 of damage" in repr(verified.findings)


def test_findings_are_a_list_and_a_frame(damaged, found):
    pytest.importorskip("pandas")
    for result in found[damaged]:
        findings = getattr(result, "findings", [])
        assert len(findings) == len([*findings]), result
        if findings:
            assert findings[0] is next(iter(findings))
            assert findings[findings[0].reason][0] == findings[0]
            assert [*findings.to_pandas()["reason"]] == [one.reason for one in findings]


def test_parts_are_found_by_position_and_by_name(log_dir, found):
    for result in found[log_dir]:
        assert len(result) == len([*result]) > 0, result
        if not isinstance(result, PartsReport):
            assert result[next(iter(result))].name == next(iter(result))
            continue
        assert result[0] is next(iter(result))
        assert result[-1] is [*result][-1]
        assert len(result["p-multi", 1]) > 1 if isinstance(result, kafkalog.RebuildReport) else True  # its files
        if not isinstance(result, kafkalog.RebuildReport):
            assert "p-multi" in [str(getattr(topic, "name", topic)) for topic in result.topics]
            assert ("p-multi", 1) in result
            assert "p-multi-1" in result
            assert "p-multi" in result
            assert "p-nothing" not in result
            assert result["p-multi", 1] is result["p-multi-1"]
            assert [*result["p-multi"]] == [result["p-multi", number] for number in range(3)]


def test_groups_are_found_by_name(tmp_path):
    kafkalog.sample(tmp_path / "sample")
    groups = kafkalog.groups(tmp_path / "sample")
    assert groups["billing"].name == "billing"
    assert "billing" in groups
    with pytest.raises(KeyError, match="did you mean 'billing'"):
        groups["biling"]


@pytest.mark.parametrize(
    ("key", "message"),
    [("p-mutli", "did you mean 'p-multi'"), (("p-multi", 9), "there are p-multi-0, p-multi-1"), ("x", "there are p-")],
)
def test_the_error_for_a_name_says_what_there_is(key, message, log_dir):
    with pytest.raises(KeyError, match=message) as error:
        kafkalog.ls(log_dir)[key]
    assert len(str(error.value)) < 200
