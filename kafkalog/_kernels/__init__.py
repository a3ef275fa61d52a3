"""Compiled kernels: bytes and numbers in, numbers and a status out; no files, no Python objects in a loop."""

import os
import sys
from importlib.util import find_spec

if find_spec(f"{__name__}.wire") is None:
    # Python's own message would only say that a module of that name is missing
    _folder = os.path.dirname(os.path.abspath(__file__))
    _version = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(
        f"kafkalog's kernels are not compiled in {_folder} (for Python {_version}): this is a source folder. Run"
        f" `pip install -e .` in {os.path.dirname(os.path.dirname(_folder))}, or start Python in another directory to"
        " import a kafkalog that is installed.",
        name=__name__,
    )
