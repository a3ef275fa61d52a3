"""Where changes go: a kill at any write leaves a copy absent or complete, and the source as it was."""

import shutil
import sys
from functools import partial

import golden_sets
import pytest
from effort import spared
from faults import is_killed_at
from files import content, offsets_of

import kafkalog

STEP = 5


def log_dir(root):
    source = golden_sets.unpacked("k44")
    root.mkdir()
    for name in ("p-multi-0", "p-txn-0"):
        shutil.copytree(source / name, root / name)
    shutil.copy(source / "meta.properties", root)
    return root


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
@pytest.mark.parametrize("name", spared(["merge", "trim", "truncate"], 2))
def test_a_copy_that_is_killed_at_any_write_is_absent_or_complete(name, tmp_path):
    source = log_dir(tmp_path / "data")

    def make(output):
        if name == "merge":
            kafkalog.merge([source, source], output=output)
        elif name == "trim":
            kafkalog.trim(source, before_offset=100, output=output)
        else:
            kafkalog.truncate(source, to_offset=100, output=output)

    before, out = content(source), tmp_path / "out"
    make(tmp_path / "ref")
    n = 1
    while is_killed_at(n, lambda: make(out)):
        if out.exists():
            assert {path.relative_to(out): path.stat().st_size for path in out.rglob("*") if path.is_file()} == {
                path.relative_to(tmp_path / "ref"): path.stat().st_size
                for path in (tmp_path / "ref").rglob("*")
                if path.is_file()
            }
            shutil.rmtree(out)
        n += STEP
    assert n > 2 * STEP
    assert content(source) == before


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
def test_a_trim_in_place_that_is_killed_loses_no_record_and_can_be_done_again(tmp_path):
    wanted = log_dir(tmp_path / "ref")
    kafkalog.trim(wanted / "p-txn-0", before_offset=200, in_place=True, backup=tmp_path / "old")
    kept = offsets_of(wanted / "p-txn-0")
    n, is_killed = 1, True
    while is_killed:
        source = log_dir(tmp_path / f"data-{n}")
        options = {"before_offset": 200, "in_place": True, "backup": tmp_path / f"old-{n}"}
        is_killed = is_killed_at(n, partial(kafkalog.trim, source / "p-txn-0", **options))
        found = set(offsets_of(source / "p-txn-0"))
        assert set(kept) <= found
        kafkalog.trim(source / "p-txn-0", before_offset=200, in_place=True, backup=tmp_path / f"again-{n}")
        # an index whose log is gone is deleted by a broker when it starts
        for path in source.rglob("*index"):
            if not path.with_suffix(".log").exists():
                path.unlink()
        assert content(source) == content(wanted)
        shutil.rmtree(source)
        n += STEP
    assert n > 2 * STEP
