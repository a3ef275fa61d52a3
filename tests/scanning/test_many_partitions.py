"""Thousands of tiny partitions: what is kept of each takes little memory."""

import tracemalloc

import pytest
from builder import batch_v2, record_v2

import kafkalog

N_PARTITIONS = 300
MOST_BYTES = 15_000
"""Of each; columns with the memory of a window took 63 KB."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    for number in range(N_PARTITIONS):
        (path / f"t-{number}").mkdir()
        records = [record_v2(at, key=b"k", value=b"v") for at in range(3)]
        (path / f"t-{number}" / f"{0:020d}.log").write_bytes(batch_v2(records))
    return path


@pytest.mark.parametrize("kept", ["tail", "batches"])
def test_what_is_kept_of_tiny_partitions_is_small(tiny, kept):
    scan = kafkalog.scan(tiny)
    kafkalog.scan(tiny, partitions=[0]).tail(1)
    tracemalloc.start()
    found = scan.tail(1) if kept == "tail" else list(scan.to_batches())
    n_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == N_PARTITIONS
    assert n_bytes < N_PARTITIONS * MOST_BYTES


def test_rows_of_many_partitions_are_exported_in_order(tiny, tmp_path):
    import pyarrow.parquet as pq

    kafkalog.export(tiny, tmp_path / "all.parquet")
    rows = pq.read_table(tmp_path / "all.parquet", columns=["partition", "offset"]).to_pylist()
    assert [(row["partition"], row["offset"]) for row in rows] == [
        (n, at) for n in range(N_PARTITIONS) for at in range(3)
    ]
