"""Mutation testing of the decision core: break each line in turn and see whether a test complains.

``tests/mutation/run node_evict evict_tasks`` breaks these modules, in a copy of the project, and runs the tests and
vectors of the same names. Each run is a fork of one process that has loaded all of them. It prints what survived and
the share that was killed; 90% per module is the aim. What survives for good has its reason in
tests/mutation/survivors/.
"""

import argparse
import ast
import compileall
import contextlib
import gc
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

import cosmic_ray.plugins
import pytest
from _pytest.main import pytest_runtestloop
from cosmic_ray.commands import init
from cosmic_ray.mutating import use_mutation
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkItem, WorkResult
from grafting import GraftError, graft
from prometheus_client import REGISTRY

ROOT = Path(__file__).parents[2]
COPIED = ("schemas", "streams", "agents", "deploy", "generate", "tests", "bench", ".src", "pyproject.toml")
CPU_MAX_S = 30
"""Of the first run. Each other one has three times what that took and a little more: a broken loop may have no end."""
MORE_S = 4
QUIET = ("-x", "-q", "--no-header", "--no-summary", "--assert=plain", "-p", "no:cacheprovider", "--capture=no")
CASES = "tests/pure/decisions/test_vectors.py"
"""What is collected where a module has no test but its rule's cases: without a file, pytest would collect all."""
COPY = "SLACKTIDE_MUTATION_COPY"
"""Set in the process that works in the copy."""
PLAIN = ("Add", "Sub", "Mul", "FloorDiv", "Div")
"""What an operator is replaced by; shifts, powers and bits instead would be found by any test."""


def main() -> int:
    """Break, test, report."""
    parser = argparse.ArgumentParser(prog="tests/mutation/run", description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="of streams/decisions, without .py")
    parser.add_argument("--tests", nargs="*", default=[], metavar="NAME", help="further tests and vectors to run")
    given = parser.parse_args()
    if COPY not in os.environ:
        return _in_a_copy()
    os.chdir(os.environ[COPY])
    sys.path.insert(0, "tests")
    _drop_vectors({*given.modules, *given.tests})
    rates = [_module(name, _tests([*given.modules, *given.tests])) for name in given.modules]
    return 0 if all(rate >= 0.9 for rate in rates) else 1


def _in_a_copy() -> int:
    with tempfile.TemporaryDirectory(prefix="slacktide-mutation-") as folder:
        copy = Path(folder) / "project"
        _copy(copy)
        more = {
            COPY: str(copy),
            "PYTHONPATH": str(copy / ".src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_PROFILE": "mutation",
        }
        return subprocess.run([sys.executable, *sys.argv], env=os.environ | more, check=False).returncode


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


class Tests(NamedTuple):
    """What is run for each mutant; the first complaint ends it."""

    vectors: list[str]
    """Rules whose cases are run first: they are the fastest."""
    files: list[str]

    def fail(self) -> bool:
        """Whether one complains."""
        return self.cases_fail() or (bool(self.files) and pytest.main([*QUIET, *self.files]) != pytest.ExitCode.OK)

    def cases_fail(self) -> bool:
        """Whether a case does."""
        # Here: each fork imports them anew.
        from pure.decisions.test_vectors import complaint  # noqa: PLC0415

        from testbed.vectors import lines  # noqa: PLC0415

        return any(complaint(name, line) for name in self.vectors for line in lines(name))


def _tests(names: list[str]) -> Tests:
    """Tests by file name, vectors by rule."""
    folders = (Path("tests/pure/decisions"), Path("tests/pure"))
    files = sorted({str(path) for name in names for one in folders for path in one.glob(f"test_{name}*.py")})
    return Tests([name for name in names if any(Path("tests/vectors").glob(f"{name}.jsonl*"))], files)


def _path_of(name: str) -> Path:
    """A module of the decisions by its name, with or without its family: ``queue/assign``, ``node_evict``."""
    [path] = [path for path in Path("streams/decisions").rglob("*.py") if path.match(f"{name}.py")]
    return path


class Breaking:
    """Takes the place of pytest's loop over its tests: once all are collected, each mutant is a fork."""

    def __init__(self, name: str, tests: Tests) -> None:
        self._name, self._tests = name, tests
        self._cpu_max_s = CPU_MAX_S
        self.rate: float | None = None
        """None: the tests fail before anything is broken."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Break the module in all ways; the share that was noticed."""
        path = _path_of(self._name)
        gc.freeze()
        failed, took_s = _forked(lambda: self._fails(session), CPU_MAX_S)
        if failed:
            return True
        self._cpu_max_s = 3 * math.ceil(took_s) + MORE_S
        started_s = time.monotonic()
        with use_db(f"{self._name.replace('/', '-')}.sqlite", WorkDB.Mode.create) as db:
            init([path], db, {})
            _skip(db, path)
            todo = list(db.pending_work_items)
            print(f"{self._name}: {len(todo)} mutants", file=sys.stderr, flush=True)
            for item in todo:
                db.set_result(item.job_id, self._broken(session, path, item))
            self.rate = _report(self._name, db, time.monotonic() - started_s)
        return True

    def _broken(self, session: pytest.Session, path: Path, item: WorkItem) -> WorkResult:
        """Whether a test notices one mutant: with the module changed where it is, and then imported anew."""
        [one] = item.mutations
        operator = cosmic_ray.plugins.get_operator(one.operator_name)(**one.operator_args)
        with use_mutation(path, operator, one.occurrence) as (before, after):
            if after is None:
                return WorkResult(worker_outcome=WorkerOutcome.SKIPPED)
            module = "slacktide." + ".".join(path.with_suffix("").parts)
            killed = module in sys.modules and self._noticed(lambda: self._fails_grafted(session, module, after))
            killed = killed or self._noticed(lambda: _fails_anew(self._tests))
        diff = "\n".join(unified_diff(before.split("\n"), after.split("\n"), str(path), str(path), lineterm=""))
        outcome = TestOutcome.KILLED if killed else TestOutcome.SURVIVED
        return WorkResult(worker_outcome=WorkerOutcome.NORMAL, test_outcome=outcome, diff=diff)

    def _noticed(self, fails: Callable[[], bool]) -> bool:
        return _forked(fails, self._cpu_max_s)[0]

    def _fails_grafted(self, session: pytest.Session, module: str, source: str) -> bool:
        try:
            graft(module, source)
        except GraftError:
            return False
        return self._fails(session)

    def _fails(self, session: pytest.Session) -> bool:
        if self._tests.cases_fail():
            return True
        with contextlib.suppress(session.Failed):
            pytest_runtestloop(session)
        return session.testsfailed > 0


def _module(name: str, tests: Tests) -> float:
    """Break one module in all ways; the share that was noticed."""
    breaking = Breaking(name, tests)
    tests.cases_fail()
    with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing):
        pytest.main([*QUIET, *(tests.files or [CASES])], plugins=[breaking])
    if breaking.rate is None:
        sys.exit(f"{name}: the tests fail before anything is broken: {tests}")
    return breaking.rate


def _forked(fails: Callable[[], bool], cpu_max_s: int) -> tuple[bool, float]:
    """Whether it fails, in a fork, and the CPU seconds that it took."""
    child = os.fork()
    if not child:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_max_s, cpu_max_s))
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            warnings.simplefilter("error", SyntaxWarning)
            os._exit(fails())
        except BaseException:  # noqa: BLE001 - whatever the broken module does
            os._exit(1)
    _, status, used = os.wait4(child, 0)
    return status != 0, used.ru_utime


def _fails_anew(tests: Tests) -> bool:
    """With all imported again that may have read the module; libraries and schemas stay."""
    for name in list(sys.modules):
        first, _, rest = name.partition(".")
        ours = first == "slacktide" and not rest.startswith("schemas")
        if ours or first in {"testbed", "tests", "pure", "conftest"}:
            del sys.modules[name]
    for collector in list(REGISTRY._collector_to_names):
        REGISTRY.unregister(collector)
    return tests.fail()


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
            print("survived:", *lines, sep="\n  ", file=sys.stderr)
    total = sum(outcomes.values())
    killed = total - outcomes[TestOutcome.SURVIVED]
    print(
        f"{name}: {killed} of {total} killed ({killed / max(total, 1):.0%}) in {took_s:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return killed / max(total, 1)


if __name__ == "__main__":
    sys.exit(main())
