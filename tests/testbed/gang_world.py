"""Gangs between one kube-scheduler and replicas of its extender, which share a topic. Time moves by hand."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import takewhile
from typing import Any

from slacktide.agents.cluster.scheduler.gang_group import Now, Standing
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
NODE_MILLI = 4_000
WHOLE = 10**6
"""Records that a replica reads at once, unless it lags."""


class KilledError(Exception):
    """A replica ended as soon as it had written a record."""


class Replica:
    """An extender, and how far it has read the topic."""

    def __init__(self, world: GangWorld, name: str) -> None:
        self.name, self.world, self.read = name, world, 0
        self.placements: list[PodPlacement] = []
        self.view = View(PlacementArgs())
        self.answers = answers(self.view, self.placements.append, world.clock, name, self._publish)

    def _publish(self, group: str, plan: GangPlan | None) -> None:
        self.world.publish(group, plan, self.name)

    @property
    def now(self) -> Now:
        return Now.by(self.world.clock)

    def catch_up(self, records: int = WHOLE) -> None:
        """Read the topic to its end, or so many records."""
        topic = self.world.topic
        until = min(len(topic), self.read + records)
        while self.read < until:
            group, plan = topic[self.read]
            self.read += 1
            self.answers.gangs.read(group, plan, self.now)

    def filter(self, pod: Json, nodes: Iterable[str]) -> Json:
        """Ask as a kube-scheduler does; what the replica writes is read back before it answers, unless it lags."""
        given = list(nodes)
        answer = self.answers.filter(question(pod, given))
        if isinstance(answer, Awaitable):
            self.catch_up(self.world.lag())
            if isinstance(self.answers.gangs.ask(parsed(pod), given, self.now), asyncio.Event):
                answer.close()  # type: ignore[attr-defined]
                return {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(given, "it is being written")}
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
        self.away: list[tuple[str, GangPlan | None]] | None = None
        """Records that wait while Kafka is away; None: it is not."""
        self.pods: dict[str, Json] = {}
        self.lag: Callable[[], int] = lambda: WHOLE
        """How many records a replica reads next."""
        self.repeats: Callable[[], int] = lambda: 0
        """How many of its last records a replica writes again, because it did not hear that they were."""
        self.records_left: int | None = None
        """After so many records their writer is killed; None: none is."""
        self._written: list[str] = []
        """By record its writer."""
        self._offered: dict[str, int] = {}
        self._sizes: dict[str, Size] = {}
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

    def publish(self, group: str, plan: GangPlan | None, replica: str) -> None:
        if self.away is not None:
            self.away.append((group, plan))
            return
        self._append([(group, plan)], replica)
        own = len(list(takewhile(lambda one: one == replica, reversed(self._written))))
        if again := min(self.repeats(), own):
            self._append(self.topic[-again:], replica)
        if self.records_left is not None:
            self.records_left -= 1
            if self.records_left < 0:
                self.records_left = None
                raise KilledError

    def _append(self, records: list[tuple[str, GangPlan | None]], replica: str) -> None:
        self.topic += records
        self._written += [replica] * len(records)

    def back(self) -> None:
        """Kafka is back: what waited comes late."""
        late, self.away = self.away or [], None
        self._append(late, "")

    def restart(self, name: str) -> None:
        """Another process takes a replica's place. It reads all before it answers."""
        one = self.replicas[name] = Replica(self, name)
        for node in self.nodes:
            self._say(one, node)
        for pod in self.pods.values():
            self._shown(one, pod)
        one.catch_up()

    @property
    def log(self) -> list[GangPlan]:
        """Plans, their ends and reasons to wait."""
        return [plan for _, plan in self.topic if plan is not None]

    def offers(self, node: str, batch: int) -> None:
        """A node's news: so much batch CPU."""
        self._offered[node] = batch
        for one in self.replicas.values():
            self._say(one, node)

    def _say(self, one: Replica, node: str) -> None:
        seq = round(self.clock.now_s * 1_000) + 1
        for record in figures(node, batch=self._offered[node], seq=seq, cpu=32_000):
            one.view.receive(record, received_s=self.clock.now_s, logged_s=WALL_S)
        if node in self._sizes:
            one.view.has(node, self._sizes[node])

    def has(self, node: str, *, cpu_milli: int, mem_bytes: int = 16 * GIB) -> None:
        size = self._sizes[node] = Size(Amounts(cpu_milli, mem_bytes), Amounts(cpu_milli, mem_bytes))
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
            self._shown(one, pod)

    def _shown(self, one: Replica, pod: Json) -> None:
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
            try:
                one.catch_up(self.lag())
                work = one.answers.gangs.tick(one.now)
                one.catch_up(self.lag())
            except KilledError:
                self.restart(name)
                continue
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
        try:
            found = lead.filter(pod, offered)
        except KilledError:  # with its kube-scheduler
            self.restart(self.lead)
            self.lead = next(
                name for name in (*self.replicas, self.lead) if name != self.lead or len(self.replicas) == 1
            )
            self._active |= dict.fromkeys(self.waiting())
            return ""
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


class Watched(GangWorld):
    """Checks each binding."""

    def bind(self, name: str, node: str) -> None:
        lead = self.replicas[self.lead]
        gangs = lead.answers.gangs
        pod = gangs._registry.pods.get(f"uid-{name}")
        if pod is not None:
            group = gangs._group(pod)
            standing = gangs._registry.standing(group)
            alone = isinstance(standing, Standing) and not standing.needs_plan
            assert alone or group.places.get(pod.uid) == node, f"{name} is bound to {node} without a plan"
            if group.plan is not None and not group.satisfied:
                placed = Counter(gangs._registry.pods[uid].member.of.gang for uid in group.places)  # type: ignore[union-attr]
                for need in group.plan.gangs:
                    bound = sum(bool(one.node) for one in gangs._registry.members(group))
                    assert placed[need.gang] + bound >= need.least
        super().bind(name, node)
        over = {one: used for one, used in self.used().items() if used > NODE_MILLI}
        assert not over, f"more is requested than there is: {over}"

    def used(self) -> Counter[str]:
        """Requested batch CPU by node."""
        found: Counter[str] = Counter()
        for pod in self.pods.values():
            asks = pod["spec"]["containers"][0]["resources"]["requests"]
            if node := pod["spec"].get("nodeName"):
                found[node] += int(asks["kubernetes.io/batch-cpu"])
        return found
