"""Mutation testing of the decision core: break each line in turn and see whether a test complains.

``tests/mutation/run memory_evict evict_loop`` breaks these modules, in a copy of the project, and runs the tests and
vectors of the same names. It prints what survived and the share that was killed; 90% per module is the aim, and what
survives for good is told with its reason in tests/mutation/survivors/.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from cosmic_ray.commands import execute, init
from cosmic_ray.config import ConfigDict
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkItem, WorkResult

ROOT = Path(__file__).parents[2]
COPIED = ("schemas", "streams", "agents", "deploy", "tests", ".src", "pyproject.toml")
TIMEOUT_S = 30.0
PLAIN = ("Add", "Sub", "Mul", "FloorDiv", "Div")
"""What an operator is replaced by; shifts, powers and bits instead would be found by any test."""


def main() -> int:
    """Break, test, report."""
    parser = argparse.ArgumentParser(prog="tests/mutation/run", description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="of streams/decisions, without .py")
    parser.add_argument("--tests", nargs="*", default=[], metavar="NAME", help="further tests and vectors to run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slacktide-mutation-") as folder:
        copy = Path(folder) / "project"
        _copy(copy)
        os.chdir(copy)
        _drop_vectors({*given.modules, *given.tests})
        os.environ |= {
            "PYTHONPATH": str(copy / ".src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_PROFILE": "mutation",
        }
        rates = [_module(name, _command([*given.modules, *given.tests])) for name in given.modules]
    return 0 if all(rate >= 0.9 for rate in rates) else 1


def _copy(copy: Path) -> None:
    copy.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True)
            compileall.compile_dir(copy / name, quiet=1)
        else:
            shutil.copy(source, copy / name)


def _drop_vectors(names: set[str]) -> None:
    """Keep the vectors that are run: collecting all of them takes longer than running a few."""
    for file in Path("tests/vectors").iterdir():
        if file.name.partition(".")[0] not in names:
            file.unlink()


def _command(names: list[str]) -> str:
    """Tests by file name, vectors by case name; the first complaint ends it."""
    files = sorted({str(path) for name in names for path in Path("tests/pure/decisions").glob(f"test_{name}*.py")})
    vectors = [name for name in names if any(Path("tests/vectors").glob(f"{name}.jsonl*"))]
    wanted = [f"result_is_the_references[{name}-" for name in vectors] + [Path(file).stem for file in files]
    files += ["tests/pure/decisions/test_vectors.py"] if vectors else []
    quiet = "-x -q --no-header --no-summary --assert=plain -p no:cacheprovider"
    return f'{sys.executable} -m pytest {quiet} {" ".join(files)} -k "{" or ".join(wanted)}"'


def _module(name: str, command: str) -> float:
    """Break one module in all ways; the share that was noticed."""
    path = Path(f"streams/decisions/{name}.py")
    config = ConfigDict(
        {
            "module-path": [str(path)],
            "timeout": TIMEOUT_S,
            "excluded-modules": [],
            "test-command": command,
            "distributor": {"name": "local"},
        }
    )
    if subprocess.run(command, shell=True, stdout=subprocess.DEVNULL, check=False).returncode:
        sys.exit(f"{name}: the tests fail before anything is broken: {command}")
    started_s = time.monotonic()
    with use_db(f"{name.replace('/', '-')}.sqlite", WorkDB.Mode.create) as db:
        init([path], db, {})
        _skip(db, path)
        todo = sum(1 for _ in db.pending_work_items)
        print(f"{name}: {todo} mutants", flush=True)
        execute(db, config)
        return _report(name, db, time.monotonic() - started_s)


def _skip(db: WorkDB, path: Path) -> None:
    """Leave out what cannot change a result: annotations, decorators and class keywords."""
    skipped = WorkResult(worker_outcome=WorkerOutcome.SKIPPED)
    quiet = list(_quiet(ast.parse(path.read_text())))
    for item in list(db.pending_work_items):
        if not _telling(item.mutations[0].operator_name) or _within(item, quiet):
            db.set_result(item.job_id, skipped)


def _telling(operator: str) -> bool:
    if operator.startswith(("core/Variable", "core/RemoveDecorator")):
        return False
    return "BinaryOperator" not in operator or operator.rpartition("_")[2] in PLAIN


def _quiet(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if isinstance(part := getattr(node, name, None), ast.AST):
                yield part
        yield from getattr(node, "decorator_list", ())
        if isinstance(node, ast.ClassDef):
            yield from (keyword.value for keyword in node.keywords)


def _within(item: WorkItem, quiet: list[ast.AST]) -> bool:
    start = item.mutations[0].start_pos
    return any((one.lineno, one.col_offset) <= start < (one.end_lineno, one.end_col_offset) for one in quiet)


def _report(name: str, db: WorkDB, took_s: float) -> float:
    outcomes: Counter[TestOutcome | None] = Counter()
    for _, result in db.completed_work_items:
        if result.worker_outcome == WorkerOutcome.SKIPPED:
            continue
        outcomes[result.test_outcome] += 1
        if result.test_outcome == TestOutcome.SURVIVED:
            lines = [line for line in (result.diff or "").splitlines()[2:] if line[:1] in {"@", "-", "+"}]
            print("survived:", *lines, sep="\n  ")
    total = sum(outcomes.values())
    killed = total - outcomes[TestOutcome.SURVIVED]
    print(f"{name}: {killed} of {total} killed ({killed / max(total, 1):.0%}) in {took_s:.0f} s", flush=True)
    return killed / max(total, 1)


if __name__ == "__main__":
    sys.exit(main())
