"""Checkpoint files: read as Kafka reads them, refused with the line that is wrong."""

import pytest

import kafkalog
from kafkalog.state.checkpoints import read_leader_epochs, read_offset_checkpoint
from kafkalog.state.properties import read_properties


def write(tmp_path, text):
    path = tmp_path / "checkpoint"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_an_absent_file_is_none_and_an_empty_one_an_empty_list(tmp_path):
    assert read_offset_checkpoint(tmp_path / "absent") is None
    assert read_leader_epochs(tmp_path / "absent") is None
    assert read_properties(tmp_path / "absent") is None
    assert read_offset_checkpoint(write(tmp_path, "")) == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1\n0\n", 1),
        ("x", 1),
        ("0\nmany\n", 2),
        ("0\n1\n", 2),
        ("0\n1\nt 0 1\nt 1 1\n", 2),
        ("0\n1\nt 0\n", 3),
        ("0\n2\nt 0 1\nt 1 1 1\n", 4),
        ("0\n1\nt zero 1\n", 3),
        ("0\n1\nt 0 99999999999999999999\n", 3),
        (b"\xff\xfe", 1),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path, text, line):
    path = write(tmp_path, text)
    with pytest.raises(kafkalog.SidecarError) as caught:
        read_offset_checkpoint(path)
    assert caught.value.path == str(path)
    assert caught.value.reason == "checkpoint_syntax"


def test_a_malformed_checkpoint_of_a_log_dir_is_a_finding_and_its_records_are_read(log_dir_copy):
    (log_dir_copy / "log-start-offset-checkpoint").write_text("0\n7\n")
    scan = kafkalog.scan(log_dir_copy, topics="p-multi")
    with pytest.warns(kafkalog.CorruptionWarning, match="checkpoint_syntax"):
        assert scan.count_rows() == 303
    partition = kafkalog.open(log_dir_copy / "p-delrec-0")
    assert isinstance(partition, kafkalog.Partition)
    assert partition.log_start_offset == partition.segments[0].base_offset
    assert [finding.reason for finding in partition.findings] == ["checkpoint_syntax"]


def test_meta_properties_are_read_as_java_reads_properties(tmp_path):
    path = write(tmp_path, b"#c\nnode.id : 1\ncluster.id=caf\xe9\\\n  x\ndirectory.id=\\u0061\n")
    assert read_properties(path) == {"node.id": "1", "cluster.id": "caf\xe9x", "directory.id": "a"}
