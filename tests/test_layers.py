"""The package reads downwards: a module imports only from a lower rank, and each library has its place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "kafkalog"

# a package counts as one unit: its modules may import one another
LAYERS = (
    {"_kernels", "config_names", "distributions", "format", "functions", "statistics"},
    {"errors", "index_measures", "memory"},
    {"descriptors", "index_statistics", "source", "lock"},
    {"compression", "config", "index_plot", "file_steps", "batches", "checkpoints", "columns", "index_spacing"},
    {"checked_walk", "publish", "compressor", "partitioner", "spans", "transactions", "index_checks", "epochs"},
    {"commits", "places", "transaction_checks"},
    {"legacy", "selection", "indexes"},
    {"records", "compiled", "encoder", "legacy_encoder", "rolling"},
    {"arrow_buffers"},
    {"arrow", "arrow_values"},
    {
        "arrow_streams",
        "csv_lines",
        "predicates",
        "producers",
        "record_accumulator",
        "segment_writer",
        "text_numbers",
        "timestamps",
        "writer_options",
    },
    {"arrow_input", "expressions", "isolation", "partition_files", "segment", "text_formats"},
    {"batch_builder", "list_offsets", "outcomes", "sinks", "streams", "text_inputs"},
    {"load_inputs", "segment_chain", "segment_listing"},
    {"partition"},
    {"input_files", "log_dir", "lookup", "producer_list", "slices"},
    {"opening"},
    {"pipeline"},
    {"scanner"},
    {"api"},
    {"exporter", "batch_scan", "dumper", "planning", "repair", "tailing"},
    {"existing"},
    {"destination"},
    {"writer"},
    {"adoption", "installer", "converter", "retention", "routing"},
    {"load_target"},
    {"loader"},
    {"__init__"},
    {"spark"},
    {"cli"},
    {"__main__"},
)
RANKS = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer}
KERNEL_RANKS = {
    "wire": 0,
    "memory": 0,
    "crc": 1,
    "batches": 2,
    "records": 2,
    "legacy": 2,
    "predicates": 2,
    "indexes": 2,
    "rolling": 2,
    "dump": 2,
    "partitioner": 0,
    "columns": 0,
    "encode": 2,
}

# what a kernel may have of Python all the same: memory is handed out as objects
OF_PYTHON = {("memory", "cython"), ("memory", "cpython.buffer")}

# neighbours in a rank of which one is below the other all the same: (importer, imported)
WITHIN_A_RANK: set[tuple[str, str]] = set()

ARROW_FROM = RANKS["arrow_buffers"]
# objects below that which hand themselves over as Arrow, importing it when asked
LAZY_ARROW = {
    ("batches", "BatchTable.to_arrow"),
    ("index_statistics", "IndexStatistics.to_arrow"),
    ("indexes", "_Index.to_arrow"),
}

# libraries that only one unit may touch, and libraries that nobody may import with a module
HOMES = {"tqdm": "cli", "matplotlib": "index_plot", "numba": "compiled", "pyspark": "spark"}
NEVER_AT_MODULE_LEVEL = {"duckdb", "matplotlib", "numba", "pandas", "polars", "tqdm"}


class Import(NamedTuple):
    line: int
    target: str
    """Dotted name, such as ``kafkalog.errors`` or ``pyarrow.compute``."""
    where: str
    """Qualified name of the function around it; empty at module level."""


class ImportCollector(ast.NodeVisitor):
    """Every import of a module, in functions too, save those for type checkers alone."""

    def __init__(self) -> None:
        self.imports: list[Import] = []
        self._names: list[str] = []
        self._functions = 0

    def _add(self, node: ast.stmt | ast.expr, target: str) -> None:
        self.imports.append(Import(node.lineno, target, ".".join(self._names) if self._functions else ""))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            self._add(node, "." * node.level + (node.module or ""))
        for alias in node.names:
            self._add(node, f"{node.module}.{alias.name}")

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func) in ("__import__", "import_module", "importlib.import_module"):
            self._add(node, "importlib.import_module()")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) not in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            self.generic_visit(node)
        for statement in node.orelse if ast.unparse(node.test).endswith("TYPE_CHECKING") else ():
            self.visit(statement)

    def _enter(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, functions: int) -> None:
        self._names.append(node.name)
        self._functions += functions
        self.generic_visit(node)
        self._functions -= functions
        self._names.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node, 0)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node, 1)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._enter(node, 1)


def imports_of(source: str) -> list[Import]:
    collector = ImportCollector()
    collector.visit(ast.parse(source))
    return collector.imports


def unit_of(target: str) -> str:
    """The part of kafkalog that a dotted name belongs to; what is no module of it is its front door's."""
    _, _, rest = target.partition(".")
    name = rest.partition(".")[0]
    return name if name in RANKS else "__init__"


def violations(unit: str, source: str) -> list[str]:
    """What a module of a unit does against the rules; empty when nothing."""
    if unit not in RANKS:
        return [f"{unit} has no rank: give it one in RANKS"]
    return [f"{unit}:{item.line}: {problem}" for item in imports_of(source) for problem in _judge(unit, item)]


def _judge(unit: str, item: Import) -> Iterator[str]:
    top = item.target.partition(".")[0]
    if not top:
        yield f"relative import of {item.target}"
    elif top == "importlib" and item.target.endswith("()"):
        if unit not in ("__init__", "cli"):  # both import modules out of lists of their own
            yield "imports by name, which this test cannot follow"
    elif top == "kafkalog":
        other = unit_of(item.target)
        if other != unit and RANKS[other] >= RANKS[unit] and (unit, other) not in WITHIN_A_RANK:
            yield f"imports {item.target} of rank {RANKS[other]}, its own is {RANKS[unit]}"
    elif top == "pyarrow":
        if RANKS[unit] < ARROW_FROM and (unit, item.where) not in LAZY_ARROW:
            yield f"imports pyarrow below rank {ARROW_FROM}"
    else:
        if HOMES.get(top, unit) != unit:
            yield f"imports {top}, which only {HOMES[top]} may"
        if top in NEVER_AT_MODULE_LEVEL and not item.where:
            yield f"imports {top} at module level"


def modules() -> list[tuple[str, Path]]:
    """Every Python file of the package with the unit that it belongs to."""
    return [(path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path) for path in sorted(PACKAGE.rglob("*.py"))]


CIMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+(c?import)\b|(c?import)[ \t]+([\w.]+))", re.MULTILINE)


def kernel_violations(kernel: str, source: str) -> list[str]:
    """The same for Cython: C's library and kernels below only, and nothing of Python's."""
    if kernel not in KERNEL_RANKS:
        return [f"{kernel} has no rank: give it one in KERNEL_RANKS"]
    found = []
    for match in CIMPORT.finditer(source):
        target, word = match[1] or match[4], match[2] or match[3]
        package, _, other = target.rpartition(".")
        if word == "import":
            found.append(f"{kernel}: imports {target} from Python")
        elif package == "kafkalog._kernels":
            if KERNEL_RANKS.get(other, 99) >= KERNEL_RANKS[kernel]:
                found.append(f"{kernel}: cimports {target}, which is not below it")
        elif target.partition(".")[0] != "libc" and (kernel, target) not in OF_PYTHON:
            found.append(f"{kernel}: cimports {target}")
    return found


def kernels() -> list[Path]:
    return sorted([*PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxd")])


@pytest.mark.parametrize(("unit", "path"), modules(), ids=lambda value: getattr(value, "stem", None))
def test_a_module_imports_from_below_only(unit: str, path: Path) -> None:
    assert violations(unit, path.read_text()) == []


@pytest.mark.parametrize("path", kernels(), ids=lambda path: path.name)
def test_a_kernel_cimports_from_below_only(path: Path) -> None:
    assert path.parent == PACKAGE / "_kernels"
    assert kernel_violations(path.stem, path.read_text()) == []


def test_every_rank_and_every_exception_is_in_use() -> None:
    units = dict.fromkeys(unit for unit, _ in modules())
    assert sorted(RANKS) == sorted(units)
    assert sorted(KERNEL_RANKS) == sorted(path.stem for path in kernels() if path.suffix == ".pyx")
    within, lazy = set(), set()
    for unit, path in modules():
        for item in imports_of(path.read_text()):
            if item.target.startswith("kafkalog."):
                within.add((unit, unit_of(item.target)))
            if item.target.partition(".")[0] == "pyarrow":
                lazy.add((unit, item.where))
    assert within >= WITHIN_A_RANK
    assert lazy >= LAZY_ARROW


def test_the_front_door_names_nothing_above_itself() -> None:
    import kafkalog

    assert all(RANKS[module.partition(".")[0]] <= RANKS["__init__"] for module in kafkalog._LAZY.values())


@pytest.mark.parametrize(
    ("unit", "source", "problem"),
    [
        ("stray", "", "has no rank"),
        ("batches", "from kafkalog.records import decode", "imports kafkalog.records.decode of rank {records}"),
        ("batches", "import kafkalog.segment", "of rank {segment}"),
        ("batches", "from kafkalog import segment", "of rank {segment}"),
        ("batches", "from kafkalog import indexes", "of rank {indexes}"),
        ("batches", "from kafkalog import __version__", "of rank {__init__}"),
        ("batches", "def lookup():\n    from kafkalog import api", "of rank {api}"),
        ("batches", "try:\n    import kafkalog.scanner\nexcept ImportError:\n    pass", "of rank {scanner}"),
        ("batches", "if not TYPE_CHECKING:\n    import kafkalog.scanner", "of rank {scanner}"),
        ("batches", "if TYPE_CHECKING:\n    pass\nelse:\n    import kafkalog.scanner", "of rank {scanner}"),
        ("errors", "from kafkalog.source import Bytes", "of rank {source}"),
        ("_kernels", "from kafkalog import format", "of rank {format}"),
        ("cli", "from kafkalog.__main__ import main", "of rank {__main__}"),
        ("batches", "from .records import decode", "relative import"),
        ("batches", "import importlib\nimportlib.import_module('kafkalog.api')", "by name"),
        ("batches", "import pyarrow as pa", "pyarrow below rank"),
        ("batches", "class BatchTable:\n    import pyarrow.compute", "pyarrow below rank"),
        ("batches", "class BatchTable:\n    def codecs(self):\n        import pyarrow", "pyarrow below rank"),
        ("segment", "def progress():\n    from tqdm import tqdm", "only cli may"),
        ("cli", "from tqdm import tqdm", "at module level"),
        ("scanner", "def where():\n    import numba", "only compiled may"),
        ("loader", "def distribute():\n    import pyspark.sql", "only spark may"),
        ("scanner", "import pandas as pd", "at module level"),
    ],
)
def test_a_module_against_the_rules_is_caught(unit: str, source: str, problem: str) -> None:
    assert any(problem.format(**RANKS) in found for found in violations(unit, source))


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        ("batches", "from kafkalog import format as kf\nfrom kafkalog._kernels.wire import STATUS"),
        ("batches", "if TYPE_CHECKING:\n    import pyarrow as pa\n    from kafkalog.api import scan"),
        ("batches", "class BatchTable:\n    def to_arrow(self):\n        import pyarrow as pa"),
        ("cli", "from kafkalog import __version__\nfrom kafkalog.cli import ls\ndef bar():\n    import tqdm"),
        ("scanner", "import pyarrow as pa\ndef to_pandas():\n    import pandas"),
    ],
)
def test_a_module_within_the_rules_passes(unit: str, source: str) -> None:
    assert violations(unit, source) == []


@pytest.mark.parametrize(
    ("kernel", "source", "problem"),
    [
        ("stray", "", "has no rank"),
        ("wire", "from kafkalog._kernels.crc cimport crc32", "not below"),
        ("records", "from kafkalog._kernels.legacy cimport (\n    walk,\n)", "not below"),
        ("records", "from kafkalog.errors import Reason", "from Python"),
        ("records", "import numpy as np", "from Python"),
        ("records", "cimport numpy as np", "cimports numpy"),
        ("records", "from cpython.bytes cimport PyBytes_AsString", "cimports cpython"),
    ],
)
def test_a_kernel_against_the_rules_is_caught(kernel: str, source: str, problem: str) -> None:
    assert any(problem in found for found in kernel_violations(kernel, source))
