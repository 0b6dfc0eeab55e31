"""Fixtures that all rungs share, in which order tests run, and where."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

# `tests` is on the path (pyproject, pythonpath), so that helpers are modules with one name.
from testbed import lanes, rungs
from testbed.account import Account
from testbed.brokers import EmbeddedBroker, KafkaBroker, KafkaCluster, running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.real_node import RealNode, running_node

# Mutation testing asks only whether a test complains, not for the smallest example, and the same on each run.
settings.register_profile(
    "mutation", max_examples=50, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
# `make quick`: few examples, the same each time.
settings.register_profile(
    "quick", max_examples=10, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change is judged by the same examples each time; whoever develops meets new ones with every run.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "any machine"))


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
    lanes.weigh(light=rungs.rung_of(item) in rungs.COMPUTING)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Begin the account."""
    config.pluginmanager.register(Account(config))
    # Whoever is started in the background by a shell ignores Ctrl-C, and so would all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> lanes.Lanes | None:
    """Share the tests out by lanes where there are several processes, unless --dist asks for another way."""
    return lanes.Lanes(config, log) if config.getoption("dist") == "load" else None
