"""Tests marked ``uml`` run inside user-mode Linux: it is booted once for all of them, and each shows its own result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.groups import Groups
from slacktide.agents.node.cgroup import CgroupKernel

RUNNER = Path(__file__).with_name("cgroup2-vm")
INSIDE = "CGROUP2_VM" in os.environ
REPORT = "CGROUP2_VM_REPORT"
VM_S_MAX = 900

_results = pytest.StashKey[dict[str, str]]()


@pytest.fixture(
    params=[
        pytest.param(1, marks=pytest.mark.kernel, id="v1"),
        pytest.param(2, marks=pytest.mark.uml, id="v2"),
    ]
)
def groups(request: pytest.FixtureRequest) -> Iterator[Groups]:
    """The groups of a node in a real kernel, on each version of cgroups."""
    made = Groups(request.param)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def kernel(groups: Groups, tmp_path: Path) -> Iterator[CgroupKernel]:
    """What the agent sees of it."""
    opened = CgroupKernel(Path("/sys/fs/cgroup"), Path("/proc"), groups.kubepods, tmp_path)
    yield opened
    opened.close()


class InVmError(Exception):
    """A test failed inside; the text is what pytest said there."""


class InVm(pytest.Item):
    """Stands for a test that runs inside."""

    def runtest(self) -> None:
        """Boot if nobody has, and look up how it ended."""
        stash = self.config.stash
        if _results not in stash:
            stash[_results] = _run([item.nodeid for item in self.session.items if isinstance(item, InVm)])
        if why := stash[_results][self.nodeid]:
            raise InVmError(why)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """What was said inside, as it was said."""
        return str(excinfo.value) if isinstance(excinfo.value, InVmError) else str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it stands."""
        return self.path, 0, self.name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Outside, stand-ins take the place of the tests that run inside."""
    if INSIDE:
        return
    for index, item in enumerate(items):
        if item.get_closest_marker("uml") is not None:
            assert item.parent is not None
            items[index] = InVm.from_parent(item.parent, name=item.name)
            items[index].own_markers = [*item.own_markers, pytest.mark.timeout(VM_S_MAX).mark]


def _run(nodeids: list[str]) -> dict[str, str]:
    """Run the tests inside; by test, why it failed, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        report.touch()
        pytest_inside = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--color=no",
            "--basetemp",
            f"{folder}/tmp",
        ]
        ended = subprocess.run(
            [RUNNER, *pytest_inside, *nodeids],
            env=os.environ | {REPORT: str(report)},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=VM_S_MAX,
            check=False,
        )
        told = [json.loads(line) for line in report.read_text().splitlines()]
    untold = f"did not end inside; all that was printed:\n{ended.stdout.decode(errors='replace')}"
    results = dict.fromkeys(nodeids, untold)
    for nodeid, why in told:
        results[nodeid] = why if results[nodeid] == untold else "\n".join(filter(None, [results[nodeid], why]))
    return results


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Inside, tell each phase's end to the one who waits outside. What is skipped there has not run."""
    if INSIDE and REPORT in os.environ:
        why = "" if report.passed else f"{report.when}: {report.longreprtext or report.longrepr}"
        if report.when == "call" or why:
            with Path(os.environ[REPORT]).open("a") as file:
                file.write(json.dumps([report.nodeid, why]) + "\n")
