"""Tests marked ``uml`` or ``qemu`` run under another kernel, booted once for all of a mark; each shows how it ended."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.groups import V1, V2, Groups
from slacktide.agents.node.cgroup import CgroupKernel
from testbed.account import FIGURES

HERE = Path(__file__).parent
RUNNERS = {"uml": HERE / "cgroup2-vm", "qemu": HERE / "cgroup2-qemu"}
"""By mark."""
MACHINE = {"CGROUP2_QEMU_CPUS": "4", "CGROUP2_QEMU_ZONES": "2"}
"""Enough CPUs for a pod of each class, in two NUMA zones."""
INSIDE = "CGROUP2_VM" in os.environ
REPORT = "CGROUP2_VM_REPORT"
STILL_S, VM_S_MAX = 240, 1_800
"""How long a kernel may tell and print nothing: then it is booted once more, and the account tells of it. And how long
all its tests may take (QEMU: 40 s), however busy the machine is.

QEMU has stood still once in some hundred runs: whoever waits for it any longer learns nothing more.
"""

# What is imported before the first test costs ten times as long in QEMU: no plugin and no conftest without need.
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--color=no"]

_results = pytest.StashKey[dict[str, dict[str, str]]]()
"""By mark and test, why it failed, or ""."""


@pytest.fixture(params=[V1, V2])
def groups(request: pytest.FixtureRequest) -> Iterator[Groups]:
    """The groups of a node in a real kernel, on each version of cgroups."""
    made = Groups(request.param)
    if request.node.get_closest_marker("alone"):
        made.outweigh()
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

    def __init__(self, *, mark: str, **given: object) -> None:
        super().__init__(**given)
        self.vm = mark

    def runtest(self) -> None:
        """Boot if nobody has, and look up how it ended."""
        results = self.config.stash.setdefault(_results, {})
        if self.vm not in results:
            inside = [item for item in self.session.items if isinstance(item, InVm) and item.vm == self.vm]
            results[self.vm], stood_still = _run(RUNNERS[self.vm], [item.nodeid for item in inside])
            if stood_still:
                told = f"{self.vm} stood still for {STILL_S} s and was booted anew; it had said:\n{stood_still}"
                self.user_properties.append((FIGURES, told))
        if why := results[self.vm][self.nodeid]:
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
        for mark in RUNNERS:
            marker = item.get_closest_marker(mark)
            if marker is not None and marker.kwargs.get("inside", True):
                assert item.parent is not None
                items[index] = InVm.from_parent(item.parent, name=item.name, mark=mark)
                longest = pytest.mark.timeout(2 * VM_S_MAX + STILL_S)
                items[index].own_markers = [*item.own_markers, longest.mark, pytest.mark.alone.mark]


def _run(runner: Path, nodeids: list[str]) -> tuple[dict[str, str], str]:
    """Run the tests inside; by test, why it failed, or "". And what a kernel that stood still had said."""
    ended, results, printed = _booted(runner, nodeids)
    if ended:
        return results, ""
    return _booted(runner, nodeids)[1], printed


def _booted(runner: Path, nodeids: list[str]) -> tuple[bool, dict[str, str], str]:
    """Whether the kernel came to an end, how each test ended, and all that was printed."""
    with tempfile.TemporaryDirectory() as folder:
        report, output = Path(folder, "report"), Path(folder, "output")
        report.touch()
        with (
            output.open("wb") as out,
            subprocess.Popen(
                [sys.executable, runner, *PYTEST, f"--confcutdir={HERE}", f"--basetemp={folder}/tmp", *nodeids],
                env=os.environ | MACHINE | {REPORT: str(report)},
                cwd=HERE.parents[1],
                stdout=out,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            ended = _ended(process, [report, output])
            if not ended:
                process.terminate()
        told = [json.loads(line) for line in report.read_text().splitlines()]
        printed = output.read_text(errors="replace")
    unfinished = f"did not end inside; all that was printed:\n{printed}"
    results = dict.fromkeys(nodeids, unfinished)
    for nodeid, why in told:
        results[nodeid] = why if results[nodeid] == unfinished else "\n".join(filter(None, [results[nodeid], why]))
    return ended, results, printed


def _ended(process: subprocess.Popen[bytes], files: list[Path]) -> bool:
    """Whether it comes to an end, for as long as these files grow."""
    begun_s = grown_s = time.monotonic()
    sizes: list[int] = []
    while process.poll() is None:
        now_s, before, sizes = time.monotonic(), sizes, [file.stat().st_size for file in files]
        grown_s = grown_s if sizes == before else now_s
        if now_s > min(grown_s + STILL_S, begun_s + VM_S_MAX):
            return False
        time.sleep(0.2)
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Inside, tell each phase's end to the one who waits outside. What is skipped there has not run."""
    if INSIDE and REPORT in os.environ:
        why = "" if report.passed else f"{report.when}: {report.longreprtext or report.longrepr}"
        if report.when == "call" or why:
            with Path(os.environ[REPORT]).open("a") as file:
                file.write(json.dumps([report.nodeid, why]) + "\n")
