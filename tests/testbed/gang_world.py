"""Gangs between one kube-scheduler and replicas of its extender, which share a topic. Time moves by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from slacktide.agents.cluster.scheduler.gang_group import Now
from slacktide.agents.cluster.scheduler.node import Size
from slacktide.agents.cluster.scheduler.view import View
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.gang import GangPlan
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.score import NodeScore
from slacktide.streams.decisions.gang.membership import GATE, LEAST, NAME
from slacktide.streams.decisions.load.load_aware_estimator import Amounts
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from testbed.kube_scheduler import GIB, WALL_S, Still, answers, figures, manifest, question
from testbed.scheduler_pods import parsed

Json = dict[str, Any]
FLUSH_S = 20.0
"""A kube-scheduler with the component's arguments tries each pending pod again after this time."""


class Replica:
    """An extender, and how far it has read the topic."""

    def __init__(self, world: GangWorld, name: str) -> None:
        self.name, self.world, self.read = name, world, 0
        self.placements: list[PodPlacement] = []
        self.view = View(PlacementArgs())
        self.answers = answers(self.view, self.placements.append, world.clock, name, world.publish)

    @property
    def now(self) -> Now:
        return Now.by(self.world.clock)

    def catch_up(self, records: int | None = None) -> None:
        """Read the topic to its end, or so many records."""
        topic = self.world.topic
        until = len(topic) if records is None else min(len(topic), self.read + records)
        while self.read < until:
            group, plan = topic[self.read]
            self.read += 1
            self.answers.gangs.read(group, plan, self.now)

    def filter(self, pod: Json, nodes: Iterable[str]) -> Json:
        """Ask as a kube-scheduler does; whatever the replica writes is read back before it answers."""
        answer = self.answers.filter(question(pod, list(nodes)))
        if isinstance(answer, Awaitable):
            self.catch_up()
            answer = asyncio.run(_result(answer))
        found: Json = json.loads(answer)
        return found


async def _result(answer: Awaitable[bytes]) -> bytes:
    return await answer


class GangWorld:
    """Nodes of 32 CPUs, the pods of the API server, and replicas ``a`` (which is asked) and others."""

    def __init__(self, *replicas: str, nodes: int = 2, batch: int = 4_000) -> None:
        self.clock = Still()
        self.topic: list[tuple[str, GangPlan | None]] = []
        self.pods: dict[str, Json] = {}
        self.nodes = [f"n{number}" for number in range(nodes)]
        self.replicas = {name: Replica(self, name) for name in replicas or ("a",)}
        self.lead = next(iter(self.replicas))
        self.refused: dict[str, str] = {}
        """By pod the last message of the extender."""
        self._active: dict[str, None] = {}
        """Pods that the kube-scheduler tries next."""
        self._flushed_s = self.clock.now_s
        for node in self.nodes:
            self.offers(node, batch)

    def publish(self, group: str, plan: GangPlan | None) -> None:
        self.topic.append((group, plan))

    @property
    def log(self) -> list[GangPlan]:
        """Plans, their ends and reasons to wait."""
        return [plan for _, plan in self.topic if plan is not None]

    def offers(self, node: str, batch: int) -> None:
        """A node's news: so much batch CPU."""
        seq = round(self.clock.now_s * 1_000) + 1
        for one in self.replicas.values():
            for record in figures(node, batch=batch, seq=seq, cpu=32_000):
                one.view.receive(record, received_s=self.clock.now_s, logged_s=WALL_S)

    def has(self, node: str, *, cpu_milli: int, mem_bytes: int = 16 * GIB) -> None:
        size = Size(Amounts(cpu_milli, mem_bytes), Amounts(cpu_milli, mem_bytes))
        for one in self.replicas.values():
            one.view.has(node, size)

    def passes(self, seconds: float) -> None:
        self.clock.now_s += seconds
        for node in self.nodes:  # its agent still reports
            for one in self.replicas.values():
                for kind in (NodeScore, NodeMetric, NodeAllocatable):
                    one.view.cover([node], kind, received_s=self.clock.now_s)

    def pod(
        self, name: str, gang: str = "", least: int | str = 1, *, gated: bool = True,
        cpu: str = "1000", annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Json:  # fmt: skip
        """Create a pod; with ``gang`` one by annotations."""
        made = manifest(name, cpu=cpu, **spec)
        own = {NAME: gang, LEAST: str(least)} if gang else {}
        made["metadata"] |= {"annotations": {**own, **(annotations or {})}, "labels": dict(labels or {})}
        if gated:
            made["spec"]["schedulingGates"] = [*made["spec"].get("schedulingGates", []), {"name": GATE}]
        self.pods[name] = made
        self._seen(made)
        if not made["spec"].get("schedulingGates"):
            self._active[name] = None
        return made

    def gang(self, name: str, pods: int, least: int | None = None, **given: Any) -> list[str]:
        """Create the pods of a gang; their names."""
        names = [f"{name}-{number}" for number in range(pods)]
        for one in names:
            self.pod(one, name, pods if least is None else least, **given)
        return names

    def delete(self, name: str) -> None:
        pod = self.pods.pop(name)
        for one in self.replicas.values():
            one.view.gone(("batch", name))
            one.answers.gangs.gone(("batch", name))
        self.refused.pop(pod["metadata"]["name"], None)

    def bind(self, name: str, node: str) -> None:
        self.pods[name]["spec"] |= {"nodeName": node}
        self._seen(self.pods[name])

    def _seen(self, pod: Json) -> None:
        for one in self.replicas.values():
            read = parsed(pod)
            one.view.changed(read, at_s=self.clock.wall_ms() / 1_000)
            one.answers.gangs.changed(read, one.now)

    def release(self, name: str) -> None:
        gates = self.pods[name]["spec"].get("schedulingGates", [])
        self.pods[name]["spec"]["schedulingGates"] = [one for one in gates if one["name"] != GATE]
        self._seen(self.pods[name])
        self._active[name] = None

    def tick(self, *replicas: str) -> tuple[list[str], list[str]]:
        """Each replica reads, and writes what it wants to; names of released and woken pods."""
        released, woken = [], []
        for name in replicas or tuple(self.replicas):
            one = self.replicas[name]
            one.catch_up()
            work = one.answers.gangs.tick(one.now)
            one.catch_up()
            released += [pod.key[1] for pod in work.release]
            woken += [pod.key[1] for pod in work.wake]
        for name in dict.fromkeys(released):
            self.release(name)
        return sorted(set(released)), sorted(set(woken))

    def try_pod(self, name: str, nodes: Iterable[str] | None = None) -> str:
        """A kube-scheduler tries a pod, and binds it; its node, "": none."""
        pod = self.pods[name]
        assert not pod["spec"].get("schedulingGates"), f"{name} is gated"
        lead, offered = self.replicas[self.lead], self.nodes if nodes is None else list(nodes)
        found = lead.filter(pod, offered)
        if not found["NodeNames"]:
            self.refused[name] = " ".join(sorted(set(found["FailedAndUnresolvableNodes"].values())))
            return ""
        best = found["NodeNames"][0]
        if len(found["NodeNames"]) > 1:
            ranks = json.loads(lead.answers.prioritize(question(pod, found["NodeNames"])))
            best = max(ranks, key=lambda one: one["Score"])["Host"]
        self.bind(name, best)
        return str(best)

    def waiting(self) -> list[str]:
        """Pods that a kube-scheduler sees and that have no node."""
        return [
            name for name, pod in self.pods.items()
            if not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates")
        ]  # fmt: skip

    def run(self, seconds: float = 30.0) -> None:
        """Let everybody do their work, as often as nothing else happens."""
        until = self.clock.now_s + seconds
        while self.clock.now_s < until:
            self._active |= dict.fromkeys(self.tick()[1])
            if self.clock.now_s >= self._flushed_s + FLUSH_S:
                self._flushed_s = self.clock.now_s
                self._active |= dict.fromkeys(self.waiting())
            tried, self._active = self._active, {}
            for name in tried:
                if name in self.waiting():
                    self.try_pod(name)
            self.passes(0.5)

    def bound(self) -> dict[str, str]:
        return {name: node for name, pod in self.pods.items() if (node := pod["spec"].get("nodeName"))}
