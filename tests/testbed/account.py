"""The account of the rungs: what ran on each and how long it took, and what was left out and why."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import rungs

REQUIRE_ALL = bool(os.environ.get("SLACKTIDE_REQUIRE_ALL"))
"""A rung that this machine could run must not be skipped: what CI asks."""
LEFT = "left out"
OUTCOMES = ("passed", "failed", "skipped", "xfailed")
RUNG, FIGURES, LACK = "rung", "figures", "lack"
"""Properties of a test: they come along from whichever process ran it. ``record_property("figures", "…")`` is told."""
LEFT_OUT = pytest.StashKey[Counter[str]]()
"""By rung, how many tests a run does not have by its ``--ladder``."""
MORE = {"here": "make test-all", "ci": "make nightly"}
"""By ``--ladder``, what runs them."""


def leave_out(item: pytest.Item, lack: rungs.Lack) -> None:
    """Skip a test for what it lacks, which the account tells with the command that brings it."""
    item.add_marker(pytest.mark.skip(reason=str(lack) if lack.possible else f"{rungs.CANNOT}{lack}"))
    item.user_properties.append((LACK, str(lack)))


class Account:
    """Kept by the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tally = Counter[tuple[str, str]]()
        self._took_s = defaultdict[str, float](float)
        self._wanting = Counter[tuple[str, str]]()
        self._figures: list[str] = []
        self._lost: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """Where all is required, a file that skips itself whole is a failure, too."""
        report: pytest.CollectReport = yield
        if REQUIRE_ALL and report.skipped and rungs.CANNOT not in str(report.longrepr):
            report.outcome = "failed"
            report.longrepr = f"{collector.nodeid}: skipped although this machine can run it: {report.longrepr}"
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Where all is required, a skip that a set-up could have avoided is a failure."""
        report: pytest.TestReport = yield
        report.user_properties.append((RUNG, rungs.rung_of(item).name))
        why = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
        if REQUIRE_ALL and why and not hasattr(report, "wasxfail") and rungs.CANNOT not in why:
            report.outcome = "failed"
            report.longrepr = f"skipped although this machine can run it: {why}"
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count by rung."""
        told = dict(report.user_properties)
        if RUNG not in told:
            return  # the process that ran it has died, which pytest tells by itself
        rung = str(told[RUNG])
        self._took_s[rung] += report.duration
        if report.when == "call" or not report.passed:
            outcome = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
            self._tally[rung, outcome] += 1
            self._wanting[rung, str(told.get(LACK, ""))] += 1
            self._figures += [f"{report.nodeid}: {told[FIGURES]}"] if FIGURES in told else []

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Where all is required, a rung without a single test has been lost."""
        config = self._config
        if hasattr(config, "workerinput"):  # one of several processes, none of which has all
            config.workeroutput[LEFT] = dict(config.stash.get(LEFT_OUT, {}))
            return
        whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not (
            config.option.keyword or getattr(config.option, "lf", False)
        )
        if REQUIRE_ALL and whole and session.exitstatus == pytest.ExitCode.OK:
            ran = {rung for rung, _ in self._tally}
            self._lost = [rung.name for rung in rungs.of_ladder(self._ladder) if rung.name not in ran]
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if self._lost else pytest.ExitCode.OK

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a process has left out; all of them have the same."""
        self._config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get(LEFT, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name each rung with its count, and for what was left out the line that would get it."""
        terminalreporter.section("rungs")
        for rung in rungs.of_ladder(self._ladder):
            tally = [(self._tally[rung.name, outcome], outcome) for outcome in OUTCOMES]
            if counts := ", ".join(f"{count} {outcome}" for count, outcome in tally if count):
                terminalreporter.line(f"{rung.name:<28} {counts} in {self._took_s[rung.name]:.0f} s")
        for rung in rungs.LADDER:
            for line in self._left_out(rung):
                terminalreporter.line(f"left out: {rung.name}: {line}")
        for lost in self._lost:
            terminalreporter.line(f"{lost}: failed: no test ran, and SLACKTIDE_REQUIRE_ALL asks for every rung")
        for line in self._figures:
            terminalreporter.line(line)

    @property
    def _ladder(self) -> str:
        return str(self._config.getoption("ladder"))

    def _left_out(self, rung: rungs.Rung) -> Iterator[str]:
        """How many tests of a rung did not run, what they lack, and the command that brings it or runs them."""
        if rung.here and self._ladder == "ci":
            return  # of `make test`
        if not rung.here and self._ladder == "here":  # their folders are not even looked into
            yield f"for want of {lack}" if (lack := rung.lacks()) is not None else f"to run it: {MORE['here']}"
            return
        wanting = Counter({why: count for (name, why), count in self._wanting.items() if name == rung.name and why})
        if left := self._config.stash.get(LEFT_OUT, Counter[str]())[rung.name]:
            if (lack := rung.lacks()) is not None:
                wanting[str(lack)] += left
            else:
                yield f"{left} tests; to run them: {MORE[self._ladder]}"
        for why, count in wanting.items():
            yield f"{count} tests for want of {why}"
