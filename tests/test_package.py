"""The package as it arrives: what it ships, what it shows, and that its examples are true."""

import ast
import doctest
import importlib
import inspect
import json
import os
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from needs import Examples

import kafkalog

ROOT = Path(__file__).parent.parent
KERNELS = sorted(path.stem for path in (ROOT / "kafkalog" / "_kernels").glob("*.pyx"))
MODULES = sorted(
    found.name for found in pkgutil.walk_packages(kafkalog.__path__, "kafkalog.") if not found.name.endswith("__main__")
)
WITH_EXAMPLES = {
    "kafkalog",
    "kafkalog.scanning.read",
    "kafkalog.scanning.batch_scan",
    "kafkalog.operations.exporting.export",
    "kafkalog.indexes.index_files",
    "kafkalog.log.open",
}


CYTHONS = "_cyutility"
"""Cython's own code, which the kernels share."""


def has_examples(module):
    """Whether a `>>>` is in its source."""
    path = ROOT.joinpath(*module.split("."))
    sources = (path.with_suffix(".py"), path.with_suffix(".pyx"), path / "__init__.py")
    return any(">>>" in source.read_text() for source in sources if source.exists())


def loaded_after(statement, *names):
    """Which of these modules a fresh interpreter has loaded after a statement."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps([n for n in {names!r} if n in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_the_types_are_shipped():
    assert files("kafkalog").joinpath("py.typed").is_file()
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "py.typed" in shipped["kafkalog"]
    assert "*.pyi" in shipped["kafkalog"]


def test_the_version_is_the_one_in_pyproject():
    assert kafkalog.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_a_library_of_an_extra_is_installed_with_the_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = {name: extras[name] for name in extras.keys() - {"test", "bench", "docs", "dev"}}
    libraries = {re.split(r"[\[>=]", requirement)[0] for of in extras.values() for requirement in of}
    source = "\n".join(path.read_text() for path in Path(kafkalog.__file__).parent.rglob("*.py"))
    assert {*re.findall(r"not_installed\([^()]*(?:\(\)[^()]*)?, \"([\w-]+)\"\)", source)} == extras.keys() - {"spark"}
    assert {*re.findall(r"pip install '?kafkalog\[([\w-]+)\]", source)} <= extras.keys()
    assert not libraries & {*re.findall(r"pip install ([\w-]+)", source)}


def test_every_kernel_is_built():
    assert KERNELS
    assert {f"kafkalog._kernels.{name}" for name in KERNELS} <= set(MODULES)


def test_a_source_distribution_holds_what_the_build_reads():
    manifest = (ROOT / "MANIFEST.in").read_text()
    for pattern in ("*.pyx", "*.pxd", "*.h", "__init__.pyi"):
        assert pattern in manifest


@pytest.mark.parametrize("name", kafkalog.__all__)
def test_a_public_name_resolves_and_says_what_it_is(name):
    value = getattr(kafkalog, name)
    # a class inherits a docstring, a named tuple and a dataclass get one that says nothing
    text = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    assert text
    assert not text.startswith(f"{name}(")
    for member, attribute in inspect.getmembers(value) if isinstance(value, type) else ():
        if not member.startswith("_") and (inspect.isroutine(attribute) or isinstance(attribute, property)):
            assert inspect.getdoc(attribute), f"{name}.{member}"


def test_the_public_names_are_those_of_the_stub():
    stub = (ROOT / "kafkalog" / "__init__.pyi").read_text()
    imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    listed = {name.asname: node.module for node in imports for name in node.names if node.module != "kafkalog"}
    assert listed == kafkalog._NAMES
    assert sorted(listed) == kafkalog.__all__
    assert set(kafkalog.__all__) <= set(dir(kafkalog))
    with pytest.raises(AttributeError):
        kafkalog.nonsense  # noqa: B018


def test_the_package_works_without_its_stub_as_in_a_bundled_program():
    code = "import sys; sys.addaudithook(lambda event, args: event == 'open' and print(args[0])); import kafkalog"
    opened = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "kafkalog" in opened
    assert ".pyi" not in opened


def test_types_of_parts_have_a_module_of_their_own():
    assert not set(kafkalog.types.__all__) & set(kafkalog.__all__)
    for name in kafkalog.types.__all__:
        assert inspect.isclass(getattr(kafkalog.types, name)) or name == "Decode"
        assert getattr(kafkalog, name) is getattr(kafkalog.types, name)
        assert name not in dir(kafkalog)
        assert vars(kafkalog.types)[name].__doc__


def test_importing_kafkalog_loads_neither_numpy_nor_arrow():
    heavy = ("numpy", "pyarrow", "pandas", "tqdm", "dataclasses", "kafkalog.format", "kafkalog.storage.source")
    assert loaded_after("import kafkalog", *heavy) == []
    assert loaded_after("import kafkalog.cli", "pyarrow", "pandas", "tqdm") == []
    # the probe itself can tell
    assert loaded_after("import kafkalog; kafkalog.scan", "numpy", "pyarrow", "pandas") == ["numpy", "pyarrow"]


@pytest.mark.slow
def test_reading_does_not_load_numpys_masked_arrays():
    log_dir = str(ROOT / "tests" / "golden" / "log_dir" / "p-multi-0")
    reading = f"import kafkalog; kafkalog.read_numpy({log_dir!r}); list(kafkalog.scan({log_dir!r}).to_reader())"
    assert loaded_after(reading, "numpy.ma") == []
    listing = f"from kafkalog.cli import main; main(['ls', '--json', '-q', {log_dir!r}])"
    assert (
        loaded_after(f"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()): {listing}", "numpy.ma")
        == []
    )


def test_no_module_takes_the_place_of_a_public_name():
    for name in MODULES:
        importlib.import_module(name)
    for name in kafkalog.__all__:
        assert not inspect.ismodule(getattr(kafkalog, name)), name
    assert inspect.isfunction(kafkalog.scan)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kafkalog.scan", "kafkalog.open"])
def test_nor_where_all_modules_were_imported_first(name):
    program = "import importlib\nfor name in {}: importlib.import_module(name)\nimport kafkalog\nassert callable({})"
    subprocess.run([sys.executable, "-c", program.format(MODULES, name)], check=True)


class Finder(doctest.DocTestFinder):
    """Finds the examples of methods that lead, too: see `kafkalog.calls.lead`."""

    def _from_module(self, module, object):
        return super()._from_module(module, inspect.unwrap(object) if inspect.isfunction(object) else object)


@pytest.mark.parametrize("name", sorted(filter(has_examples, ["kafkalog", *MODULES])))
def test_the_examples_in_docstrings_are_true(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    module = importlib.import_module(name)
    names = {**vars(module), "kafkalog": kafkalog, "np": np}
    tests = Finder(exclude_empty=True).find(module, name, extraglobs=names)
    runner = Examples(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report = []
    for test in tests:
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
    assert name not in WITH_EXAMPLES or runner.tries > 0


def test_all_packages_are_installed_and_sparks_entry_beside_them(monkeypatch):
    setuptools = pytest.importorskip("setuptools")
    told = {}
    monkeypatch.setattr(setuptools, "setup", told.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "kafkalog").rglob("__init__.py")}
    entry = "kafkalog.spark.pyspark_kafkalog"
    assert {*folders} - {entry} | {"pyspark_kafkalog"} == {*told["packages"]}
    assert entry in folders
    assert {one.name for one in told["ext_modules"]} == {f"kafkalog._kernels.{name}" for name in [CYTHONS, *KERNELS]}


def test_a_source_folder_without_kernels_says_what_to_do(tmp_path):
    shutil.copytree(ROOT / "kafkalog", tmp_path / "kafkalog", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    command = [sys.executable, "-c", "import kafkalog"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: no kernels compiled for Python ")
    assert f" in {tmp_path}/kafkalog/_kernels," in last
    assert f"`pip install -e .` in {tmp_path}," in last


def test_building_without_a_compiler_says_what_is_missing_before_anything_is_translated():
    pytest.importorskip("setuptools")
    environment = {**os.environ, "CC": "no-such-compiler -O2"}
    command = [sys.executable, "setup.py", "-q", "build_ext"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "kafkalog needs a C compiler: there is no 'no-such-compiler' on the path." in done.stderr


def test_ranges_of_offsets_have_one_form_in_texts():
    """`text.offset_range` writes them: ends are excluded everywhere, and what is not known is a question mark."""
    own = re.compile(r"\}\.\.(?!\.)[{\"']|offsets \{[^\"\n]*\} to \{")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / "kafkalog").rglob("*.py"))
        if path.name != "text.py"
        for line in path.read_text().splitlines()
        if own.search(line)
    ]
    assert found == []
