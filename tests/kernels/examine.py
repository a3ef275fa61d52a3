"""Examines the kernels in ways that take minutes to hours; docs/testing.md explains each.

    python tests/kernels/examine.py mutants             # each weakened check of a kernel fails the test that is for it
    python tests/kernels/examine.py sanitizers          # the kernels' tests under gcc's sanitizers
    python tests/kernels/examine.py fuzz --seconds 600  # clang's libFuzzer on the C code, compared with slow code
    python tests/kernels/examine.py compilers           # each kernel compiles with these compilers, also for ARM

All work in copies: the tree stays as it is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "kafkalog" / "_kernels"


class Mutant(NamedTuple):
    """A check that is taken out of a kernel, and the test that fails without it."""

    file: str
    kernels: str
    """Compiled again."""
    check: str
    weakened: str
    test: str


MUTANTS = {
    "an LZ4 block needs room for its compressed size only": Mutant(
        "payloads.h", "fill", "if (block_size > room - written)", "if (n > room - written)",
        "tests/kernels/test_bounds.py::test_an_lz4_block_needs_room_for_what_it_becomes",
    ),
    "an LZ4 match reaches the last five bytes": Mutant(
        "payloads.h", "fill", "n > stop - to - 5", "n > stop - to",
        "tests/kernels/test_bounds.py::test_no_lz4_match_reaches_into_the_last_five_bytes",
    ),
    "headers need no room": Mutant(
        "batch_walk.h", "record_windows fill",
        "\n        && size / 2 <= columns->header_capacity - columns->n_headers;", ";",
        "tests/kernels/test_bounds.py::test_many_headers_after_batches_without_any_find_room",
    ),
    "a header value has no bound": Mutant(
        "batch_walk.h", "record_windows fill",
        "p = kl_int(p + size, end, &size);\n        if (!p || size > end - p) return 0;",
        "p = kl_int(p + size, end, &size);\n        if (!p) return 0;",
        "tests/kernels/test_bounds.py::test_a_header_value_ends_with_its_record",
    ),
    "any gap of the pool is large enough": Mutant(
        "buffer_pool.pyx", "buffer_pool",
        "region.begin[i] - begin < size:", "region.begin[i] - begin < 1:",
        "tests/kernels/test_bounds.py::test_blocks_do_not_overlap",
    ),
    "an Avro string has no bound": Mutant(
        "avro.pyx", "avro", "if n[0] < 0 or n[0] > remaining(cursor):", "if n[0] < 0:",
        "tests/kernels/test_bounds.py::test_an_avro_string_ends_with_its_value",
    ),
    "UTF-8 has characters above U+10FFFF": Mutant(
        "utf8_impl.h", "encode", "high = 0x8f;", "high = 0xbf;",
        "tests/kernels/test_bounds.py::test_the_last_character_is_u_10ffff",
    ),
    "a Protobuf tag has more than 32 bits": Mutant(
        "protobuf_wire.pxd", "protobuf", "(tag >> 32) != 0 or ", "",
        "tests/values/formats/protobuf/test_values.py::test_bytes_that_mean_harm_are_null_with_a_reason",
    ),
    "messages in a message may be compressed by zstd (fast path)": Mutant(
        "message_walk.h", "record_windows fill", "p[KL_ATTRIBUTES_AT] & 7", "p[KL_ATTRIBUTES_AT] & 3",
        "tests/kernels/test_bounds.py::test_messages_in_a_message_are_not_compressed",
    ),
    "messages in a message may be compressed by zstd (exact path)": Mutant(
        "legacy.pyx", "legacy", "origin[at + 17] & CODEC_MASK", "origin[at + 17] & 3",
        "tests/kernels/test_bounds.py::test_messages_in_a_message_are_not_compressed",
    ),
    "a checksum is shifted by 16 bits of a size": Mutant(
        "crc_shift.h", "resync", "for (int k = 0; n; k++, n >>= 8)", "for (int k = 0; k < 2 && n; k++, n >>= 8)",
        "tests/kernels/test_portable_code.py",
    ),
}  # fmt: skip


def copy_of_the_tree(folder: Path) -> Path:
    tree = folder / "tree"
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "results", "env", "html", "__pycache__")
    shutil.copytree(ROOT, tree, ignore=ignored, symlinks=True)
    return tree


def build(tree: Path, **settings: str) -> None:
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=tree, env=os.environ | settings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-4000:])


def pytest(tree: Path, *arguments: str, **settings: str) -> int:
    """Run tests on a copy; it stands before what is installed, as the current directory."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=tree, env=os.environ | settings, check=False).returncode


def mutants(options: argparse.Namespace) -> int:
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_the_tree(Path(folder))
        for name, mutant in MUTANTS.items():
            path = tree / "kafkalog" / "_kernels" / mutant.file
            original = path.read_text()
            if original.count(mutant.check) != 1:
                raise SystemExit(f"{mutant.file} has {mutant.check!r} {original.count(mutant.check)} times")
            if pytest(tree, mutant.test):
                raise SystemExit(f"{mutant.test} fails without a mutant, too")
            path.write_text(original.replace(mutant.check, mutant.weakened))
            build(tree, KAFKALOG_KERNELS=mutant.kernels)
            status = pytest(tree, mutant.test)
            path.write_text(original)
            for built in SOURCES.glob("*.so"):
                shutil.copy2(built, path.parent)
            print(f"{'SURVIVES' if status == 0 else 'killed'}: {name}", flush=True)
            survivors += [name] * (status == 0)
    print(f"{len(MUTANTS)} mutants, {len(survivors)} survive")
    return bool(survivors)


def sanitizers(options: argparse.Namespace) -> int:
    libraries = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so", "libstdc++.so")
    ]
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_the_tree(Path(folder))
        build(tree, KAFKALOG_SANITIZE="1", CC="gcc")
        settings = {
            "LD_PRELOAD": " ".join(libraries),
            # Python keeps memory until it ends; guard pages are ours; numbers of blocks are sizes of buffers
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_segv=0",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            "KAFKALOG_FUZZ_N": str(options.inputs),
            "PYTHONMALLOC": "malloc",
        }
        # pycryptodome loads its libraries in a way that sanitizers refuse, and freed memory stays with the sanitizer
        without = [f"--ignore=tests/{name}" for name in ("tiered", "cli/test_unreadable.py", "operations")]
        without += ["--deselect=tests/kernels/test_bounds.py::test_decoded_columns_do_not_stay_when_they_are_freed"]
        return pytest(tree, "-m", "kernels and not soak", *without, *options.tests, **settings)


def fuzz(options: argparse.Namespace) -> int:
    corpus = Path(options.corpus or tempfile.mkdtemp(prefix="kernels-"))
    corpus.mkdir(exist_ok=True, parents=True)
    _write_seeds(corpus)
    program = corpus.with_name(corpus.name + "-program")
    flags = ["-g", "-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined", f"-I{SOURCES}"]
    subprocess.run(["clang", *flags, str(Path(__file__).with_name("fuzz.c")), "-o", str(program)], check=True)
    print(f"inputs are kept in {corpus}; an input that fails is named crash-... in the current directory", flush=True)
    limits = [f"-max_total_time={options.seconds}", "-max_len=4096", "-print_final_stats=1", "-verbosity=0"]
    return subprocess.run([str(program), *limits, str(corpus)], check=False).returncode


def _write_seeds(corpus: Path) -> None:
    """Payloads and messages of the golden files, as inputs of each target."""
    import kafkalog

    for path in sorted((ROOT / "tests" / "golden" / "log_dir").glob("*/*.log")):
        data = path.read_bytes()
        table = kafkalog.open_segment(path).batches
        places = zip(table.position, table.next_position, table.magic, table.codec, table.records_count, strict=True)
        for number, (start, stop, magic, codec, count) in enumerate([*places][:20]):
            if stop - start > 4000:
                continue
            payload = data[start + 61 : stop] if magic == 2 else data[start:stop]
            target = 2 if codec else 0 if magic == 2 else 1
            choices = (
                bytes([0x20 * (number % 2), 140])
                + max(int(count), 0).to_bytes(2, "big")
                + b"\xff\xff\0"
                + bytes([number % 3])
            )
            (corpus / f"{path.parent.name}-{number}").write_bytes(bytes([target]) + choices + payload)


def compilers(options: argparse.Namespace) -> int:
    python = sysconfig.get_path("include")
    failures = 0
    arm = ["aarch64-linux-gnu-gcc", "-DSIZEOF_LONG=8"]
    for compiler in (["gcc", "-O0"], ["clang", "-O2"], ["clang", "-O0"], [*arm, "-O2"], [*arm, "-O0"]):
        if options.names and compiler[0] not in options.names:
            continue
        if shutil.which(compiler[0]) is None:
            print(f"{compiler[0]} is not installed")
            continue
        for source in sorted(SOURCES.glob("*.pyx")):
            translated = source.with_suffix(".c")
            if not translated.exists():
                raise SystemExit("build the kernels first: python setup.py build_ext --inplace")
            command = [*compiler, "-w", "-fPIC", "-c", f"-I{python}", f"-I{SOURCES}", str(translated), "-o", os.devnull]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            failures += done.returncode != 0
            if done.returncode:
                print(f"{' '.join(compiler)}: {source.name}\n{done.stderr[:1000]}")
        print(f"{' '.join(compiler)}: done", flush=True)
    return bool(failures)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    commands.add_parser("mutants").set_defaults(run=mutants)
    with_compilers = commands.add_parser("compilers")
    with_compilers.add_argument("names", nargs="*", help="such as gcc clang; default: all")
    with_compilers.set_defaults(run=compilers)
    under = commands.add_parser("sanitizers")
    under.add_argument("--inputs", type=int, default=2000, help="of each fuzzer (%(default)s)")
    under.add_argument("tests", nargs="*", help="default: all tests of kernels")
    under.set_defaults(run=sanitizers)
    fuzzer = commands.add_parser("fuzz")
    fuzzer.add_argument("--seconds", type=int, default=60, help="default: %(default)s")
    fuzzer.add_argument("--corpus", help="a folder whose inputs are continued")
    fuzzer.set_defaults(run=fuzz)
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
