"""Read and write Apache Kafka's on-disk log (segment files and their indexes) in columns, without a broker.

>>> import kafkalog
>>> table = kafkalog.read_table("tests/golden/log_dir", topics="p-multi")
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from importlib.util import find_spec
from typing import Any

if find_spec("kafkalog._kernels.wire") is None:
    # Python's own error would only name the missing module, not why it is missing
    raise ImportError(
        f"no kernels compiled for Python {sys.version_info[0]}.{sys.version_info[1]} in {__path__[0]}/_kernels, so this"
        f" is a source folder: run `pip install -e .` in {os.path.dirname(__path__[0])}, or start Python in another"
        " directory to import the kafkalog that is installed",
        name=__name__,
    )

__version__ = "0.2.0"


def _read_names() -> dict[str, str]:
    """Read the public names, and the module of each, from the stub that type checkers read."""
    with open(os.path.join(__path__[0], "__init__.pyi"), encoding="utf-8") as stub:
        words = [line.split() for line in stub if line.startswith("from ")]
    return {name: module for _, module, _, _, _, name in words}


# Importing Arrow and NumPy takes longer than a small job takes to run, so names are imported on first use. So are the
# errors: dataclasses take as long to import as Python to start
_NAMES = _read_names()
_PUBLIC_MODULES = ("codec", "errors", "format", "functions", "spark", "types")

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = _leading(getattr(importlib.import_module(_NAMES[name]), name))
        globals()[name] = value
        return value
    if name in _PUBLIC_MODULES:
        return importlib.import_module(f"kafkalog.{name}")
    if name[:1].isupper():
        # until 0.3, these are found here too
        types = importlib.import_module("kafkalog.types")
        if name in types.__all__:
            return getattr(types, name)
    message = f"module 'kafkalog' has no attribute {name!r}"
    if not name.startswith("_"):
        from kafkalog.words import unknown_function

        meant = unknown_function(name, __all__)
        message += f"; {meant}" if meant else ""
    raise AttributeError(message)


def _leading(value: Any) -> Any:
    """Return a function whose error about an unknown keyword argument names the one that is meant."""
    if type(value) is not type(_leading):
        return value

    @functools.wraps(value)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return value(*args, **options)
        except TypeError as error:
            _, _, unknown = str(error).partition("() got an unexpected keyword argument ")
            if unknown.strip("'") not in options:
                raise
        from kafkalog.words import documented_keywords, unknown_keyword

        name = unknown.strip("'")
        raise TypeError(f"{value.__name__} has no option {name!r}; {unknown_keyword(name, documented_keywords(value))}")

    # pickles name the module in which a function is found
    call.__module__ = __name__
    return call


def __dir__() -> list[str]:
    """Return the public names, without the internal modules that are imported."""
    return sorted({*__all__, *_PUBLIC_MODULES, "__version__", "__doc__", "__file__", "__name__", "__path__"})
