"""NUMA zones, pods and nodes, as tests write and generate them."""

import json
from collections.abc import Mapping

from hypothesis import strategies as st

from slacktide.streams.decisions.numa.filter import Node
from slacktide.streams.decisions.numa.topology import Container, Kubelet, Pod, Policy, Qos, Scope, Zone

GIB = 2**30
GPU = "example.com/gpu"
BATCH_CPU = "kubernetes.io/batch-cpu"
ON_NODE = {"cpu": 64_000, "memory": 64 * GIB, GPU: 8, BATCH_CPU: 64_000}


def zone(number: int, cpu: int | None = None, *, costs: Mapping[int, int] | None = None, **more: int) -> Zone:
    """A zone with CPU in millicores; ``memory`` in bytes, ``gpu`` and ``batch`` by their short names."""
    return Zone(number, amounts(cpu, **more), costs or {})


def amounts(cpu: int | None = None, **more: int) -> dict[str, int]:
    names = {"gpu": GPU, "batch": BATCH_CPU}
    named = {names.get(name, name): amount for name, amount in more.items()}
    return named if cpu is None else {"cpu": cpu, **named}


def pod(*apps: Mapping[str, int], qos: Qos = "Guaranteed", **more: object) -> Pod:
    """A pod whose app containers are called a, b, c, ..."""
    named = [Container(name=name, requests=requests) for name, requests in zip("abcdef", apps, strict=False)]
    return Pod(qos=qos, containers=named, **more)


def as_read(text: str) -> str:
    """The same text as a record brings it: equal to a name of the program, and another object."""
    return json.loads(json.dumps(text))


def init(requests: Mapping[str, int], *, sidecar: bool = False) -> Container:
    return Container(name="sidecar" if sidecar else "init", requests=requests, sidecar=sidecar)


def node(*zones: Zone, policy: Policy = "single-numa-node", scope: Scope = "container", **kubelet: object) -> Node:
    return Node(allocatable=ON_NODE, kubelet=Kubelet(policy=policy, scope=scope, **kubelet), zones=zones)


KNOWN = {"cpu_static": True, "memory_static": True}
"""A kubelet whose managers are both static."""

CPU = st.sampled_from([0, 500, 1000, 1500, 2000, 4000, 8000])
FEW = st.integers(0, 4)
REQUESTS = st.fixed_dictionaries({}, optional={"cpu": CPU, "memory": FEW, GPU: st.integers(0, 2)})
QOS = st.sampled_from(["Guaranteed", "Burstable", "BestEffort"])
POLICIES = st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])


@st.composite
def zone_lists(draw: st.DrawFn, *, smallest: int = 0) -> list[Zone]:
    """Up to four zones in any order, with gaps between ids and resources that some do not list."""
    ids = draw(st.lists(st.integers(0, 6), unique=True, min_size=smallest, max_size=4))
    zones = []
    for one in ids:
        capacity = draw(REQUESTS)
        available = {name: draw(st.integers(0, amount)) for name, amount in capacity.items()}
        costs = {other: 10 if other == one else draw(st.sampled_from([11, 20, 21, 300])) for other in ids}
        zones.append(Zone(one, available, costs, capacity))
    return zones


@st.composite
def pods(draw: st.DrawFn, qos: st.SearchStrategy[Qos] = QOS) -> Pod:
    inits = [init(draw(REQUESTS), sidecar=draw(st.booleans())) for _ in range(draw(st.integers(0, 2)))]
    apps = [draw(REQUESTS) for _ in range(draw(st.integers(1, 3)))]
    return pod(*apps, qos=draw(qos), inits=inits, overhead=draw(st.sampled_from([{}, {"cpu": 500}])))


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    known = draw(st.sampled_from([{}, KNOWN, {"cpu_static": False, "memory_static": False}]))
    scope = draw(st.sampled_from(["container", "pod"]))
    return node(*draw(zone_lists()), policy=draw(POLICIES), scope=scope, **known)
