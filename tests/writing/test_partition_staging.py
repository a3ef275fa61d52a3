"""Publishing a partition: a failure, a kill or an interrupt anywhere leaves the old or the new."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from effort import THOROUGH, thinned
from faults import Faulty
from refusals import fails_with
from writing import SMALL, TOPIC_ID, columns_of, draw, files_in, nothing_left, sound, unclean, write

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.errors import (
    UnsafePathError,
    WriteError,
)


@pytest.fixture
def memory(tmp_path):
    """A directory where fsync takes no time, for what is done hundreds of times."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as name:
        yield Path(name)


def test_a_partition_that_somebody_writes_to_meanwhile_is_left_alone(path):
    write(path)
    longer = path.parent / "copy" / path.name
    shutil.copytree(path, longer)
    write(longer, seed=1)
    writer = PartitionWriter(path)
    writer.append(columns_of(draw(10)))
    # whoever it is holds no lock
    shutil.copytree(longer, path, dirs_exist_ok=True)
    shutil.rmtree(longer.parent)
    old = files_in(path)
    with fails_with("file_changed"):
        writer.close()
    assert files_in(path) == old
    assert nothing_left(path)


def test_places_where_a_broker_would_trip_over_it_are_refused(path, tmp_path):
    (path.parent / "meta.properties").write_text("version=1\n")
    write(path)
    for target in (path / "other-0", path.parent / "deep" / "other-0"):
        target.parent.mkdir(exist_ok=True)
        with pytest.raises(UnsafePathError):
            PartitionWriter(target)
    for stage_in in (path, path.parent):
        with pytest.raises(UnsafePathError):
            PartitionWriter(path.with_name("other-0"), stage_in=stage_in)
    (path.parent / "file-0").write_bytes(b"")
    with fails_with("unsafe_path"):
        PartitionWriter(path.parent / "file-0")
    with pytest.raises(WriteError):
        PartitionWriter(tmp_path / "absent" / "deep" / "other-0")
    (tmp_path / "meta.properties").touch()
    with pytest.raises(UnsafePathError):
        PartitionWriter(path.with_name("other-0"))


def begin(path, scenario):
    """What is there before."""
    path.parent.mkdir(parents=True)
    if scenario != "new":
        write(path, 60, producer=(8, 0))
    if scenario == "torn":
        unclean(path, b"torn")
    if scenario == "empty":
        shutil.rmtree(path)
        write(path, 0)


def go_on(path, scenario):
    """What is interrupted."""
    options = {"config": SMALL, "batch_size": 400, "topic_id": TOPIC_ID, "leader_epoch": 3}
    with PartitionWriter(path, truncate_tail=scenario == "torn", **options) as writer:
        writer.append(columns_of(draw(60, 6)))
        writer.append(columns_of(draw(30, 7)), producer=(8, 0), transactional=True)
        writer.abort_transaction(producer=(8, 0))


def digest(path):
    return hashlib.sha256(repr(files_in(path)).encode()).hexdigest()


def is_prefix(path, old, new):
    """Whether a partition is as before, with some of the new segments, each whole, and nothing lost."""
    found = files_in(path)
    logs = sorted(name for name in new if name.endswith(".log"))
    there = [name for name in logs if found.get(name) == new[name]]
    if there != logs[: len(there)] or any(name not in new for name in found if name not in old):
        return False
    for name in (name for name in old if name.endswith(".log") and old[name]):
        if found[name] not in (old[name], new[name]):
            return False
    return [one for one in sound(path) if not any(fine in one for fine in FINE)] == []


FINE = ("unknown_file", "index_missing", "partial_tail", "index_padding", "index_sparse", "log_end_missing")
"""Of a crash: an index whose segment is still to come, one that is being replaced, what was torn before."""


SCENARIOS = ("new", "append", "torn", "empty")


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("code", thinned([errno.ENOSPC, errno.EIO], 2))
def test_the_nth_failure_is_told_and_leaves_what_was_there(memory, scenario, code):
    step = 21 if not THOROUGH else 7 if code == errno.EIO else 1 if scenario == "append" else 3

    def fault(name):
        raise OSError(code, os.strerror(code))

    n_told = 0
    for n in range(1, 2000, step):
        path = memory / str(n) / "logs" / "orders-0"
        begin(path, scenario)
        old, before = files_in(path), kafkalog.Partition(path).log_end_offset if path.exists() else None
        faulty = Faulty(n, fault)
        told = None
        try:
            with faulty.installed():
                go_on(path, scenario)
        except WriteError as error:
            told = error.detail
        if told is not None:
            assert told.startswith(os.strerror(code))
            n_told += 1
            found = files_in(path)
            if scenario == "torn" and found != old:
                assert kafkalog.Partition(path).log_end_offset == before
                log = max(name for name in old if name.endswith(".log"))
                found[log] = old[log]
            assert found == old
        else:
            assert kafkalog.scan(path).count_rows() == 90 + 60 * (scenario in ("append", "torn"))
        assert os.listdir(path.parent) in ([], ["orders-0"])
        assert os.listdir(path.parent.parent) == ["logs"]
        shutil.rmtree(memory / str(n))
        if faulty.n_calls < n:
            break
    else:
        raise AssertionError("it never came to an end")
    assert n_told > 50 // step


KILLED = """
import sys
from pathlib import Path
from faults import is_killed_at
from test_partition_staging import begin, go_on
root, scenario, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for n in range(1, 5000, step):
    path = root / str(n) / "logs" / "orders-0"
    begin(path, scenario)
    if not is_killed_at(n, lambda: go_on(path, scenario)):
        print(n)
        break
"""


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_anywhere_it_is_old_or_new_or_some_whole_segments_more(memory, scenario):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    step = 2 if scenario != "append" else 1 if THOROUGH else 4
    command = [sys.executable, "-c", KILLED, str(memory), scenario, str(step)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True, env=environment)
    n_points = int(done.stdout) - step
    assert n_points > 50
    begin(memory / "before" / "logs" / "orders-0", scenario)
    old = files_in(memory / "before" / "logs" / "orders-0")
    new = files_in(memory / str(n_points + step) / "logs" / "orders-0")
    states = {}
    for n in range(1, n_points + 1, step):
        path = memory / str(n) / "logs" / "orders-0"
        assert os.listdir(path.parent) in ([], ["orders-0"])
        left = sorted(set(os.listdir(path.parent.parent)) - {"logs"})
        assert len(left) <= 1
        state = digest(path)
        if state in states:
            continue
        states[state] = True
        found = files_in(path)
        if scenario == "new":
            assert found in ({}, new)
            continue
        assert is_prefix(path, old, new), n
        # whatever it is, the next one goes on from there, and what was staged goes
        n_rows = kafkalog.scan(path).count_rows()
        write(path, 10, truncate_tail=True)
        assert kafkalog.scan(path).count_rows() == n_rows + 10
        assert [one for one in sound(path) if "index_sparse" not in one] == []
        assert nothing_left(path)
    assert len(states) == 2 if scenario == "new" else len(states) > 8
