"""Segments as Aiven's plugin stores them."""

import pytest
from tiered_sets import aiven_objects

from kafkalog.errors import ReadError
from kafkalog.storage.local import LOCAL
from kafkalog.storage.location import Location
from kafkalog.tiered.aiven import Manifest, open_index


def manifest_of(place, data, **options):
    objects = aiven_objects(("t", "id", 0), (0, 9), "uuid", {".log": data}, {0: 0}, chunk=100, **options)
    (place / "m").write_bytes(objects[".rsm-manifest"])
    return Manifest(place / "m", {}), objects[".log"]


@pytest.mark.parametrize("change", [-1, 1])
def test_a_chunk_has_the_size_that_the_manifest_says(tmp_path, change):
    data = bytes(range(250))
    manifest, stored = manifest_of(tmp_path, data)
    chunks = [stored[at : at + size] for at, size in zip(manifest.starts, manifest.sizes, strict=False)]
    assert b"".join(manifest.chunk(number, chunk) for number, chunk in enumerate(chunks)) == data
    for number, chunk in enumerate(chunks):
        wrong = chunk[:change] if change < 0 else chunk + b"\0"
        with pytest.raises(ValueError, match=f"{len(wrong)} bytes instead of {len(chunk)}"):
            manifest.chunk(number, wrong)


@pytest.mark.parametrize("n_missing", [0, 1, 40])
def test_an_index_that_ends_past_its_object_is_an_error_with_both_sizes(tmp_path, n_missing):
    files = {".log": b"x" * 150, ".index": b"i" * 16, ".timeindex": b"t" * 24}
    objects = aiven_objects(("t", "id", 0), (0, 9), "uuid", files, {0: 0}, chunk=100)
    (tmp_path / "m").write_bytes(objects[".rsm-manifest"])
    path = tmp_path / "0.indexes"
    path.write_bytes(objects[".indexes"][: 40 - n_missing])
    manifest, place = Manifest(tmp_path / "m", {}), Location(LOCAL, str(path))
    for suffix, end in ((".index", 16), (".timeindex", 40)):
        if end <= 40 - n_missing:
            with open_index(manifest, place, suffix) as source:
                assert source.window(0, source.size).tobytes() == files[suffix]
            continue
        with pytest.raises(ReadError, match=f"has {40 - n_missing} bytes, but .* ends at {end} in the manifest"):
            open_index(manifest, place, suffix)
