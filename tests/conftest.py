"""Fixtures that all rungs share, in which order tests run, and where."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

# `tests` is on the path (pyproject, pythonpath), so that helpers are modules with one name.
from testbed import pool, rungs
from testbed.account import LEFT_OUT, Account, leave_out
from testbed.brokers import EmbeddedBroker, KafkaBroker, KafkaCluster, running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.real_node import RealNode, running_node
from testbed.reaching import unmarked

# How long an example takes says how busy the machine is, and is no property's fault.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
SAME = {"derandomize": True, "database": None}
# Mutation testing asks only whether a test complains, not for the smallest example, and the same on each run.
settings.register_profile("mutation", max_examples=50, phases=[Phase.explicit, Phase.generate], **SAME, **PATIENT)
# A change is judged by the same examples each time; whoever develops, and each night, meets new ones.
settings.register_profile("few", max_examples=10, **SAME, **PATIENT)
settings.register_profile("ci", max_examples=25, **SAME, **PATIENT)
settings.register_profile("developer", max_examples=50, **PATIENT)
settings.register_profile("nightly", max_examples=200, print_blob=True, **PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "developer"))


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


def pytest_addoption(parser: pytest.Parser) -> None:
    """How far up the ladder a run goes."""
    parser.addoption(
        "--ladder",
        choices=("here", "ci", "all"),
        default="all",
        help="here: what needs nothing but Python; ci: the shortest whole story of each other rung; all: everything",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Importing tests takes longer than many rungs: a run does not import folders of which it wants none."""
    unwanted = {"here": rungs.COSTLY, "ci": pool.COMPUTING, "all": ()}[config.getoption("ladder")]
    return True if f"{collection_path.relative_to(config.rootpath)}/" in unwanted else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the rungs that are asked for, cheap ones first; what one lacks here is the reason of each of its tests."""
    if lost := next(filter(pool.is_lost, items), None):
        raise pytest.UsageError(
            f"{lost.nodeid} stands on the rung {rungs.rung_of(lost).name}, and no run of that has it"
        )
    ladder = config.getoption("ladder")
    found: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        found[rungs.is_wanted(item, ladder)].append(item)
    items[:], left = found[True], found[False]
    config.hook.pytest_deselected(items=left)
    items.sort(key=pool.place)
    config.stash[LEFT_OUT] = Counter(rungs.rung_of(item).name for item in left)
    for item in items:
        if (lack := rungs.lack_of(item)) is not None:
            leave_out(item, lack)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Before the time of a test begins, wait for what is being built, and for its turn."""
    rungs.await_built(rungs.rung_of(item))
    pool.weigh(light=pool.computes(item.nodeid))
    with pool.turn(item, nextitem):
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where a rung is lacking, a test without its mark would not be skipped: it fails everywhere instead."""
    if lacking := unmarked(item):
        pytest.fail(lacking, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Once the fixtures of the test have ended, end those of its unit."""
    yield
    pool.end_unit_fixtures(item, nextitem)


def pytest_configure(config: pytest.Config) -> None:
    """Begin the account."""
    config.pluginmanager.register(Account(config))
    # Whoever is started in the background by a shell ignores Ctrl-C, and so would all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> pool.Pool | None:
    """Share the tests out by files where there are several processes, unless --dist asks for another way."""
    return pool.Pool(config, log) if config.getoption("dist") == "load" else None
