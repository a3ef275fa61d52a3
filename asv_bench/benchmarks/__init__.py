"""asv's benchmarks, a module an area.

Each is measured on the segments of `shapes.py`; ratios to other programs (`peers/`) alternate both sides in one run.
Less is better in every number: seconds, memory, milliseconds for 100 MB, and ratios, whose unit names both sides.
Without changing environments: `asv run --python=same --quick -b headers`, in `asv_bench/`. A benchmark that lacks
something, such as a JDK, is skipped, and says what with `--show-stderr`. asv drops PYTHONPATH: a tree that is not
installed is named in ASV_PYTHONPATH. A machine that asv does not know yet needs `asv machine --yes` first.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

# asv finds nothing next to this package by itself
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# asv takes ASV_PYTHONPATH for itself: processes that a benchmark starts would import what is installed, another tree
_spec = find_spec("kafkalog")
if _spec is not None and _spec.origin is not None and (_tree := Path(_spec.origin).parents[1]).name != "site-packages":
    os.environ["PYTHONPATH"] = str(_tree)
