"""Sphinx's settings. `sphinx-build -W docs docs/_build` makes the pages, and with `-b man` a man page a command.

`_build` and `generated` are not kept.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ["COLUMNS"] = "100"  # argparse folds usage lines at the width of a terminal

from reference_pages import commands  # noqa: E402

import kafkalog  # noqa: E402
from kafkalog.cli.app import build_parser  # noqa: E402

project = "kafkalog"
author = "the kafkalog maintainers"
version = release = kafkalog.__version__
copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
extensions += ["reference_pages", "llms"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
default_role = "literal"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autosummary_generate = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]

html_theme = "furo"
html_title = f"kafkalog {version}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]

man_pages = [
    ("generated/cli/index", "kafkalog", "reads Kafka's on-disk log without a broker", author, 1),
    *(
        (f"generated/cli/{name.replace(' ', '-')}", f"kafkalog-{name.replace(' ', '-')}", summary, author, 1)
        for name, summary, _ in commands(build_parser())
    ),
]
