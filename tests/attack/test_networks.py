"""Partitions, losses in one direction and slow links between every pair of roles; each heals, and invariants hold.

Three brokers, two workers and two agents, each in a network namespace of its own.
"""

import random
from collections.abc import Callable, Iterator

import pytest

from attack.faults import seed_of_this_run
from attack.links import FAULTS, Pair
from attack.load import Load
from attack.system import System
from slacktide.schemas.topics import CREDIT, SAMPLE
from testbed.brokers import REPLICAS, KafkaBroker, KafkaCluster, running
from testbed.history import checks
from testbed.lan import Lan
from testbed.parts import Part

pytestmark = [pytest.mark.kafka, pytest.mark.attack, pytest.mark.netns]
PARTITIONS = 4
HOLDS_S, SETTLE_S = (1.5, 2.5), 0.5
BROKERS = [f"broker-{number}" for number in range(REPLICAS)]


@pytest.fixture(scope="module")
def lan() -> Iterator[Lan]:
    with Lan() as lan:
        yield lan


@pytest.fixture(scope="module")
def cluster(lan: Lan) -> Iterator[KafkaCluster]:
    asking, hosts = lan.join("test"), [lan.join(name) for name in BROKERS]
    with running(lambda folder: KafkaCluster(folder, hosts, asking)) as cluster:
        cluster.apply_topics(PARTITIONS)
        yield cluster


@pytest.fixture(scope="module")
def system(lan: Lan, cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    for name in ("worker-0", "worker-1", "agent-node-0", "agent-node-1"):
        lan.join(name)
    with System(tmp_path_factory.mktemp("system"), cluster.bootstrap, hosts=lan.hosts) as system:
        yield system


@pytest.fixture(scope="module")
def dice() -> random.Random:
    return random.Random(seed_of_this_run())


def of_broker(cluster: KafkaCluster, broker: KafkaBroker) -> str:
    return BROKERS[cluster.nodes.index(broker)]


def agent_and_broker(system: System, cluster: KafkaCluster, dice: random.Random) -> list[Pair]:
    """One agent loses all brokers, as with its uplink."""
    agent: Part = dice.choice(system.agents)
    return [(agent.name, broker) for broker in BROKERS]


def worker_and_broker(system: System, cluster: KafkaCluster, dice: random.Random) -> list[Pair]:
    """One worker loses the broker that leads a partition of the samples."""
    leader = cluster.leader_of(SAMPLE.name, dice.randrange(PARTITIONS))
    return [(dice.choice(system.workers).name, of_broker(cluster, leader))]


def governor_and_broker(system: System, cluster: KafkaCluster, dice: random.Random) -> list[Pair]:
    """The worker that governs loses the broker that leads the credit topic."""
    return [(system.governor.name, of_broker(cluster, cluster.leader_of(CREDIT.name, 0)))]


def broker_and_broker(system: System, cluster: KafkaCluster, dice: random.Random) -> list[Pair]:
    """A leader loses one of its followers; clients reach both."""
    one, other = dice.sample(BROKERS, 2)
    return [(one, other)]


PAIRS = [agent_and_broker, worker_and_broker, governor_and_broker, broker_and_broker]
CASES = [
    pytest.param(
        pairs,
        fault,
        id=f"{pairs.__name__}-{fault.__name__}",
        marks=[pytest.mark.story] if (pairs, fault) == (agent_and_broker, FAULTS[0]) else [],
    )
    for pairs in PAIRS
    for fault in FAULTS
]


@pytest.mark.parametrize(("pairs", "fault"), CASES)
def test_a_link_that_fails_and_heals_breaks_no_invariant(
    lan: Lan, cluster: KafkaCluster, system: System, dice: random.Random,
    pairs: Callable[..., list[Pair]], fault: Callable[..., str], record_property: Callable[[str, str], None],
) -> None:  # fmt: skip
    what = [f"{pair[0]} and {pair[1]}: {fault(lan, pair, dice)}" for pair in pairs(system, cluster, dice)]
    try:
        Load(system.nodes, dice).wait(dice.uniform(*HOLDS_S))
    finally:
        lan.heal()
    system.wait_quiet(SETTLE_S)
    verdicts = checks.judge(system.glimpse())
    record_property("figures", "; ".join([*what, *(each.line for each in verdicts if each.checked)]))

    assert all(part.running for part in system.parts), system.described()
    assert not checks.broken(verdicts), f"{what}\n{checks.report(verdicts)}"


@pytest.mark.story
def test_afterwards_the_whole_history_breaks_no_invariant(
    system: System, record_property: Callable[[str, str], None]
) -> None:
    verdicts = checks.judge(system.history())
    record_property("figures", "; ".join(each.line for each in verdicts))

    assert not checks.broken(verdicts), checks.report(verdicts)
