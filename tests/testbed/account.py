"""The account of the rungs: what ran on each and how long it took, and what was left out and why."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from testbed import rungs

REQUIRE_ALL = bool(os.environ.get("SLACKTIDE_REQUIRE_ALL"))
"""A rung that this machine could run must not be skipped: what CI asks."""
OUTCOMES = ("passed", "failed", "skipped", "xfailed")
RUNG, FIGURES = "rung", "figures"
"""Properties of a test: they come along from whichever process ran it. ``record_property("figures", "…")`` is told."""


class Account:
    """Kept by the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tally = Counter[tuple[str, str]]()
        self._took_s = defaultdict[str, float](float)
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
        report.user_properties.append((RUNG, rungs.rung_of(item)))
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
            self._figures += [f"{report.nodeid}: {told[FIGURES]}"] if FIGURES in told else []

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Where all is required, a rung without a single test has been lost, unless it runs apart."""
        config = self._config
        whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not (
            config.option.keyword or getattr(config.option, "lf", False)
        )
        part = hasattr(config, "workerinput")  # one of several processes, none of which has all
        if REQUIRE_ALL and whole and not part and session.exitstatus == pytest.ExitCode.OK:
            apart = {rungs.APART.get(str(path)) for path in config.option.ignore or ()}
            ran = {rung for rung, _ in self._tally}
            self._lost = [rung for rung in rungs.RUNGS if rung not in ran | apart]
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if self._lost else pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name each rung with its count, and for what was left out the line that would get it."""
        tally = self._tally
        terminalreporter.section("rungs")
        for rung in rungs.RUNGS:
            counts = [f"{tally[rung, outcome]} {outcome}" for outcome in OUTCOMES if tally[rung, outcome]]
            took = f" in {self._took_s[rung]:.0f} s" if counts else ""
            terminalreporter.line(f"{rung:<28} {', '.join(counts) or 'none'}{took}")
        for marker, lacks in rungs.LACKS.items():
            if tally[rungs.BY_MARKER[marker], "skipped"] and (lack := lacks()) is not None:
                terminalreporter.line(f"{rungs.BY_MARKER[marker]}: skipped for want of {lack}")
        for rung in self._lost:
            terminalreporter.line(f"{rung}: failed: no test ran, and SLACKTIDE_REQUIRE_ALL asks for every rung")
        for line in self._figures:
            terminalreporter.line(line)
