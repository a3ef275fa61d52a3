"""A scan divided into parts: other processes read them, together what the scan reads, or say that files changed."""

import importlib.util
import multiprocessing
import os
import pickle
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import builder
import golden_sets
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from effort import thinned
from needs import missing

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import CorruptionError, FileChangedError, ReadError

OPTIONS = [
    {},
    {"isolation_level": "read_committed"},
    {"start_offset": 20, "end_offset": 90, "columns": ["partition", "offset", "value"]},
    {"filters": [("topic", "==", "p-txn"), ("offset", ">", 100)], "include_control": True},
    {"filters": [("key", "in", [b"k1", b"k2", None])], "batch_size": 7},
    {"filters": [[("partition", "==", 1)], [("headers", "has", "n"), ("key", "!=", "a")]]},
    {"filters": pc.field("offset") < 30, "binary_type": pa.binary_view()},
    {"topics": ["p-*", "!p-txn"], "start_timestamp": 1_700_000_000_000},
]


def travelled(value):
    return pickle.loads(pickle.dumps(value))


@pytest.fixture
def log(tmp_path):
    """A partition of three segments of a hundred batches each, with offset indexes."""
    path = tmp_path / "t-0"
    path.mkdir()
    for base in (0, 400, 800):
        batches = [
            builder.batch_v2([builder.record_v2(i, 0, None, b"x" * 400) for i in range(4)], base_offset=base + 4 * at)
            for at in range(100)
        ]
        (path / kf.segment_file_name(base)).write_bytes(b"".join(batches))
    kafkalog.reindex(path, in_place=True)
    return path


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_parts_together_read_what_the_scan_reads_and_both_pickle(options):
    scan = kafkalog.scan(golden_sets.LOG_DIR, **options)
    whole = scan.to_table()
    assert travelled(scan).to_table().equals(whole)
    for target_bytes in (2**14, 2**26):
        parts = travelled(scan.plan(target_bytes=target_bytes))
        assert pa.concat_tables([scan.schema.empty_table(), *(part.to_table() for part in parts)]).equals(whole)
        assert sum(part.count_rows() for part in parts) == whole.num_rows
    assert whole.num_rows


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("on_corruption", ["raise", "stop", "skip"])
@pytest.mark.parametrize("damage", thinned(["checksum", "garbage", "cut"], 3))
def test_parts_say_of_damage_behind_an_open_transaction_what_the_scan_says(tmp_path, damage, on_corruption):
    path = shutil.copytree(golden_sets.partitions("k28")["p-v2-txn-0"], tmp_path / "p-v2-txn-0")
    last = max(path.glob("*.log"))
    data = last.read_bytes()
    last.write_bytes(
        {"garbage": b"\xff" * 64 + data[64:], "checksum": data[:20] + b"?" + data[21:], "cut": data[:30]}[damage]
    )

    def said(scans):
        given = []
        found = []
        for scan in scans:
            try:
                for rows in scan.to_batches():
                    given += rows["offset"].to_pylist()
            except CorruptionError as error:
                return given, str(error), found
            finally:
                found += scan.findings
        return given, None, found

    wholes = []
    for bounds in ({}, {"start_offset": 339}, {"start_offset": 339, "end_offset": 343}, {"start_offset": 518}):
        options = {"isolation_level": "read_committed", "on_corruption": on_corruption, **bounds}
        scan = kafkalog.scan(path, columns=["offset"], threads=1, **options)
        wholes.append(said([scan]))
        for target_bytes in (2**12, 2**26):
            assert said(scan.plan(target_bytes=target_bytes)) == wholes[-1], (bounds, target_bytes)
    assert wholes[0][0]
    assert wholes[0][0]
    assert (wholes[1][1] is not None) == (on_corruption == "raise" and damage != "cut")


def test_what_is_opened_pickles_with_indexes_read_and_mapped():
    for memory_map in (True, "auto"):
        log_dir = kafkalog.open_log_dir(golden_sets.LOG_DIR, memory_map=memory_map)
        whole = log_dir.to_table(start_offset=30)
        partition = log_dir["p-multi", 0]
        assert [segment.offset_index for segment in partition.segments]
        assert travelled(log_dir).to_table(start_offset=30).equals(whole)
        assert travelled(partition).to_table().equals(partition.to_table())
        assert travelled(partition.segments[0]).to_table().equals(partition.segments[0].to_table())
    assert len(pickle.dumps(log_dir)) < 10_000


def test_what_filters_rule_out_is_in_no_part(log):
    (log.parent / "t-1").mkdir()
    data = builder.batch_v2([builder.record_v2(0, 0, None, b"x")])
    (log.parent / "t-1" / kf.segment_file_name(0)).write_bytes(data)
    filters = [("partition", "==", 0), ("offset", ">=", 400), ("offset", "<", 480)]
    (part,) = kafkalog.scan(log.parent, filters=filters).plan(target_bytes=2**16)
    target = part.target
    assert [path.name for path in target.paths] == ["t-0"]
    assert 0 < target.n_bytes < 50_000
    assert part.to_table()["offset"].to_pylist() == list(range(400, 480))
    assert kafkalog.scan(log.parent, filters=[("topic", "==", "u")]).plan() == []
    assert kafkalog.scan(log.parent, filters=[("offset", ">", 9), ("offset", "<", 9)]).plan() == []


def test_a_scan_with_a_limit_is_not_divided(log):
    with pytest.raises(ValueError):
        kafkalog.scan(log, limit=3).plan()
    with pytest.raises(ValueError, match="target_bytes"):
        kafkalog.scan(log).plan(target_bytes=0)


def test_a_part_is_a_scan_itself(log):
    parts = kafkalog.scan(log, columns=["offset"]).plan(target_bytes=2**16)
    second = travelled(parts[1])
    offsets = second.to_table()["offset"].to_pylist()
    assert second.head(2)["offset"].to_pylist() == offsets[:2]
    assert second.tail(2)["offset"].to_pylist() == offsets[-2:]
    assert second.to_numpy().offset.tolist() == offsets
    assert second.explain(analyze=True).statistics.n_records_selected == len(offsets)
    assert second.plan() == [second]
    assert repr(second).startswith(f"Scan(PartitionRanges(['{log}'], ")


def _sum(part):
    try:
        table = part.to_table()
    except FileChangedError as error:
        return str(error)
    return table.num_rows, sum(table["offset"].to_pylist())


@pytest.fixture
def _processes_find_this_module(monkeypatch):
    """Processes that are spawned get the path of this one, in which `pytest` alone does not put its directory."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


@pytest.mark.slow
@pytest.mark.usefixtures("_processes_find_this_module")
def test_a_process_pool_reads_the_parts_and_says_which_file_changed(log):
    parts = kafkalog.scan(log).plan(target_bytes=2**16)
    assert len(parts) > 6
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        done = list(pool.map(_sum, parts))
        assert [sum(one) for one in zip(*done, strict=True)] == [1200, sum(range(1200))]
        second = log / kf.segment_file_name(400)
        second.write_bytes(second.read_bytes()[:-1000])
        with (log / kf.segment_file_name(800)).open("ab") as file:  # a last segment may grow
            file.write(builder.batch_v2([builder.record_v2(0, 0, None, b"new")], base_offset=1200))
        again = list(pool.map(_sum, parts))
    for part, before, after in zip(parts, done, again, strict=True):
        names = {one.name for piece in part.target.parts for one in piece.segments}
        if second.name in names:
            assert isinstance(after, str)
            assert second.name in after
            assert "when the read was planned; plan again" in after
        else:
            assert after == before
    second.unlink()
    with pytest.raises((ReadError, FileChangedError)):
        [part.to_table() for part in parts]


def _by_joblib(parts):
    import joblib

    return list(joblib.Parallel(n_jobs=2)(joblib.delayed(_sum)(part) for part in parts))


def _by_dask(parts):
    import dask

    return list(dask.compute(*[dask.delayed(_sum)(part) for part in parts], scheduler="processes", num_workers=2))


def _by_ray(parts):
    import ray

    # its workers begin in a directory of their own, and do not have this process's path
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    try:
        read = ray.remote(_sum)
        return list(ray.get([read.remote(part) for part in parts]))
    finally:
        ray.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("_processes_find_this_module")
@pytest.mark.filterwarnings("ignore")  # those of the libraries
@pytest.mark.parametrize("read", [_by_joblib, _by_dask, _by_ray])
def test_libraries_that_spread_work_read_the_parts_and_say_which_file_changed(read, log):
    library = read.__name__.removeprefix("_by_")
    if importlib.util.find_spec(library) is None:
        # Ray is large, and has no wheels for some versions of Python
        (pytest.skip if library == "ray" else missing)(f"not tested here: {library} is not installed")
    parts = kafkalog.scan(log).plan(target_bytes=2**18)
    second = log / kf.segment_file_name(400)
    whole = second.read_bytes()
    assert len(parts) > 1
    second.write_bytes(whole[:-1000])
    changed = kafkalog.scan(log).plan(target_bytes=2**18)
    second.write_bytes(whole)
    found = read([*parts, *changed])
    done = found[: len(parts)]
    assert [sum(one) for one in zip(*done, strict=True)] == [1200, sum(range(1200))]
    assert any(isinstance(one, str) and second.name in one and "plan again" in one for one in found[len(parts) :])
