"""Builds the Cython kernels; everything else about the package is in pyproject.toml.

KAFKALOG_DEBUG=1 gives the checked build: every index bounds-checked, every C integer operation overflow-checked,
compiled with -O1 -g. It replaces the release build in place, and the other way round.
KAFKALOG_SANITIZE=1 compiles with gcc's or clang's address and undefined-behaviour sanitizers, for
`python tests/kernels/examine.py sanitizers`. KAFKALOG_KERNELS=encode,fill compiles these kernels alone.
"""

import base64
import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent

CHECKED = os.environ.get("KAFKALOG_DEBUG", "") not in ("", "0")
SANITIZED = os.environ.get("KAFKALOG_SANITIZE", "") not in ("", "0")
ONLY = os.environ.get("KAFKALOG_KERNELS", "").replace(",", " ").split()
KERNELS = Path("kafkalog") / "_kernels"
# Cython's code for memoryviews, once instead of in each kernel: it takes longer to compile than the kernels do
SHARED = "kafkalog._kernels._cyutility"

if sys.byteorder != "little" or sys.maxsize < 2**32:
    kind = "32-bit Python" if sys.maxsize < 2**32 else f"{sys.byteorder}-endian machine"
    raise SystemExit(
        f"kafkalog needs a 64-bit Python on a little-endian machine (x86-64, arm64), and this is a {kind}."
    )

SANITIZERS = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"] if SANITIZED else []
FLAGS = ["-O1", "-g", *SANITIZERS] if CHECKED or SANITIZED else ["-O3", "-g0"]

extensions = [
    Extension(
        f"kafkalog._kernels.{source.stem}",
        [str(source)],
        include_dirs=[str(KERNELS)],
        depends=[str(path) for kind in ("*.pxd", "*.h") for path in sorted(KERNELS.glob(kind))],
        extra_compile_args=FLAGS,
        extra_link_args=SANITIZERS,
    )
    for source in sorted(KERNELS.glob("*.pyx"))
    if not ONLY or source.stem in ONLY
]
if not ONLY:
    extensions.append(Extension(SHARED, [str(KERNELS / "_cyutility.c")], extra_compile_args=["-O2", "-g0"]))

directives = {
    "language_level": 3,
    "binding": True,
    "autotestdict": False,
    "embedsignature": False,
    "freethreading_compatible": True,
    "auto_pickle": False,
    "boundscheck": CHECKED,
    "wraparound": False,
    "initializedcheck": CHECKED,
    "overflowcheck": CHECKED,
    "cdivision": not CHECKED,
}


class BuildKernels(build_ext):
    """Translates the kernels where they are compiled: an installation runs this file twice more, for metadata."""

    def run(self) -> None:
        """Look for what compiles C, translate, compile."""
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
        if os.name == "posix" and shutil.which(compiler) is None:
            raise SystemExit(
                f"kafkalog needs a C compiler: there is no {compiler!r} on the path. "
                "Install one (Debian, Ubuntu: apt install gcc python3-dev), or name yours in CC."
            )
        if os.name == "posix" and not (header := Path(sysconfig.get_path("include")) / "Python.h").exists():
            raise SystemExit(
                f"kafkalog needs Python's C headers: there is no {header}. "
                "Install them (Debian, Ubuntu: apt install python3-dev)."
            )
        from Cython.Build import cythonize

        translated = cythonize(
            self.extensions,
            compiler_directives=directives,
            force=True,
            nthreads=os.cpu_count() or 1,
            shared_utility_qualified_name=SHARED,
        )
        sources = {extension.name: extension.sources for extension in translated}
        for extension in self.extensions:
            extension.sources = sources[extension.name]
        super().run()


# Spark finds data sources by the names of top-level modules, pyspark_*: this one is installed next to the package
DISCOVERY = "pyspark_kafkalog"
DISCOVERY_SOURCE = f"kafkalog/spark/{DISCOVERY}"
packages = find_packages(include=["kafkalog", "kafkalog.*"], exclude=[f"kafkalog.spark.{DISCOVERY}*"])


class EditableWheel(editable_wheel):
    """An editable install is the clone on the path, and a copy of the module that Spark looks for.

    Because of `package_dir`, setuptools would install an import hook instead. Spark, mypy and pyright look into
    folders and ask no hook, and a hook comes after a folder named kafkalog in the current directory.
    """

    def run(self) -> None:
        """Build the wheel of setuptools, and replace the hook in it."""
        super().run()
        (wheel,) = Path(self.dist_dir).glob("*.editable-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            kept = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" in name}
        record = next(name for name in kept if name.endswith("/RECORD"))
        del kept[record]
        module = f"{DISCOVERY}/__init__.py"
        files = {
            "__editable__.kafkalog.pth": f"{ROOT}\n".encode(),
            module: (ROOT / "kafkalog" / "spark" / module).read_bytes(),
            **kept,
        }
        rows = []
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                rows.append(f"{name},sha256={digest},{len(data)}\n")
            archive.writestr(record, "".join([*rows, f"{record},,\n"]))


setup(
    packages=[*packages, DISCOVERY],
    package_dir={DISCOVERY: DISCOVERY_SOURCE},
    ext_modules=extensions,
    cmdclass={"build_ext": BuildKernels, "editable_wheel": EditableWheel},
    # without both a switch between the two builds silently keeps the old one
    options={"build_ext": {"force": True, "parallel": min(4, os.cpu_count() or 1)}},
)
