"""Node facts and pods. Topic slacktide.node.inventory.v1 (key: node), and inside samples."""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from slacktide.schemas.bounds import (
    CPUS_MAX,
    LABELS_MAX,
    PODS_MAX,
    Amount,
    Count,
    Cpu,
    Int32,
    Int64,
    Name,
    Revision,
    TimeMs,
    TopologyId,
    WriterEpoch,
)
from slacktide.schemas.message import Message


class Resources(Message, frozen=True, kw_only=True):
    """Amounts of resources; an absent one is not declared and counts as 0."""

    cpu_milli: Amount | None = None
    mem_bytes: Amount | None = None
    batch_cpu_milli: Amount | None = None
    batch_mem_bytes: Amount | None = None
    mid_cpu_milli: Amount | None = None
    mid_mem_bytes: Amount | None = None
    free_cpu_milli: Amount | None = None
    free_mem_bytes: Amount | None = None


LIVE_PHASES = frozenset({"Running", "Pending"})
"""Phases of pods that hold their requests."""
ENDED_PHASES = frozenset({"Succeeded", "Failed"})
"""Phases of pods that use no resources any more."""


LABEL_AGENT, OWN, DRY_RUN = "colocation-agent", "slacktide", "slacktide-dry-run"
"""Label of a Node beside Koordinator, and its values: Slacktide's own node, and one where its agent only decides."""
IGNORED_MAX, IGNORED_CHARS_MAX = 4, 320
"""More would let the pods of one user fill each sample of their node."""
Ignored = Annotated[list[Annotated[str, Meta(max_length=IGNORED_CHARS_MAX)]], Meta(max_length=IGNORED_MAX)]
"""Labels, annotations and fields that cannot be read, each with its path, its text and what is accepted."""


class Container(Message, frozen=True, kw_only=True):
    """The fields of a container that rules read. Sandboxes are not listed."""

    name: Name
    id: str = ""
    """The runtime's id without prefix; "": unknown, so that its cgroup cannot be found."""
    requests: Resources = Resources()
    limits: Resources = Resources()


class Pod(Message, frozen=True, kw_only=True):
    """The fields of a pod that rules read."""

    uid: Name
    namespace: Name
    name: Name
    phase: str = "Running"
    owner: Name = ""
    """Its Deployment, StatefulSet or other controller; "": it has none."""
    template: Name = ""
    """Hash of the template that the controller made it from, as in its label; "": it has none."""
    qos_label: str | None = None
    """Label koordinator.sh/qosClass as written, even if unknown."""
    priority_class_label: str | None = None
    """Label koordinator.sh/priority-class as written."""
    sub_priority: Int64 | None = None
    """Label koordinator.sh/priority."""
    priority: Int32 | None = None
    kube_qos: str = "BestEffort"
    """Guaranteed, Burstable or BestEffort."""
    requests: Resources = Resources()
    limits: Resources = Resources()
    cpuset: str = ""
    """Annotation scheduling.koordinator.sh/resource-status: CPUs that the pod is bound to, such as ``0-3,6``."""
    containers: Annotated[list[Container], Meta(max_length=PODS_MAX)] = []
    """Containers that must run; empty: unknown."""
    cpu_burst: str | None = None
    """Annotation koordinator.sh/cpuBurst as written."""
    eviction_enabled: bool = False
    """Label koordinator.sh/eviction-enabled."""
    eviction_priority: Int64 = 0
    """Annotation koordinator.sh/eviction-priority."""
    eviction_features: list[str] | None = None
    """Annotation koordinator.sh/eviction-policy: only these may evict it; None: all may."""
    borrowed: bool = False
    """Annotation quota.slacktide.io/borrowed: it was created beyond its namespace's batch quota, and goes first."""
    init_unlimited: bool = False
    """Whether an init container that has not ended lacks a limit (of batch resources if the pod has some)."""
    cpu_limited_whole: bool = False
    """Whether ``spec.resources`` limits its CPU. The pod then has a quota, also if a container has none."""
    grace_s: Count = 30
    """terminationGracePeriodSeconds."""
    exclusive_cpus: str = ""
    """Set by the node's agent: exclusive CPUs of the pod by the kubelet's static policy, such as ``2-3``."""
    overruled: str = ""
    """Set by the node's agent: the classes that a pod with batch resources claims. It counts as BE and koord-batch."""
    unheld: bool = False
    """Set by the node's agent: the pod claims to be best-effort, but its cgroup is outside the best-effort cgroup. It
    counts as koord-prod."""
    ignored: Ignored = []
    """What users wrote into the pod and no rule can read."""


Pods = Annotated[list[Pod], Meta(max_length=PODS_MAX)]
"""A node's pods."""


def unended(pods: Sequence[Pod]) -> list[Pod]:
    """Pods that have not ended. No rule reads ended ones, of which a node may list thousands."""
    return [pod for pod in pods if pod.phase not in ENDED_PHASES]


class Processor(Message, frozen=True, kw_only=True):
    """One CPU and its topology. Core ids are unique in a NUMA node of a socket."""

    cpu: Cpu
    core: TopologyId
    socket: TopologyId
    numa_node: TopologyId


class NodeFacts(Message, frozen=True, kw_only=True):
    """The fields of a node that rules and policy read."""

    name: Name
    capacity: Resources
    allocatable: Resources
    reserved: Resources = Resources()
    """Annotation node.koordinator.sh/reservation: resources."""
    reserved_cpus: str = ""
    """The same annotation: CPU list such as ``0-3,6``; replaces the CPU part."""
    labels: Annotated[dict[str, str], Meta(max_length=LABELS_MAX)] = {}
    annotations: Annotated[dict[str, str], Meta(max_length=LABELS_MAX)] = {}
    """Only those under koordinator.sh."""
    unschedulable: bool = False
    """Cordoned: schedulers place no new pod there."""
    slope_permille: Count = 0
    """Set by the node's agent: the largest learned slope of its services, see ``ServiceSlope``; 0: none is known."""
    slope_of: str = ""
    """The service with this slope."""
    processors: Annotated[list[Processor], Meta(max_length=CPUS_MAX)] = []
    """CPUs that pods may run on, set by the node's agent; empty: best-effort pods cannot be bound to CPUs."""


def with_slope(facts: NodeFacts, slope_permille: int, slope_of: str) -> NodeFacts:
    """Facts with the slope that only the node's agent knows."""
    if (slope_permille, slope_of) == (facts.slope_permille, facts.slope_of):
        return facts
    return msgspec.structs.replace(facts, slope_permille=slope_permille, slope_of=slope_of)


def with_slope_of(facts: NodeFacts, own: NodeFacts | None) -> NodeFacts:
    """Facts of an inventory record with the slope in ``own``: facts of the node's newest sample."""
    return facts if own is None else with_slope(facts, own.slope_permille, own.slope_of)


class NodeInventory(Message, frozen=True, kw_only=True):
    """A node as Kubernetes (or a file) describes it. A null value: the node is gone."""

    node: Name
    revision: str
    facts: NodeFacts
    installation: Revision = ""
    """The writer's installation, as in its policy. Epochs compare within it. "": a writer of an older release."""
    writer_epoch: WriterEpoch = 0
    published_ms: TimeMs = 0


def revision_of(value: object) -> str:
    """Content hash of facts or a pod list: equal content, equal revision."""
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:12]


class Written(Protocol):
    """A record with its writer."""

    @property
    def installation(self) -> str:
        """Id of the policy topic, adopted by each writer; "": a writer of an older release."""

    @property
    def writer_epoch(self) -> int:
        """Term of the writer. Epochs compare within one installation."""


def supersedes(read: Written, held: Written) -> bool:
    """Whether a record that was just read replaces the current one.

    Another installation means a recreated topic, whose epochs may start again. A writer of an older release has none:
    its epoch is compared with the current one.
    """
    if read.installation and read.installation != held.installation:
        return True
    return read.writer_epoch >= held.writer_epoch


class LastWriter:
    """The writer that a reader of many keys follows."""

    def __init__(self) -> None:
        self.installation = ""
        self.writer_epoch = 0

    def take(self, read: Written) -> bool:
        """Follow the writer of a record. False: its epoch is older, so ignore the record."""
        if not supersedes(read, self):
            return False
        self.installation, self.writer_epoch = read.installation or self.installation, read.writer_epoch
        return True
