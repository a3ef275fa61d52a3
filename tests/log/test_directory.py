"""What the names in a partition's directory mean."""

from kafkalog.log.directory import Directory


def test_names_are_told_apart_by_their_offsets_and_suffixes(tmp_path):
    names = ["0.log", "5.log", "7.log.swap", "6.log.cleaned", "3.snapshot", "x.log", "leader-epoch-checkpoint"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "1.log.cleaned").mkdir()
    directory = Directory(tmp_path)
    assert directory.logs == {"0.log": 0, "5.log": 5}
    assert directory.swaps == {"7.log.swap": 7}
    assert directory.snapshots == {"3.snapshot": 3}
    assert directory.strays == ["leader-epoch-checkpoint", "x.log"]
    assert directory.unfinished == 6, "a directory is no file of the cleaner"
    assert [directory.base_after(offset) for offset in (-1, 0, 4, 5)] == [0, 5, 5, None]
    assert Directory.or_empty(tmp_path / "gone").unfinished == 2**63
