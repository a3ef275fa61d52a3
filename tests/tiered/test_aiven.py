"""Segments as Aiven's plugin stores them."""

import pytest
from tiered_sets import aiven_objects

from kafkalog.tiered.aiven import Manifest


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
