"""The package reads downwards: a package imports only those before it, and libraries have homes.

The order is one of packages, so a new module needs no entry here. Everything is computed from the source: imports at
module level, in functions and under `TYPE_CHECKING` alike.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "kafkalog"

# each imports from those before it; names in one tuple stand side by side and do not import one another
ORDER = (
    ("_kernels",),
    ("text",),
    ("format", "column_names", "functions", "result_kinds"),
    ("words",),
    ("argument_types",),
    ("calls",),
    ("html",),
    ("errors",),
    ("parsing", "read_methods"),
    ("storage", "protocol"),
    ("records",),
    ("state", "interchange"),
    ("codec",),
    ("indexes",),
    ("log",),
    ("survey",),
    ("system_topics",),
    ("tiered",),
    ("values",),
    ("scanning", "writing"),
    ("operations",),
    ("repair",),
    ("booting",),
    ("reporting",),
    ("undeleting", "comparing"),
    ("types",),
    ("__init__",),
    ("spark",),
    ("cli",),
    ("__main__",),
)
RANKS = {name: rank for rank, names in enumerate(ORDER) for name in names}

# packages from which Arrow is in use, and objects below that hand themselves over as Arrow, importing it when asked
ARROW_IN = {
    "interchange",
    "values",
    "system_topics",
    "scanning",
    "writing",
    "operations",
    "repair",
    "booting",
    "reporting",
    "undeleting",
    "comparing",
    "types",
    "__init__",
    "spark",
    "cli",
}
LAZY_ARROW = {
    ("html", "Result.to_arrow"),
    ("result_kinds", "arrow_schema"),
    ("result_kinds", "arrow_types"),
    ("records.batch_table", "BatchTable.to_arrow"),
    ("state.entries", "WrittenWhole.to_arrow"),
}

# libraries that only one package or module may touch, and libraries that no module may import when it is imported
HOMES = {
    "Crypto": "tiered.aiven",
    "boto3": "storage.stores",
    "fsspec": "storage.stores",
    "matplotlib": "indexes.plot",
    "numba": "scanning.user_functions",
    "obstore": "storage.stores",
    "pyspark": "spark",
    "tqdm": "cli",
}
NEVER_AT_MODULE_LEVEL = {"boto3", "duckdb", "fsspec", "matplotlib", "numba", "obstore", "pandas", "polars", "tqdm"}

# packages whose `__init__` does more than say what is in it
WITH_CODE_IN_INIT = {"", "spark", "spark.pyspark_kafkalog", "cli"}
IMPORT_BY_NAME = {"__init__", "cli.app", "cli.json_schemas"}
"""Modules that import others out of a list of their own."""

READ_METHODS = "read_methods"
"""The one module that imports `kafkalog` itself: for types, and when a method is called."""

# what a kernel may have of Python all the same: memory is handed out as objects
OF_PYTHON = {
    *(("buffer_pool", "cython"), ("buffer_pool", "cpython.buffer")),
    *(("record_windows", "cython"), ("record_windows", "cpython.ref")),  # record batches keep their memory
}


class Import(NamedTuple):
    line: int
    target: str
    """Dotted name, such as ``kafkalog.errors`` or ``pyarrow.compute``."""
    where: str
    """Qualified name of the function around it; empty at module level."""
    for_types: bool
    """Under ``if TYPE_CHECKING``."""


class ImportCollector(ast.NodeVisitor):
    """Every import of a module: in functions, in ``try``, and those for type checkers alone."""

    def __init__(self):
        self.imports = []
        self._names = []
        self._functions = 0
        self._for_types = False

    def _add(self, node, target):
        where = ".".join(self._names) if self._functions else ""
        self.imports.append(Import(node.lineno, target, where, self._for_types))

    def visit_Import(self, node):
        for alias in node.names:
            self._add(node, alias.name)

    def visit_ImportFrom(self, node):
        if node.level:
            self._add(node, "." * node.level + (node.module or ""))
        for alias in node.names:
            self._add(node, f"{node.module}.{alias.name}")

    def visit_Call(self, node):
        if _last_name(node.func) in ("__import__", "import_module"):
            self._add(node, "importlib.import_module()")
        self.generic_visit(node)

    def visit_If(self, node):
        if _last_name(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)
            return
        self._for_types = True
        for statement in node.body:
            self.visit(statement)
        self._for_types = False
        for statement in node.orelse:
            self.visit(statement)

    def _enter(self, node, functions):
        self._names.append(node.name)
        self._functions += functions
        self.generic_visit(node)
        self._functions -= functions
        self._names.pop()

    def visit_ClassDef(self, node):
        self._enter(node, 0)

    def visit_FunctionDef(self, node):
        self._enter(node, 1)

    def visit_AsyncFunctionDef(self, node):
        self._enter(node, 1)


def _last_name(node):
    """The name of what is called or asked for, without that of its module."""
    return getattr(node, "id", getattr(node, "attr", None))


@cache
def parsed(source):
    return ast.parse(source)


@cache
def imports_of(source):
    collector = ImportCollector()
    collector.visit(parsed(source))
    return collector.imports


@cache
def modules():
    """Every module by its dotted name below ``kafkalog``; a package's `__init__` by the package's name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


def package_of(module):
    """The entry of `ORDER` that a module below ``kafkalog`` belongs to; what is none of them is the front door."""
    first = module.partition(".")[0]
    return first if first in RANKS else "__init__"


def module_of(target):
    """The module that an imported dotted name stands in, below ``kafkalog``."""
    name = target.removeprefix("kafkalog").removeprefix(".")
    while name and name not in modules() and name.partition(".")[0] != "_kernels":
        name = name.rpartition(".")[0]
    return name or "__init__"


def violations(module, source):
    """What a module does against the rules; empty when nothing."""
    if package_of(module) == "__init__" != module:
        return [f"{module}: the order names no package {module.partition('.')[0]}"]
    return [f"{module}:{item.line}: {problem}" for item in imports_of(source) for problem in _problems(module, item)]


def _problems(module, item):
    top = item.target.partition(".")[0]
    package = package_of(module)
    if not top:
        yield f"relative import of {item.target}"
    elif top == "importlib" and item.target.endswith("()"):
        if module not in IMPORT_BY_NAME:
            yield "imports by name, which this test cannot follow"
    elif top == "kafkalog":
        other = package_of(item.target.removeprefix("kafkalog").removeprefix(".") or "__init__")
        # methods of the log's classes that are the functions of `kafkalog`
        front_door = module == READ_METHODS and item.target == "kafkalog" and (item.for_types or bool(item.where))
        if other != package and RANKS[other] >= RANKS[package] and not front_door:
            yield f"imports {item.target} of {other}, which is not before {package}"
        elif package == "cli" and other == "spark":
            yield f"imports {item.target}: a command needs no Spark"
    elif top == "pyarrow":
        if package not in ARROW_IN and not item.for_types and (module, item.where) not in LAZY_ARROW:
            yield "imports pyarrow below interchange"
    else:
        home = HOMES.get(top, module)
        if not any(f"{module}.".startswith(f"{one}.") for one in home.split(" or ")) and not item.for_types:
            yield f"imports {top}, which only {home} may"
        if top in NEVER_AT_MODULE_LEVEL and not item.where and not item.for_types:
            yield f"imports {top} at module level"


def circles(package):
    """A circle of imports among the modules of a package, annotations included; empty when there is none."""
    inside = [name for name in modules() if package_of(name) == package]
    graph = {
        name: {
            other
            for item in imports_of(modules()[name].read_text())
            if item.target.partition(".")[0] == "kafkalog"
            for other in [module_of(item.target)]
            if other != name and other in inside and not _is_parent(other, name)
        }
        for name in inside
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _is_parent(package, module):
    """Whether a name is the package around a module: its `__init__` is imported with it in any case."""
    return module.startswith(package + ".")


CIMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+(c?import)\b|(c?import)[ \t]+([\w.]+))", re.MULTILINE)


def kernels():
    return sorted([*PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxd")])


def kernel_violations(kernel, source):
    """The same for Cython: C's library and other kernels only, and nothing of Python's."""
    found = []
    for match in CIMPORT.finditer(source):
        target, word = match[1] or match[4], match[2] or match[3]
        if word == "import":
            found.append(f"{kernel}: imports {target} from Python")
        elif (
            target.rpartition(".")[0] != "kafkalog._kernels"
            and target.partition(".")[0] != "libc"
            and (kernel, target) not in OF_PYTHON
        ):
            found.append(f"{kernel}: cimports {target}")
    return found


def test_modules_import_from_packages_before_their_own_only():
    found = ((name, violations(name, path.read_text())) for name, path in modules().items())
    assert [(name, one) for name, those in found for one in those] == []


@pytest.mark.parametrize("package", sorted(RANKS))
def test_no_package_has_a_circle_of_imports(package):
    assert circles(package) == []


@pytest.mark.parametrize("path", kernels(), ids=lambda path: path.name)
def test_a_kernel_cimports_kernels_and_c_only(path):
    assert path.parent == PACKAGE / "_kernels"
    assert kernel_violations(path.stem, path.read_text()) == []


def test_kernels_cimport_one_another_without_a_circle():
    graph = {}
    for path in kernels():
        targets = (match[1] or match[4] for match in CIMPORT.finditer(path.read_text()))
        below = {target.rpartition(".")[2] for target in targets if target.startswith("kafkalog._kernels.")}
        graph.setdefault(path.stem, set()).update(below - {path.stem})
    TopologicalSorter(graph).prepare()


def test_the_order_names_what_there_is():
    there = {name.partition(".")[0] for name in modules()}
    assert sorted(RANKS) == sorted(there)


@pytest.mark.parametrize(
    "package", [name for name, path in modules().items() if path.stem == "__init__" and name not in WITH_CODE_IN_INIT]
)
def test_a_package_says_what_is_in_it_and_does_nothing(package):
    if package == "__init__":
        pytest.skip("the front door")
    path = modules()[package]
    tree = parsed(path.read_text())
    assert len(tree.body) == 1, "a docstring and nothing else"
    docstring = ast.get_docstring(tree)
    assert docstring is not None
    rooms = [other.stem for other in path.parent.glob("*.py") if other.stem != "__init__"]
    rooms += [other.name for other in path.parent.iterdir() if (other / "__init__.py").exists()]
    rooms += [other.stem for other in path.parent.glob("*.pyx")]
    assert [room for room in sorted(rooms) if f"`{room}`" not in docstring] == []
    named = re.findall(r"^    `(\w+)`", docstring, re.MULTILINE)
    assert sorted(named) == sorted(rooms)


def test_lines_of_kernels_stay_short():
    """As ruff sees to it in Python: C headers have no formatter."""
    files = (path for kind in ("*.h", "*.pxd", "*.pyx") for path in sorted((PACKAGE / "_kernels").glob(kind)))
    long = [
        f"{path.name}:{n}"
        for path in files
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 120
    ]
    assert long == []


def test_constants_of_kernels_are_numbers():
    # of an expression Cython makes no code that checks overflow: it crashes, and so does the checked build
    found = []
    for path in kernels():
        for block in re.findall(r"^cdef enum:\n((?:    .*\n|\n)+)", path.read_text(), re.MULTILINE):
            values = re.findall(r"^    (\w+) = ([^#\n]+)", block, re.MULTILINE)
            found += [f"{path.name}: {name}" for name, value in values if not re.fullmatch(r"-?\w+ *", value)]
    assert not found


def test_the_front_door_names_nothing_above_itself():
    import kafkalog

    assert all(
        RANKS[package_of(module.removeprefix("kafkalog."))] <= RANKS["__init__"] for module in kafkalog._NAMES.values()
    )


def test_no_package_has_the_name_of_a_public_function():
    import kafkalog

    assert not set(kafkalog.__all__) & {path.stem for path in PACKAGE.iterdir()}


@pytest.mark.parametrize(
    ("module", "source", "problem"),
    [
        ("stray.room", "", "no package stray"),
        ("records.columns", "from kafkalog.log.segment import Segment", "which is not before records"),
        ("records.columns", "import kafkalog.log", "which is not before records"),
        ("records.columns", "from kafkalog import log", "which is not before records"),
        ("records.columns", "from kafkalog import __version__", "of __init__"),
        ("records.columns", "def read():\n    from kafkalog.scanning import scan", "of scanning"),
        ("records.columns", "try:\n    import kafkalog.scanning.scan\nexcept ImportError:\n    pass", "of scanning"),
        ("records.columns", "if TYPE_CHECKING:\n    import kafkalog.scanning.scan", "of scanning"),
        ("records.columns", "if TYPE_CHECKING:\n    pass\nelse:\n    import kafkalog.scanning.scan", "of scanning"),
        ("scanning.scan", "from kafkalog.writing.routing import Router", "which is not before scanning"),
        ("interchange.arrow_output", "from kafkalog.state import producers", "which is not before interchange"),
        ("errors", "from kafkalog.storage.source import Bytes", "of storage"),
        ("cli.app", "from kafkalog.__main__ import main", "of __main__"),
        ("cli.reading.ls", "from kafkalog.spark import scan", "needs no Spark"),
        ("records.columns", "from .decode import decode", "relative import"),
        ("records.columns", "import importlib\nimportlib.import_module('kafkalog.scan')", "by name"),
        ("records.batch_table", "import pyarrow as pa", "pyarrow below"),
        ("records.batch_table", "class BatchTable:\n    import pyarrow.compute", "pyarrow below"),
        ("records.batch_table", "class BatchTable:\n    def codecs(self):\n        import pyarrow", "pyarrow below"),
        ("log.segment", "def progress():\n    from tqdm import tqdm", "only cli may"),
        ("cli.console", "from tqdm import tqdm", "at module level"),
        ("scanning.scan", "def where():\n    import numba", "only scanning.user_functions may"),
        ("operations.exporting.export", "def distribute():\n    import pyspark.sql", "only spark may"),
        ("scanning.scan", "import pandas as pd", "at module level"),
    ],
)
def test_a_module_against_the_rules_is_caught(module, source, problem):
    assert any(problem in found for found in violations(module, source))


WALKED = re.compile(r"^\|[^|]*\| `([\w/]+\.py)` `([\w.]+)` \|", re.MULTILINE)
ROOM = re.compile(r"`([\w/]+(?:\.pyx?|/))`")
NAMES = re.compile(r"((?:`\w+`(?: \([^)`]*\))?(?:, | and ))*`\w+`(?: \([^)`]*\))?) in `([\w/]+\.\w+)`")


def test_what_the_architecture_names_is_there():
    text = (PACKAGE.parent / "docs" / "ARCHITECTURE.md").read_text()
    hops = WALKED.findall(text)
    assert len(hops) > 30
    for path, name in hops:
        body = ast.parse((PACKAGE / path).read_text()).body
        for part in name.split("."):
            found = [node for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == part]
            assert found, f"{path} has no {name}"
            body = found[0].body
    table = text.partition("## Where would I change")[2]
    for path in ROOM.findall(table):
        assert (PACKAGE / path).exists() or (PACKAGE.parent / path).exists(), path
    named = NAMES.findall(table)
    assert len(named) > 60
    for names, path in named:
        content = next(root / path for root in (PACKAGE, PACKAGE.parent) if (root / path).exists()).read_text()
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"\b{name}\b", content), f"{path} has no {name}"


def test_the_list_of_test_helpers_is_whole():
    support = Path(__file__).parent / "support"
    assert {path.stem for path in support.glob("*.py")} == {
        *re.findall(r"`(\w+)`", (support / "README.md").read_text())
    }
