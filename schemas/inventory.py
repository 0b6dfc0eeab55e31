"""Node facts and pods. Topic slacktide.node.inventory.v1 (key: node), and inside samples."""

from __future__ import annotations

import hashlib

import msgspec

from slacktide.schemas.message import Count, Message


class Resources(Message, frozen=True, kw_only=True):
    """Amounts of resources; an absent one is not declared and counts as 0."""

    cpu_milli: int | None = None
    mem_bytes: int | None = None
    batch_cpu_milli: int | None = None
    batch_mem_bytes: int | None = None
    mid_cpu_milli: int | None = None
    mid_mem_bytes: int | None = None
    free_cpu_milli: int | None = None
    free_mem_bytes: int | None = None


LIVE_PHASES = frozenset({"Running", "Pending"})
"""Of pods that hold what they asked for."""
ENDED_PHASES = frozenset({"Succeeded", "Failed"})
"""Of pods that use nothing any more."""


class Container(Message, frozen=True, kw_only=True):
    """What rules read of a container. A sandbox is none."""

    name: str
    id: str = ""
    """Of the runtime, without its name before it; "": not told, so that its group cannot be found."""
    requests: Resources = Resources()
    limits: Resources = Resources()


class Pod(Message, frozen=True, kw_only=True):
    """What rules read of a pod."""

    uid: str
    namespace: str
    name: str
    phase: str = "Running"
    qos_label: str | None = None
    """Label koordinator.sh/qosClass as written, known or not."""
    priority_class_label: str | None = None
    """Label koordinator.sh/priority-class as written."""
    sub_priority: int | None = None
    """Label koordinator.sh/priority."""
    priority: int | None = None
    kube_qos: str = "BestEffort"
    """Guaranteed, Burstable or BestEffort."""
    requests: Resources = Resources()
    limits: Resources = Resources()
    cpuset: str = ""
    """Annotation scheduling.koordinator.sh/resource-status: CPUs that the pod is bound to, such as ``0-3,6``."""
    containers: list[Container] = []
    """Those that are to run; none: not told."""
    cpu_burst: str | None = None
    """Annotation koordinator.sh/cpuBurst as written."""
    eviction_enabled: bool = False
    """Label koordinator.sh/eviction-enabled."""
    eviction_priority: int = 0
    """Annotation koordinator.sh/eviction-priority."""
    eviction_features: list[str] | None = None
    """Annotation koordinator.sh/eviction-policy: only these may evict it; None: all may."""
    grace_s: Count = 30
    """terminationGracePeriodSeconds."""


class Processor(Message, frozen=True, kw_only=True):
    """One CPU and where it is. Core ids are unique in a NUMA node of a socket."""

    cpu: int
    core: int
    socket: int
    numa_node: int


class NodeFacts(Message, frozen=True, kw_only=True):
    """What rules and policy read of a node."""

    name: str
    capacity: Resources
    allocatable: Resources
    reserved: Resources = Resources()
    """Annotation node.koordinator.sh/reservation: resources."""
    reserved_cpus: str = ""
    """The same annotation: CPU list such as ``0-3,6``; replaces the CPU part."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    """Only those under koordinator.sh."""
    processors: list[Processor] = []
    """CPUs that pods may run on, as the node's agent found them; none: best-effort pods cannot be bound to CPUs."""


class NodeInventory(Message, frozen=True, kw_only=True):
    """A node as Kubernetes (or a file) describes it. A null value: the node is gone."""

    node: str
    revision: str
    facts: NodeFacts
    writer_epoch: Count = 0
    published_ms: Count = 0


def revision_of(value: object) -> str:
    """Content hash of facts or a pod list: equal content, equal revision."""
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:12]
