"""Brokers of several releases start on a directory, or not, as `preflight --release` says."""

import pytest
from builder import batch_v2, record_v2
from conformance.jars import class_path, java
from conformance.kafka import Broker, copy_tree, free_ports
from effort import spared
from golden_sets import LOG_DIR, unpacked

import kafkalog
from kafkalog.protocol.encoder import encode_metadata_record
from kafkalog.repair.recovering.targets import TARGETS, Target

pytestmark = [pytest.mark.broker, pytest.mark.slow]

BROKERS = {"3.9": "3.9.1", "4.0": "4.0.1", "4.3": "4.3.1", "4.4": "4.4.0"}
_NEW = {**TARGETS["4.3"].features}
SOURCES = {
    "written by 4.4": None,
    "of 3.9": ("3.9", None, {}),
    "of 4.0": ("4.0", None, {}),
    "of 4.3": ("4.3", None, {}),
    "of 4.4": ("4.4", Target("4.4", 33, {**_NEW, "share.version": 2}), {}),
    "an old level": ("3.9", Target("3.9", 5, {}), {}),
    "a level of no release": ("4.4", Target("4.4", 77, {}), {}),
    "a level that is not stable": ("4.3", Target("4.3", 31, _NEW), {}),
    "share groups of 4.4": ("4.4", Target("4.4", 30, {**_NEW, "share.version": 2}), {}),
    "a feature of no release": ("4.4", Target("4.4", 25, {"no.version": 1}), {}),
    "small segments": ("3.9", None, {"p-multi": {"segment.bytes": "1000"}}),
}


class ForeignBroker(Broker):
    """A broker on a directory that another release wrote."""

    def _prepare(self):
        if not (self.folder / "server.properties").exists():
            super()._write_properties()

    def _write_properties(self):
        pass


def made(name, tmp_path, monkeypatch):
    """A directory: one that a broker wrote, or that is made for a release with other levels and settings."""
    given = SOURCES[name]
    folder = tmp_path / "node"
    if given is None:
        folder.mkdir()
        copy_tree(unpacked("k44"), folder / "data")
        return folder
    release, target, settings = given
    if target is not None:
        monkeypatch.setitem(TARGETS, release, target)
    port, controller = free_ports(2)
    options = {"release": release, "settings": settings, "nodes": [f"127.0.0.1:{port}:{controller}"]}
    kafkalog.boot(LOG_DIR, folder, topics="p-multi", **options)
    monkeypatch.undo()
    return folder


def with_record(folder, record):
    """A record of the controllers more."""
    directory = folder / "data" / "__cluster_metadata-0"
    with sorted(directory.glob("*.log"))[-1].open("ab") as file:
        file.write(batch_v2([record_v2(value=record)], base_offset=kafkalog.open(directory).log_end_offset))


def starts(folder, version):
    """Whether a broker starts."""
    with ForeignBroker(folder, jars=class_path(java(), version)) as broker:
        if not broker.comes_up():
            return False
        broker.stop()
        return True


# at this level, no cluster has log dirs in its records, and 3.9 does not start with the two together
_CASES = spared(
    [(name, release) for name in SOURCES for release in BROKERS if (name, release) != ("an old level", "3.9")], 5
)


@pytest.mark.parametrize("release", spared(BROKERS, 2))
def test_no_broker_starts_with_a_record_that_no_earlier_one_allows(release, tmp_path, monkeypatch):
    folder = made("of 3.9", tmp_path, monkeypatch)
    assert starts(folder, BROKERS[release])
    with_record(folder, encode_metadata_record("FenceBroker", 0, id=55, epoch=3))
    assert kafkalog.preflight(folder / "data", release=release).verdict == "does not start"
    assert not starts(folder, BROKERS[release])


@pytest.mark.parametrize(("name", "release"), _CASES)
def test_a_broker_starts_as_foretold(name, release, tmp_path, monkeypatch):
    folder = made(name, tmp_path, monkeypatch)
    forecast = kafkalog.preflight(folder / "data", release=release)
    expected = forecast.verdict != "does not start"
    assert starts(folder, BROKERS[release]) == expected, [one.detail for one in forecast.problems]
