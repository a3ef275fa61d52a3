"""A segment that somebody compressed as a whole is named as such, by every command, and not as damage."""

import bz2
import gzip
import io
import lzma
import shutil
import zipfile

import lz4.frame
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from conftest import GOLDEN
from effort import thinned
from loss_reports import check_nothing_is_lost

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import CorruptionWarning, UnsupportedError

LOG_DIR = GOLDEN / "log_dir"
NAME = "p-headers-0"
END = kafkalog.open(LOG_DIR / NAME).log_end_offset


def zipped(data):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("segment.log", data)
    return buffer.getvalue()


def as_parquet(data):
    buffer = io.BytesIO()
    pq.write_table(pa.table({"value": [data]}), buffer)
    return buffer.getvalue()


KINDS = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
    "lz4": lz4.frame.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "zip": zipped,
    "Parquet": as_parquet,
}


@pytest.fixture(params=[0, 294])
def base_offset(request):
    """The segment that is compressed: the first, or the last, where an incomplete batch is usual."""
    return request.param


def packed(place, kind, base_offset, n_bytes=None):
    """A log dir with a compressed segment, and another partition."""
    for name in (NAME, "p-multi-1"):
        shutil.copytree(LOG_DIR / name, place / name)
    path = place / NAME / f"{base_offset:020d}.log"
    path.write_bytes(KINDS[kind](path.read_bytes()[:n_bytes]))
    return path


@pytest.mark.parametrize("n_bytes", thinned([200, None], 2))
@pytest.mark.parametrize("kind", KINDS)
def test_reading_names_what_the_file_is(kind, n_bytes, base_offset, tmp_path):
    path = packed(tmp_path, kind, base_offset, n_bytes)
    with pytest.raises(UnsupportedError, match=f"{kind}.*unpack it") as error:
        kafkalog.read_table(tmp_path / NAME)
    assert (error.value.path, error.value.reason) == (str(path), "compressed_file")
    with pytest.warns(CorruptionWarning, match=f"compressed_file: .*{kind}.*unpack it"):
        assert kafkalog.read_table(tmp_path / NAME, on_corruption="skip").num_rows == 294
    reasons = {finding.reason for finding in kafkalog.verify(tmp_path).findings}
    assert "compressed_file" in reasons
    assert not reasons & {"bad_magic", "size_too_small", "partial_tail", "size_exceeds_file"}


@pytest.mark.filterwarnings(f"ignore::{CorruptionWarning.__module__}.{CorruptionWarning.__qualname__}")
@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_commands_name_what_the_file_is(kind, base_offset, tmp_path, capsys):
    path = packed(tmp_path / "data", kind, base_offset)
    root, out = tmp_path / "data", tmp_path / "out"
    for argv in (
        ["cat", root, "--on-corruption", "skip"],
        ["ls", root],
        ["batches", root],
        ["dump", path],
        ["salvage", root, "-o", out],
        ["recover", root, "--all", "-o", out],
        ["preflight", root, "--unclean"],
        ["convert", root, "-o", out],
        ["export", root, "-o", tmp_path / "out.csv"],
        ["space", root],
        ["index-stats", root],
        ["reindex", root, "--dry-run"],
    ):
        assert main([str(one) for one in argv]) in (1, 4), argv
        printed = capsys.readouterr()
        assert f"compressed with {kind}" in printed.err + printed.out or "compressed_file" in printed.err, argv
        assert "bad_magic" not in printed.err + printed.out, argv
        shutil.rmtree(out, ignore_errors=True)
    assert main(["cat", str(root)]) == 4


@pytest.mark.filterwarnings(f"ignore::{CorruptionWarning.__module__}.{CorruptionWarning.__qualname__}")
@pytest.mark.parametrize("has_checkpoint", thinned([False, True], 2))
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_in_a_file_that_can_be_unpacked(kind, has_checkpoint, base_offset, tmp_path, capsys):
    packed(tmp_path / "data", kind, base_offset)
    root = tmp_path / "data"
    if has_checkpoint:
        (root / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{NAME[:-2]} 0 {END}\n")
    check_nothing_is_lost(root)
    for argv in (["verify"], ["cat", "--on-corruption", "skip"], ["ls"], ["preflight", "--unclean"], ["report"]):
        main([*argv, str(root)])
        assert "lost:" not in capsys.readouterr().err, argv
