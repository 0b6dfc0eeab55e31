"""Fixtures that all rungs share, and the account of the rungs at the end of a run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

# `tests` is on the path (pyproject, pythonpath), so that helpers are modules with one name.
from testbed import rungs
from testbed.brokers import EmbeddedBroker, KafkaBroker, KafkaCluster, running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.real_node import RealNode, running_node

REQUIRE_ALL = bool(os.environ.get("SLACKTIDE_REQUIRE_ALL"))
"""A rung that this machine could run must not be skipped: what CI asks."""

# Mutation testing asks only whether a test complains, not for the smallest example, and the same on each run.
settings.register_profile(
    "mutation", max_examples=50, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change is judged by the same examples each time; whoever develops meets new ones with every run.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "any machine"))

OUTCOMES = ("passed", "failed", "skipped", "xfailed")

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


@pytest.fixture(scope="session")
def _kafka_cluster() -> Iterator[KafkaCluster]:
    with running(KafkaCluster) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(_kafka_cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three brokers without topics, started once for all tests. Tests that name it carry the mark ``kafka``."""
    _kafka_cluster.forget()
    yield _kafka_cluster
    _kafka_cluster.start()


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def broker(request: pytest.FixtureRequest) -> EmbeddedBroker | KafkaBroker:
    """Both brokers in turn, each without topics: ``.bootstrap``, ``.apply_topics()``, ``.stop()``, ``.start()``."""
    found: EmbeddedBroker | KafkaBroker = request.getfixturevalue(f"{request.param}_broker")
    return found


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """A Kubernetes API, started once for all tests. Tests that name it carry the mark ``cluster``."""
    with running(ApiServer) as server:
        yield server


@pytest.fixture(scope="session")
def real_node() -> Iterator[RealNode]:
    """A cluster of one real node, which is this machine. Tests that name it carry the mark ``realnode``."""
    with running_node() as node:
        yield node


@pytest.fixture
def namespace(api_server: ApiServer) -> str:
    """A namespace that no other test has."""
    return api_server.namespace()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cheap rungs first; what a rung lacks here is said at each of its tests."""
    items.sort(key=lambda item: rungs.RUNGS.index(rungs.rung_of(item)))
    for item in items:
        for marker, lacks in rungs.LACKS.items():
            if item.get_closest_marker(marker) is not None and (lack := lacks()) is not None:
                reason = str(lack) if lack.possible else f"{rungs.CANNOT}{lack}"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Wait for what is being built before the time of a test begins that needs it."""
    if any(item.get_closest_marker(marker) is not None for marker in rungs.BUILT):
        rungs.await_programs()
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Begin the account."""
    config.stash[_tally] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Where all is required, a file that skips itself whole is a failure, too."""
    report: pytest.CollectReport = yield
    if REQUIRE_ALL and report.skipped and rungs.CANNOT not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid}: skipped although this machine can run it: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Count by rung; where all is required, a skip that a set-up could have avoided is a failure."""
    report: pytest.TestReport = yield
    why = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    outcome = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
    if REQUIRE_ALL and why and outcome == "skipped" and rungs.CANNOT not in why:
        outcome = report.outcome = "failed"
        report.longrepr = f"skipped although this machine can run it: {why}"
    if report.when == "call" or not report.passed:
        item.config.stash[_tally][rungs.rung_of(item), outcome] += 1
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where all is required, a rung without a single test has been lost."""
    config = session.config
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    if REQUIRE_ALL and whole and session.exitstatus == pytest.ExitCode.OK and set(rungs.RUNGS) - _ran(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _ran(config: pytest.Config) -> set[str]:
    return {rung for rung, _ in config.stash[_tally]}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name each rung with its count, and for what was left out the line that would get it."""
    tally = config.stash[_tally]
    terminalreporter.section("rungs")
    for rung in rungs.RUNGS:
        counts = [f"{tally[rung, outcome]} {outcome}" for outcome in OUTCOMES if tally[rung, outcome]]
        terminalreporter.line(f"{rung:<28} {', '.join(counts) or 'none'}")
    for marker, lacks in rungs.LACKS.items():
        if tally[rungs.BY_MARKER[marker], "skipped"] and (lack := lacks()) is not None:
            terminalreporter.line(f"{rungs.BY_MARKER[marker]}: skipped for want of {lack}")
