"""Checksums compile with every compiler at hand, and 64-bit ARM's instructions agree with the portable code."""

import shutil
import subprocess
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "kafkalog" / "_kernels"
ARM = "qemu-aarch64-static"
BUILDS = {
    "cc": (["cc", "-O2"], []),
    "cc without optimization": (["cc", "-O0"], []),
    "clang": (["clang", "-O2"], []),
    "clang without optimization": (["clang", "-O0"], []),
    "gcc for ARM": (["aarch64-linux-gnu-gcc", "-O2", "-static"], [ARM]),
    "clang for ARM": (["clang", "--target=aarch64-linux-gnu", "-O2", "-static"], [ARM]),
}


@pytest.mark.skipif(not (KERNELS / "crc_impl.h").is_file(), reason="the sources of the kernels are not here")
@pytest.mark.parametrize("name", BUILDS)
def test_checksums_of_instructions_are_those_of_the_portable_code(tmp_path, name):
    compiler, emulator = BUILDS[name]
    for program in (compiler[0], *emulator, *(["aarch64-linux-gnu-gcc"] if emulator else [])):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    flags = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", f"-I{KERNELS}"]
    source = Path(__file__).with_name("checksums.c")
    subprocess.run([*compiler, *flags, source, "-o", tmp_path / "checksums"], check=True)
    done = subprocess.run([*emulator, tmp_path / "checksums"], capture_output=True, text=True, check=False)
    assert done.stdout.endswith(", 0 wrong\n")
    if emulator:
        assert done.stdout.startswith("level 1, ")
