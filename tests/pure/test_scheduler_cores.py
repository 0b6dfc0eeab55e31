"""Which CPUs a pod gets for itself on a real view of nodes: records of zones, pods' annotations, and assumed pods."""

import json
from typing import Any

from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.zones import NodeZones, Zone, ZoneResources
from slacktide.streams.decisions.cores.placement import RESOURCE_CORES, CoresRefusal, rules_of
from slacktide.streams.decisions.cores.take import written
from testbed.kube_scheduler import WALL_S, Asked
from testbed.scenarios import run, scenarios
from testbed.scheduler_pods import parsed

SPEC = "scheduling.koordinator.sh/resource-spec"


def record(
    node: str, seq: int, *, sockets: int = 1, cores: int = 4, threads: int = 2, lost: tuple[int, ...] = (), **said: Any
) -> NodeZones:
    """Cores of a socket are in one zone; the second threads follow all first ones, as the kernel numbers them."""
    whole = sockets * cores
    zones = []
    for socket in range(sockets):
        of_cores = [
            [thread * whole + core for thread in range(threads) if thread * whole + core not in lost]
            for core in range(socket * cores, (socket + 1) * cores)
        ]
        free = ZoneResources(cpu_milli=1_000 * sum(map(len, of_cores)))
        zones.append(
            Zone(id=socket, allocatable=free, available=free, cores={socket: [one for one in of_cores if one]})
        )
    known: dict[str, Any] = {"boot_id": "1-a", "seq": seq, "observed_ms": 1, "policy": "none", "scope": "container"}
    known |= {"cpu_static": False, "memory_static": False, "node": node, "zones": zones}
    return NodeZones(**known | said)


def manifest(name: str, cpu: int = 2, qos: str = "LSR", *, own: bool = True, **said: Any) -> dict[str, Any]:
    asks = {"cpu": str(cpu), "memory": "128Mi"} | ({RESOURCE_CORES: str(cpu)} if own else {})
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"koordinator.sh/qosClass": qos},
            "annotations": {SPEC: json.dumps(said.pop("spec", {}))} | said.pop("annotations", {}),
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": asks, "limits": asks}}],
            "nodeName": said.pop("node", ""), "schedulerName": "koord-scheduler", "priority": 9_500, **said,
        },
        "status": {"phase": "Pending"},
    }  # fmt: skip


class Cores(Asked):
    """It knows the CPUs of some nodes. A pod is asked for, assumed and bound as a kube-scheduler does it."""

    def __init__(self, **nodes: dict[str, Any] | None) -> None:
        super().__init__()
        self.pods: dict[str, dict[str, Any]] = {}
        for node, said in (nodes or {"a": {}}).items():
            if said is not None:
                self.says(node, 1, **said)

    def says(self, node: str, seq: int, **said: Any) -> None:
        self.view.take_zones(record(node, seq, **said), published_s=self.clock.now_s)

    def passes(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def watch(self, name: str, **said: Any) -> dict[str, Any]:
        if said or name not in self.pods:
            self.pods[name] = manifest(name, **said)
        self.view.changed(parsed(self.pods[name]), at_s=WALL_S)
        return self.pods[name]

    def shows(self, name: str, **said: Any) -> None:
        self.watch(name, **said)

    def ends(self, name: str) -> None:
        self.view.changed(parsed({**self.pods[name], "status": {"phase": "Succeeded"}}), at_s=WALL_S)

    def leaves(self, name: str) -> None:
        self.view.gone(("default", name))

    def refused(self, name: str, node: str = "a", **said: Any) -> str:
        """Why; "": it is not."""
        why: dict[str, str] = self.filter(self.watch(name, **said), node)["FailedAndUnresolvableNodes"]
        return why.get(node, "").removeprefix("slacktide: ")

    def reason(self, *asked: str, **said: Any) -> str:
        return self.refused(*asked, **said).partition(":")[0]

    def cpus(self, name: str, node: str = "a") -> str:
        """The CPUs with which it is bound; the reason if it is not."""
        found = self.view.cores(("default", name), f"uid-{name}", node, now_s=self.clock.now_s, at_s=WALL_S)
        if found is None or isinstance(found, CoresRefusal):
            return "unknown" if found is None else found.reason
        pod = self.pods[name]
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}
        self.pods[name] = bound | {"metadata": {**pod["metadata"], "annotations": found.annotations}}
        return written(found.cpus)

    def binds(self, name: str, node: str = "a", **said: Any) -> str:
        """Filter, bind, and see it bound."""
        if why := self.reason(name, node, **said):
            return why
        cpus = self.cpus(name, node)
        self.watch(name)
        return cpus

    def annotations(self, name: str) -> dict[str, Any]:
        return {key: json.loads(text) for key, text in self.pods[name]["metadata"]["annotations"].items()}

    def ranked(self) -> list[Any]:
        """Of the last answer, the CPUs on the best node and how many were free there."""
        best = self.told[-1].best[0]
        return [best.cores, best.terms.get("cores_free_count")]

    def restarts(self) -> None:
        super().__init__()
        self.view.whole(map(parsed, self.pods.values()), at_s=WALL_S)

    def another_replica_sends(self, name: str, cpus: str) -> None:
        ends_s = self.clock.now_s + 9
        self.view.sent(("default", name), f"uid-{name}", "a", until_s=ends_s, at_s=WALL_S, cpus=cpus)

    def rules(self, **facts: Any) -> int:
        """What the node has: how many nodes are known then."""
        self.view.rule("a", rules_of(NodeFacts(name="a", capacity=Resources(), allocatable=Resources(), **facts)))
        return self.view.counts(self.clock.now_s)[0]


@scenarios("scheduler_cores")
def test_cpus_are_given(case: dict[str, Any]) -> None:
    run(case, Cores)
