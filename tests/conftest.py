"""Fixtures that all rungs share, and the account of the rungs at the end of a run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

# `tests` is on the path (pyproject, pythonpath), so that helpers are modules with one name.
from testbed import rungs
from testbed.brokers import EmbeddedBroker, KafkaBroker, running

REQUIRE_ALL = bool(os.environ.get("SLACKTIDE_REQUIRE_ALL"))
"""A rung that this machine could run must not be skipped: what CI asks."""

_tally = pytest.StashKey[Counter[tuple[str, str]]]()


@pytest.fixture(scope="session")
def _kafka() -> Iterator[KafkaBroker]:
    with running(KafkaBroker) as broker:
        yield broker


@pytest.fixture
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """The embedded broker, fresh and without topics."""
    with running(EmbeddedBroker) as broker:
        yield broker


@pytest.fixture
def kafka_broker(_kafka: KafkaBroker) -> Iterator[KafkaBroker]:
    """Apache Kafka without topics: one process for all tests. Tests that name it carry the mark ``kafka``."""
    _kafka.forget()
    yield _kafka
    if not _kafka.running:
        _kafka.start()


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def broker(request: pytest.FixtureRequest) -> EmbeddedBroker | KafkaBroker:
    """Both brokers in turn, each without topics: ``.bootstrap``, ``.apply_topics()``, ``.stop()``, ``.start()``."""
    found: EmbeddedBroker | KafkaBroker = request.getfixturevalue(f"{request.param}_broker")
    return found


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cheap rungs first; what a rung lacks here is said at each of its tests."""
    items.sort(key=lambda item: rungs.RUNGS.index(rungs.rung_of(item)))
    for item in items:
        for marker, lacks in rungs.LACKS.items():
            if item.get_closest_marker(marker) is not None and (lack := lacks()) is not None:
                reason = str(lack) if lack.possible else f"{rungs.CANNOT}{lack}"
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure(config: pytest.Config) -> None:
    """Begin the account."""
    config.stash[_tally] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Count by rung; where all is required, a skip that a set-up could have avoided is a failure."""
    report: pytest.TestReport = yield
    why = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    if REQUIRE_ALL and why and rungs.CANNOT not in why and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although this machine can run it: {why}"
    if report.when == "call" or not report.passed:
        item.config.stash[_tally][rungs.rung_of(item), report.outcome] += 1
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name each rung with its count, and for what was left out the line that would get it."""
    tally = config.stash[_tally]
    terminalreporter.section("rungs")
    for rung in rungs.RUNGS:
        counts = [
            f"{tally[rung, outcome]} {outcome}" for outcome in ("passed", "failed", "skipped") if tally[rung, outcome]
        ]
        terminalreporter.line(f"{rung:<28} {', '.join(counts) or 'none'}")
    for marker, lacks in rungs.LACKS.items():
        if tally[rungs.BY_MARKER[marker], "skipped"] and (lack := lacks()) is not None:
            terminalreporter.line(f"{rungs.BY_MARKER[marker]}: skipped for want of {lack}")
