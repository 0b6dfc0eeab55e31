"""Random faults on real processes, then quiet; afterwards every invariant of the history holds.

``SLACKTIDE_SEED=123 make test ARGS=tests/attack/test_random_faults.py`` draws the same schedule again.
"""

import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from attack.faults import Saboteur, schedule, seed_of_this_run
from attack.system import System
from testbed.background import Background
from testbed.brokers import KafkaBroker, KafkaCluster
from testbed.history import checks
from testbed.history.records import History
from testbed.one_machine import MEM_BYTES, VirtualNode, eventually
from testbed.rungs import NIGHTLY
from testbed.spawning import spawn

EACH_S = 0.25
FILLS = 0.75
"""The part of a node's memory that such a pod takes: more than the policy leaves to all."""
PROCESS = ["sleep", "600"]


class Tenants(Background):
    """Each node has one such pod, with a real process. When that has ended the pod is gone, and the next one comes."""

    def __init__(self, nodes: Sequence[VirtualNode], folder: Path) -> None:
        super().__init__()
        self.gone = 0
        """Pods whose process was ended."""
        self._nodes, self._log = nodes, folder / "tenants.log"
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        """By node, its pod and the pod's process."""

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for _, process in self._running.values():
            process.kill()
            process.wait()

    def wait_evicted(self, within_s: float = 60.0) -> None:
        """Wait until one more is evicted.

        Raises:
            AssertionError: none is, in time.

        """
        before = self.gone
        assert eventually(lambda: self.gone > before, within_s), f"no pod is evicted within {within_s:g} s"

    def _run(self) -> None:
        while not self._over.wait(EACH_S):
            for node in self._nodes:
                name, process = self._running.get(node.name, ("", None))
                if process is None:
                    self._come(node)
                elif process.poll() is not None:
                    node.remove_batch(name)
                    del self._running[node.name]
                    self.gone += 1

    def _come(self, node: VirtualNode) -> None:
        name = f"tenant-{self.gone}"
        process = spawn(PROCESS, self._log)
        self._running[node.name] = name, process
        node.add_batch(name, mem_bytes=round(FILLS * MEM_BYTES), pid=process.pid)


pytestmark = [pytest.mark.kafka, pytest.mark.attack]
PARTITIONS = 4
SCHEDULES = 5 if NIGHTLY else 1
LASTS_S, BRIEFLY_S = 25.0, 15.0
AGENT = [sys.executable, str(Path(__file__).parents[1] / "testbed/plain_groups_agent.py")]
ABOUT_EVICTIONS = "evictions within credit", "no pod evicted twice"


def survive(
    folder: Path, brokers: Sequence[KafkaBroker], lasts_s: float, heal: Callable[[], None], tell: Callable[..., None]
) -> History:
    """Faults for a while, then everything is whole again and goes quiet. Pods are evicted before, after and meanwhile.

    Raises:
        AssertionError: an invariant is broken, or it does not go quiet; with the seed, the faults and the parts.

    """
    seed = seed_of_this_run()
    dice = random.Random(seed)
    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    with (
        System(folder, bootstrap, agent_program=AGENT, agent_options=["--eviction-grace", "2"]) as system,
        Tenants(system.nodes, folder) as tenants,
    ):
        counts = {"agents": len(system.agents), "workers": len(system.workers), "brokers": len(brokers)}
        faults = schedule(dice, lasts_s, **counts)
        saboteur = Saboteur(system, brokers, dice)
        told = "\n".join([f"seed {seed}", *map(str, faults)])
        try:
            tenants.wait_evicted()
            saboteur.run(faults)
            heal()
            system.heal()
            tenants.wait_evicted()
            system.wait_quiet()
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\n{told}\n{system.described()}") from wrong
        finally:
            saboteur.close()
        history = system.history()
    verdicts = checks.judge(history)
    tell("figures", f"seed {seed}, {len(faults)} faults; " + "; ".join(each.line for each in verdicts))
    assert not checks.broken(verdicts), f"{checks.report(verdicts)}\n{told}"
    checked = {each.invariant: each.checked for each in verdicts}
    assert min(checked[about] for about in ABOUT_EVICTIONS) >= 2, checks.report(verdicts)
    return history


@pytest.mark.story
@pytest.mark.parametrize("schedule_number", range(SCHEDULES))
def test_random_faults_on_one_broker_break_no_invariant(
    schedule_number: int, kafka_broker: KafkaBroker, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    kafka_broker.apply_topics(PARTITIONS)

    def heal() -> None:
        if not kafka_broker.running:
            kafka_broker.start()

    history = survive(tmp_path, [kafka_broker], LASTS_S, heal, record_property)

    assert len(history.samples) > LASTS_S


@pytest.mark.parametrize("schedule_number", range(SCHEDULES))
def test_random_faults_on_three_brokers_break_no_invariant(
    schedule_number: int, kafka_cluster: KafkaCluster, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    kafka_cluster.apply_topics(PARTITIONS)
    history = survive(tmp_path, kafka_cluster.nodes, BRIEFLY_S, kafka_cluster.start, record_property)

    assert len(history.samples) > BRIEFLY_S
