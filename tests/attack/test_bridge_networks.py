"""Partitions, losses in one direction and slow links between the bridge that leads and the API server; each heals.

An API server, two bridges, a broker, a worker and two agents, each in a network namespace of its own. A bridge's lease
ends after 3 s here, and a fault may last longer: then the other one leads.
"""

import random
from collections.abc import Callable, Iterator

import pytest

from attack.faults import seed_of_this_run
from attack.links import FAULTS
from attack.load import Load
from attack.mirror import Mirror
from attack.system import System
from testbed.brokers import EmbeddedBroker, running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.manifests import applied
from testbed.history import checks
from testbed.lan import Lan

pytestmark = [pytest.mark.attack, pytest.mark.netns, pytest.mark.cluster]
BRIDGES, API_SERVER = ("bridge-0", "bridge-1"), "api-server"
HOLDS_S, LOOK_S = (3.5, 5.5), 0.25
SESSION = ["--session-timeout", "3"]


@pytest.fixture(scope="module")
def lan() -> Iterator[Lan]:
    with Lan() as lan:
        for name in ("test", "broker", API_SERVER, *BRIDGES, "worker-0", "agent-node-0", "agent-node-1"):
            lan.join(name)
        yield lan


@pytest.fixture(scope="module")
def server(lan: Lan) -> Iterator[ApiServer]:
    with applied(lambda folder: ApiServer(folder, lan.hosts[API_SERVER], lan.hosts["test"])) as server:
        yield server


@pytest.fixture(scope="module")
def system(lan: Lan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("system")
    with running(lambda made: EmbeddedBroker(made, lan.hosts["broker"])) as broker:
        lan.hosts["test"].inside(lambda: broker.apply_topics(1))
        with System(folder, broker.bootstrap, workers=1, hosts=lan.hosts, worker_options=SESSION) as system:
            yield system


@pytest.fixture(scope="module")
def mirror(lan: Lan, server: ApiServer, system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    hosts = {name: lan.hosts[name] for name in BRIDGES}
    with Mirror(tmp_path_factory.mktemp("bridges"), system, server, hosts) as mirror:
        yield mirror


@pytest.fixture(scope="module")
def dice() -> random.Random:
    return random.Random(seed_of_this_run())


@pytest.mark.parametrize(
    "fault", [pytest.param(FAULTS[0], marks=pytest.mark.story), *FAULTS[1:]], ids=lambda each: each.__name__
)
def test_a_link_to_the_api_server_that_fails_and_heals_breaks_no_invariant(
    lan: Lan, system: System, mirror: Mirror, dice: random.Random,
    fault: Callable[..., str], record_property: Callable[[str, str], None],
) -> None:  # fmt: skip
    leader, node = mirror.leader, dice.choice(system.nodes).name
    what = f"{leader} and {API_SERVER}: {fault(lan, (leader, API_SERVER), dice)}"
    load, holds_s = Load(system.nodes, dice), dice.uniform(*HOLDS_S)
    try:
        mirror.strip(node)
        for number in range(round(holds_s / LOOK_S)):
            mirror.relabel(node, f"{fault.__name__}-{number}")
            load.wait(LOOK_S)
            mirror.look(node)
    finally:
        lan.heal()
    mirror.wait_shown(node)
    verdicts = mirror.judge()
    told = [f"{what} for {holds_s:.1f} s, then {mirror.leader} leads", *(each.line for each in verdicts)]
    record_property("figures", "; ".join(told))

    assert all(part.running for part in [*system.parts, *mirror.bridges]), mirror.described()
    assert not checks.broken(verdicts), f"{what}\n{checks.report(verdicts)}"


@pytest.mark.story
def test_afterwards_the_whole_history_breaks_no_invariant(
    system: System, record_property: Callable[[str, str], None]
) -> None:
    verdicts = checks.judge(system.history())
    record_property("figures", "; ".join(each.line for each in verdicts if each.checked))

    assert not checks.broken(verdicts), checks.report(verdicts)
