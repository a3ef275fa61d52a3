"""Mutation testing with cosmic-ray: changes of single operators, and whether the tests of their module notice.

Run in a copy of the repository, for modules are changed in place and put back:

    pip install cosmic-ray        # in an environment of its own
    python tests/support/mutations.py --python .venv/bin/python --sample 60 kafkalog/storage/staging.py tests/storage

The last results are in ``tests/MUTATIONS.md``.
"""

from __future__ import annotations

import argparse
import ast
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

CONFIG = """[cosmic-ray]
module-path = [{module!r}]
timeout = {timeout}
excluded-modules = []
test-command = "{command}"
[cosmic-ray.distributor]
name = "local"
"""


def lines_without_effect(module: Path) -> set[tuple[int, int]]:
    """Line and column of everything in annotations, and in texts of errors, where no change has an effect to test."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text())):
        inert: list[ast.AST | None] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inert += [node.returns, *(one.annotation for one in ast.walk(node.args) if isinstance(one, ast.arg))]
            inert += [one for one in node.decorator_list if isinstance(one, ast.Name)]
        elif isinstance(node, ast.AnnAssign):
            inert.append(node.annotation)
        elif isinstance(node, ast.JoinedStr):
            inert.append(node)
        for each in inert:
            if each is not None:
                found |= {(line, column) for line, column in _span(each)}
    return found


def _span(node: ast.AST) -> set[tuple[int, int]]:
    first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
    start, stop = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
    return {
        (line, column)
        for line in range(first, last + 1)
        for column in range(start if line == first else 0, stop if line == last else 200)
    }


def choose(session: Path, module: Path, sample: int | None, only: list[str], seed: int) -> tuple[int, int]:
    """Keep a sample of the mutants that may have an effect; how many are kept, of how many."""
    inert = lines_without_effect(module)
    ranges = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in only
    ]
    with sqlite3.connect(session) as database:
        rows = database.execute(
            "select job_id, start_pos_row, start_pos_col from mutation_specs order by job_id"
        ).fetchall()
        rows.sort(key=lambda row: row[1:])
        kept = [job for job, line, column in rows if (line, column) not in inert]
        if only:
            wanted = {line for first, last in ranges for line in range(first, last + 1)}
            kept = [job for job, line, column in rows if (line, column) not in inert and line in wanted]
        n_all = len(kept)
        if sample is not None and sample < n_all:
            kept = random.Random(seed).sample(kept, sample)
        for job, _, _ in rows:
            if job not in set(kept):
                database.execute("delete from mutation_specs where job_id = ?", (job,))
                database.execute("delete from work_items where job_id = ?", (job,))
    return len(kept), n_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=Path)
    parser.add_argument("tests", nargs="+", help="arguments of pytest")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has what the tests need")
    parser.add_argument("--sample", type=int, help="so many of the mutants, drawn at random; default: all")
    parser.add_argument("--only", action="append", default=[], help="functions and classes to change; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds")
    options = parser.parse_args()
    name = "-".join(options.module.with_suffix("").parts[1:])
    config, session = Path(f"{name}.toml"), Path(f"{name}.sqlite")
    session.unlink(missing_ok=True)
    command = " ".join([options.python, "-m pytest -q -n 0 -x -p no:cacheprovider", *options.tests])
    config.write_text(CONFIG.format(module=str(options.module), timeout=options.timeout, command=command))
    tool = Path(sys.executable).with_name("cosmic-ray")
    subprocess.run([tool, "init", config, session], check=True)
    n_kept, n_all = choose(session, options.module, options.sample, options.only, options.seed)
    print(f"{options.module}: {n_kept} of {n_all} mutants", flush=True)
    subprocess.run([tool, "exec", config, session], check=True)
    with sqlite3.connect(session) as database:
        results = database.execute(
            "select test_outcome, operator_name, start_pos_row, start_pos_col, diff from work_results"
            " join mutation_specs using (job_id) order by start_pos_row, start_pos_col"
        ).fetchall()
    survived = [row for row in results if "SURVIVED" in str(row[0])]
    print(f"{options.module}: {len(results) - len(survived)} killed, {len(survived)} survived")
    for _, operator, line, column, diff in survived:
        changed = [one for one in diff.splitlines() if one[:1] in "+-" and one[:3] not in ("+++", "---")]
        print(f"  line {line}:{column} {operator}", *changed, sep="\n    ")


if __name__ == "__main__":
    main()
