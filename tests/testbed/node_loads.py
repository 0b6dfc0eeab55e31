"""Nodes with pods and their use, for what is figured of a node's resources."""

from hypothesis import strategies as st

from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.metric import PodMetric, Use
from slacktide.streams.decisions.resources.node_load import NOTHING, NodeLoad

GIB = 1 << 30
WHOLE = Resources(cpu_milli=10_000, mem_bytes=100 * GIB)


def facts(**more) -> NodeFacts:
    """Ten CPUs and 100 GiB, all of it allocatable."""
    return NodeFacts(**{"name": "node-1", "capacity": WHOLE, "allocatable": WHOLE} | more)


def pod(uid: str, cpu_milli: int | None = None, mem_gib: int | None = None, **more) -> Pod:
    """A latency-sensitive pod with native requests."""
    requests = Resources(cpu_milli=cpu_milli, mem_bytes=None if mem_gib is None else mem_gib * GIB)
    fields = {"uid": uid, "namespace": "shop", "name": uid, "qos_label": "LS", "kube_qos": "Burstable"}
    return Pod(**fields | {"requests": requests} | more)


def batch_pod(uid: str, cpu_milli: int | None = None, mem_gib: int | None = None, **more) -> Pod:
    """A best-effort pod with batch requests."""
    requests = Resources(batch_cpu_milli=cpu_milli, batch_mem_bytes=None if mem_gib is None else mem_gib * GIB)
    return pod(uid, qos_label="BE", kube_qos="BestEffort", priority=5_500, requests=requests, **more)


def used(uid: str, cpu_milli: int = 0, mem_gib: int = 0, priority_class: str = "koord-prod") -> PodMetric:
    """A pod's windowed average."""
    return PodMetric(uid=uid, priority_class=priority_class, use=use(cpu_milli, mem_gib))


def use(cpu_milli: int = 0, mem_gib: int = 0) -> Use:
    return Use(cpu_milli=cpu_milli, mem_bytes=mem_gib * GIB)


def load(*pods: Pod, metrics=(), system: Use = NOTHING, host_use: Use = NOTHING, **more) -> NodeLoad:
    """A node with these pods."""
    return NodeLoad(facts=facts(**more), pods=pods, metrics=metrics, system=system, host_use=host_use)


uses = st.builds(use, st.integers(0, 20_000), st.integers(0, 200))
classes = st.sampled_from(["koord-prod", "koord-mid", "koord-batch", "koord-free", "", "bogus"])


@st.composite
def pods_and_metrics(draw) -> tuple[list[Pod], list[PodMetric]]:
    """Pods of all classes and phases, some without a metric, some metrics without a pod."""
    pods = []
    for number in range(draw(st.integers(0, 6))):
        make = draw(st.sampled_from([pod, pod, batch_pod]))
        phase = draw(st.sampled_from(["Running", "Running", "Pending", "Succeeded", "Failed"]))
        one = make(f"p{number}", draw(st.integers(0, 8_000)), draw(st.integers(0, 60)), phase=phase)
        if make is pod:
            label = draw(st.sampled_from(["LS", "LSR", "LSE", None, "weird"]))
            one = pod(one.uid, one.requests.cpu_milli, draw(st.integers(0, 60)), phase=phase, qos_label=label)
        pods.append(one)
    known = [one.uid for one in pods if draw(st.booleans())]
    uids = [*known, *draw(st.lists(st.sampled_from(["gone-1", "gone-2"]), unique=True))]
    return pods, [PodMetric(uid=uid, priority_class=draw(classes), use=draw(uses)) for uid in uids]
