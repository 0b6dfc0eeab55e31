"""Koordinator and Slacktide on the test bed's node, each alone, as processes of this machine."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.process import Slacktide
from bench.rig import Rig
from testbed.brokers import KafkaBroker
from testbed.cluster.host_parts import agent_arguments, bridge_arguments
from testbed.cluster.real_koordinator import NAMESPACE, Koordlet, Manager
from testbed.cluster.real_node import RealNode


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One that runs."""

    name: str
    on_node: dict[str, int]
    """Pids by name of what each node has."""
    central: dict[str, int]
    """Pids by name of what a cluster has once."""
    silence: Callable[[], None]
    """Ends what the node has, at once."""


Start = Callable[[Rig, RealNode, Path], contextlib.AbstractContextManager[System]]
"""``with start(rig, node, proc)``: the folder stands in for the node's /proc."""


@contextlib.contextmanager
def koordinator(_: Rig, node: RealNode, proc: Path) -> Iterator[System]:
    """Run koordlet and koord-manager; its webhooks are not part of the loop."""
    manager, koordlet = Manager(node, webhooks=False), Koordlet(node, proc=proc)
    try:
        manager.start()
        koordlet.start()
        yield System(
            name="Koordinator",
            on_node={"koordlet": koordlet.program.pid},
            central={"koord-manager": manager.program.pid},
            silence=lambda: koordlet.program.stop(signal.SIGKILL),
        )
    finally:
        koordlet.stop()
        manager.stop()


@contextlib.contextmanager
def slacktide(rig: Rig, node: RealNode, proc: Path) -> Iterator[System]:
    """Run agent, worker, bridge and Kafka."""
    broker = rig.kafka()
    bootstrap = broker.bootstrap
    state = rig.folder / f"state-{len(list(rig.folder.iterdir()))}"
    arguments = [*agent_arguments(node, bootstrap, state), f"--proc-mount={proc}"]
    with (
        stopped_after(broker),
        Slacktide(rig, "bridge", *bridge_arguments(node, bootstrap, NAMESPACE)) as bridge,
        Slacktide(rig, "stream", "--bootstrap", bootstrap) as stream,
        Slacktide(rig, "agent", *arguments) as agent,
    ):
        for each in (bridge, stream, agent):
            each.wait_ready()
        pids = {"worker": stream.process.pid, "bridge": bridge.process.pid, "Kafka": broker.pid}
        yield System(name="Slacktide", on_node={"agent": agent.process.pid}, central=pids, silence=agent.process.kill)


@contextlib.contextmanager
def stopped_after(broker: KafkaBroker) -> Iterator[None]:
    """Let no Kafka run beside the other system."""
    try:
        yield
    finally:
        broker.stop()


def cost(pids: dict[str, int]) -> dict[str, tuple[float, float]]:
    """CPU seconds so far and resident MiB, by name."""
    found = {}
    for name, pid in pids.items():
        process = psutil.Process(pid)
        times = process.cpu_times()
        found[name] = times.user + times.system, process.memory_info().rss / (1 << 20)
    return found
