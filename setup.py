"""Builds the Cython kernels; everything else about the package is in pyproject.toml.

KAFKALOG_DEBUG=1 gives the checked build: every index bounds-checked, every C integer operation overflow-checked,
compiled with -O1 -g. It replaces the release build in place, and the other way round.
"""

import os
import shlex
import shutil
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

CHECKED = os.environ.get("KAFKALOG_DEBUG", "") not in ("", "0")
KERNELS = Path("kafkalog") / "_kernels"
# Cython's code for memoryviews, once instead of in each kernel: it takes longer to compile than the kernels do
SHARED = "kafkalog._kernels._cyutility"

extensions = [
    Extension(
        f"kafkalog._kernels.{source.stem}",
        [str(source)],
        include_dirs=[str(KERNELS)],
        depends=[str(path) for kind in ("*.pxd", "*.h") for path in sorted(KERNELS.glob(kind))],
        extra_compile_args=["-O1", "-g"] if CHECKED else ["-O3", "-g0"],
    )
    for source in sorted(KERNELS.glob("*.pyx"))
]
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


# Spark finds data sources by looking for top-level modules called pyspark_*: ours lives with what it is about,
# and is installed beside the package, not in it
DISCOVERY = "pyspark_kafkalog"
packages = find_packages(include=["kafkalog", "kafkalog.*"], exclude=[f"kafkalog.spark.{DISCOVERY}*"])

setup(
    packages=[*packages, DISCOVERY],
    package_dir={DISCOVERY: f"kafkalog/spark/{DISCOVERY}"},
    ext_modules=extensions,
    cmdclass={"build_ext": BuildKernels},
    # without both a switch between the two builds silently keeps the old one
    options={"build_ext": {"force": True, "parallel": min(4, os.cpu_count() or 1)}},
)
