"""Which nodes take a pod by their NUMA zones: records of zones, pods placed since, and what is told of both."""

from typing import Any

import pytest

from slacktide.agents.cluster.scheduler.node import Size
from slacktide.agents.cluster.scheduler.topic_reader import TopicReader
from slacktide.deploy.cli.explain.workload_text import placement_text
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import ZONES
from slacktide.schemas.zones import BoundPod, NodeZones, Zone, ZoneDistance, ZoneResources
from slacktide.streams.analysis.explain.evidence import Logged
from slacktide.streams.decisions.load.load_aware_estimator import Amounts
from slacktide.streams.decisions.numa.placement import zones_score
from slacktide.streams.records import Record
from testbed.kube_scheduler import GIB, WALL_S, Asked, figures
from testbed.scenarios import run, scenarios
from testbed.scheduler_pods import parsed


def zone(number: int, free_milli: int | None, cpu_milli: int) -> Zone:
    """None: it has memory alone."""
    memory = {"mem_bytes": 16 * GIB}
    return Zone(
        id=number,
        allocatable=ZoneResources(**({} if free_milli is None else {"cpu_milli": cpu_milli}), **memory),
        available=ZoneResources(**({} if free_milli is None else {"cpu_milli": free_milli}), **memory),
        distances=[ZoneDistance(zone=other, distance=10 if other == number else 20) for other in range(4)],
    )


def record(node: str, *free_milli: int | None, **said: Any) -> NodeZones:
    """Zones of 8 CPUs by what is free in each."""
    ids, cpu_milli = said.pop("ids", range(len(free_milli))), said.pop("cpu_milli", 8_000)
    zones = [zone(number, free, cpu_milli) for number, free in zip(ids, free_milli, strict=True)]
    bound = [BoundPod(uid=uid, zones=where) for uid, where in said.pop("pods", {}).items()]
    known: dict[str, Any] = {"boot_id": "1-a", "seq": 1, "observed_ms": 1, "policy": "single-numa-node"}
    known |= {"scope": "container", "cpu_static": True, "memory_static": False}
    return NodeZones(**{**known, "node": node, "zones": zones, "pods": bound, **said})


def manifest(name: str, cpu: str = "6", *, limits: bool = True, **said: Any) -> dict[str, Any]:
    """A pod of one container; ``apps`` and ``inits``: of these, each with its CPU."""

    def containers(of: dict[str, str]) -> list[dict[str, Any]]:
        asks = [{"requests": {"cpu": milli, "memory": "128Mi"}} for milli in of.values()]
        return [
            {"name": each, "resources": one | ({"limits": one["requests"]} if limits else {})}
            for each, one in zip(of, asks, strict=True)
        ]

    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", **said.pop("metadata", {})}
    status = {"phase": "Pending"} | said.pop("status", {})
    apps, inits = containers(said.pop("apps", {"main": cpu})), containers(said.pop("inits", {}))
    spec = {"containers": apps, "initContainers": inits, "nodeName": "", "schedulerName": "koord-scheduler", **said}
    return {"metadata": metadata, "spec": spec, "status": status}


class Zoned(Asked):
    """It knows the zones of some nodes."""

    def __init__(self, nodes: dict[str, list[Any]] | None = None, **args: Any) -> None:
        super().__init__(**args)
        self.pods: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, int] = {}
        for node, zones in (nodes or {}).items():
            said = zones[-1] if zones and isinstance(zones[-1], dict) else {}
            self.says(node, *zones[: len(zones) - bool(said)], **said)

    def says(self, node: str, *free_milli: int | None, **said: Any) -> None:
        self.view.take_zones(record(node, *free_milli, **said), published_s=self.clock.now_s)

    def pod(self, name: str, **said: Any) -> dict[str, Any]:
        if said or name not in self.pods:
            self.pods[name] = manifest(name, **said)
        return self.pods[name]

    def places(self, name: str, *nodes: str, **said: Any) -> str:
        """The node that it would take; "": none. As a kube-scheduler asks: filter, then prioritize where many pass."""
        passed = self.filter(self.pod(name, **said), *nodes)["NodeNames"]
        if len(passed) < 2:
            return "".join(passed)
        ranks = self.prioritize(self.pod(name), *passed)
        return max(ranks, key=ranks.__getitem__)

    def refused(self, name: str, node: str = "a", **said: Any) -> str:
        """Why; "": it is not."""
        why: dict[str, str] = self.filter(self.pod(name, **said), node)["FailedAndUnresolvableNodes"]
        return why.get(node, "").removeprefix("slacktide: ")

    def reason(self, *asked: str, **said: Any) -> str:
        return self.refused(*asked, **said).partition(": ")[0]

    def waits(self, name: str, **said: Any) -> None:
        self.view.changed(parsed(self.pod(name, **said)), at_s=WALL_S)

    def binds(self, name: str, node: str, phase: str = "Pending", **said: Any) -> None:
        pod = self.pod(name, **said)
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": phase}}
        self.view.changed(parsed(bound), at_s=WALL_S)

    def leaves(self, name: str) -> None:
        self.view.gone(("default", name))

    def passes(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def node_has(self, node: str, cpu_milli: int | None) -> int:
        """How many nodes are known then."""
        amounts = Amounts(cpu_milli or 0)
        self.view.has(node, None if cpu_milli is None else Size(amounts, amounts))
        return self.view.counts(self.clock.now_s)[0]

    def measured(self, *nodes: str) -> None:
        self.receive(*(one for node in nodes for one in figures(node, cpu=16_000)))

    def ranked(self, name: str, *nodes: str) -> list[Any]:
        """Nodes from the best on, with their scores by zones, and the scores of all."""
        choice = self.view.choose(parsed(self.pod(name)).asked, list(nodes), now_s=self.clock.now_s)
        return [[[one.name, one.willing.numa_score] for one in choice.ranked], choice.scores]

    def scores(self, name: str, **said: Any) -> int:
        pod = parsed(self.pod(name, **said)).asked.zoned
        view = self.view._nodes["a"].view(self.clock.now_s).zones
        assert pod is not None
        assert view is not None
        return zones_score(pod, view, self.args.numa_strategy)

    def explained(self) -> str:
        """The last line on what was told last."""
        last = Logged(body=self.told[-1], place=None)  # type: ignore[arg-type]
        return placement_text(last, asked_ms=self.clock.wall_ms()).splitlines()[-1].strip()

    def told_zones(self) -> str:
        return self.told[-1].best[0].zones

    def terms(self) -> dict[str, float]:
        return {name: value for name, value in self.told[-1].best[0].terms.items() if name.startswith("zone_")}

    def asks_anew(self) -> bool:
        """Whether a node has changed since the last time."""
        before, self._seen = self._seen, dict(self.view._changed)
        return before != self._seen


@scenarios("scheduler_zones")
def test_zones_take_pods(case: dict[str, Any]) -> None:
    run(case, Zoned)


FULL = {"a": [2_000, 2_000]}


@pytest.mark.parametrize("last", [0, 1])
def test_of_two_replicas_that_refused_a_pod_only_the_one_that_answered_last_wakes_it(last: int) -> None:
    """Each reads the other's answers from Kafka."""
    replicas = [Zoned(FULL), Zoned(FULL)]
    for seconds, replica in enumerate((replicas[1 - last], replicas[last])):
        replica.passes(seconds)
        replica.waits("p")
        assert replica.places("p", "a") == ""
    replicas[1 - last].passes(1)
    for replica in replicas:
        for told in (*replicas[0].told, *replicas[1].told):
            replica.answers.waiting.leave(told.pod_uid, told.decided_ms)
        replica.says("a", 8_000, 2_000, seq=2)

    woken = [replica.woken() for replica in replicas]
    assert woken[last] == ["p"]
    assert woken[1 - last] == []


def test_a_replica_that_is_not_asked_any_more_wakes_the_pods_that_it_refused_last() -> None:
    """The other kube-scheduler leads now. It tries a pod on the annotation, whoever wrote that."""
    before, leads = Zoned(FULL), Zoned(FULL)
    for replica in (before, leads):
        replica.waits("p")
    assert before.places("p", "a") == ""
    for replica in (before, leads):
        replica.says("a", 8_000, 2_000, seq=2)

    assert (before.woken(), leads.woken()) == (["p"], [])
    assert leads.places("p", "a") == "a"


async def test_records_are_read_from_their_topic_and_bad_ones_laid_aside() -> None:
    asked, refused = Zoned(), []
    reader = TopicReader(
        Cluster("127.0.0.1:1"), asked.view, asked.args, lambda _record, why: refused.append(why), asked.clock
    )
    reader._live = True

    async def put(value: bytes | None, key: bytes = b"a") -> None:
        one = Record(topic=ZONES.name, partition=0, offset=0, timestamp_ms=0, key=key, value=value)
        await reader._receive_all([one], asked.clock.now_s)

    await put(encode(record("a", 0)))
    assert asked.reason("p").startswith("numa_no_zone")
    await put(b"{}")
    await put(encode(record("a", 8_000)), key=b"b")
    assert len(refused) == 2
    assert "its node 'a'" in refused[1]
    await put(None)
    assert asked.refused("p") == ""
