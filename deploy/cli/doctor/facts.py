"""Defines the facts about a machine, its Kafka cluster and a Kubernetes cluster, before any check. Pure.

``trouble`` "": none. In the facts of a Kubernetes cluster, a text in place of a value is why it is not known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from slacktide.agents.node.host_pods import Remark
from slacktide.agents.node.pressure import Kind
from slacktide.deploy.cli.topic_plan import Change
from slacktide.schemas.connection import Cluster, Security
from slacktide.schemas.policy import RefusedFile

ControllerState = Literal["absent", "not handed on", "usable"]
"""``not handed on``: the machine has it, the best-effort cgroup does not."""
FileState = Literal["absent", "not writable", "writable"]
_COUNTED = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
"""CPU and memory resources of quotas. Under such a quota a pod must declare them; batch pods do not."""
_NATIVE = ("cpu", "memory")
BATCH_CLASS = "koord-batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFolder:
    """The folder for an agent's state."""

    path: str
    trouble: str
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """A machine and this process on it."""

    kernel: str
    """The release, such as ``6.1.0-18-amd64``; "": unknown."""
    cpus: int
    user_id: int
    capabilities: int | None
    """The bits of CapEff; None: unknown."""
    clock_source: str
    """"": unknown."""
    clock_kept_by: str
    """The service that synchronizes the clock, such as ``chronyd``; "": none found."""
    clock_synchronised: bool
    """Whether that service reports synchronization in a file; chronyd and ntpd do not."""
    open_files: int
    """The soft limit of this process."""
    state: StateFolder
    pressure: Mapping[str, str]
    """The trouble with each file of /proc/pressure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobFacts:
    """The files of one knob in the best-effort cgroup."""

    files: tuple[str, ...]
    """The names on this version; empty: this version lacks the knob."""
    state: FileState
    trouble: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupFacts:
    """The cgroups, as an agent would find them."""

    mount: str
    version: Literal[0, 1, 2]
    """0: none is mounted there."""
    hybrid: bool
    """Whether version 2 is mounted beside version 1."""
    pods: str
    """The pods' cgroup, relative to each hierarchy; "": not found, see ``trouble``."""
    driver: Literal["", "cgroupfs", "systemd", "none"]
    """``none``: no kubelet creates cgroups here."""
    trouble: str
    best_effort: str
    """The folder of the best-effort cgroup; "": it does not exist."""
    controllers: Mapping[str, ControllerState]
    knobs: Mapping[str, KnobFacts]
    """Empty without a best-effort cgroup."""
    idle_tier: bool = False
    """Whether the best-effort cgroup itself is idle now: the kernel then accepts no weight for it."""
    no_stall: str = ""
    """Why no PSI of latency-sensitive pods is readable; "": some is, or it was not checked."""
    no_run_delay: str = ""
    """Why the agent cannot read how long threads of these pods wait; "": it can, or it was not checked."""
    refused_triggers: Mapping[Kind, str]
    """The kinds of pressure that the agent cannot wait on, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The workloads of a machine without Kubernetes."""

    file: str
    best_effort: PurePosixPath
    """The limited cgroup, relative to each hierarchy."""
    pods: Sequence[str]
    remarks: Sequence[Remark]
    """Remarks about the file's content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """An agent that runs on this machine. "": no trouble."""

    url: str
    not_live: str
    not_ready: str
    not_fresh: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest record of a topic."""

    topic: str
    timestamp_ms: int
    by_broker: bool
    """Whether the broker set the timestamp, rather than the producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaFacts:
    """The Kafka cluster, as seen from this machine."""

    bootstrap: Cluster
    brokers: int
    cluster: str
    round_trip_ms: float
    idempotence_trouble: str
    transactions: bool
    changes: Sequence[Change] | None
    """Differences from the table of topics; None: the user may not see all topics."""
    creation_trouble: str | None = None
    """Why the user could not create the missing topics; "": it could; None: not checked."""
    newest: Newest | None
    now_ms: int
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The settings of each existing topic of the table, as far as the broker reports them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoKafka:
    """A Kafka cluster that did not answer."""

    bootstrap: Cluster
    trouble: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginFacts:
    """One part's login to Kafka."""

    part: str
    security: Security | None = None
    """None: its file is unreadable."""
    tried: bool = True
    """False: the token for its login is not on this machine."""
    trouble: str = ""
    """Why the login failed; "": it did not."""
    lacks: Sequence[str] = ()
    """The part's rights that this login lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRight:
    """A right in the whole cluster."""

    verb: str
    group: str = ""
    resource: str
    subresource: str = ""


EVICTIONS = ApiRight(verb="create", resource="pods", subresource="eviction")
EVENTS = ApiRight(verb="create", resource="events")
KUBELET_PODS = ApiRight(verb="get", resource="nodes", subresource="pods")
KUBELET_PROXY = ApiRight(verb="get", resource="nodes", subresource="proxy")
API_RIGHTS = (EVICTIONS, EVENTS, KUBELET_PODS, KUBELET_PROXY)
"""The rights of an agent. It needs one of the last two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """The content of a token."""

    pod: str
    """Namespace and name of the pod that the token is bound to; "": none."""
    node: str
    """The node of that pod; "": the token names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFacts:
    """An API server, as seen from this machine."""

    url: str
    version: str
    """The version, such as ``v1.34.4``."""
    minor: int | None
    """The minor version, such as 34; None: unknown."""
    token: TokenFacts
    rights: Mapping[ApiRight, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoApi:
    """An API server that did not answer."""

    url: str
    trouble: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One controller of control groups."""

    name: str
    needed: str
    required: bool
    """Whether an agent can do its work without it."""


CONTROLLERS = (
    Controller(name="cpu", needed="to limit best-effort CPU", required=True),
    Controller(name="cpuacct", needed="to measure each pod's CPU", required=True),
    Controller(name="memory", needed="to measure each pod's memory", required=False),
    Controller(name="cpuset", needed="for cpuSuppressPolicy cpuset", required=False),
    Controller(name="freezer", needed="to freeze best-effort pods that lack eviction credit", required=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One requirement of a quota's scopes."""

    name: str
    operator: str = "Exists"
    values: Sequence[str] = ()

    def takes_batch(self) -> bool:
        """Return whether it covers batch pods, which are BestEffort to Kubernetes."""
        if self.name == "PriorityClass":
            there = BATCH_CLASS in self.values
            return {"In": there, "NotIn": not there, "DoesNotExist": False}.get(self.operator, True)
        return self.name not in {"NotBestEffort", "CrossNamespacePodAffinity"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A ResourceQuota."""

    namespace: str
    name: str
    hard: Sequence[str]
    scopes: Sequence[Scope] = ()

    def refuses_batch(self) -> bool:
        """Return whether a batch pod is refused, since it declares no native CPU or memory."""
        return bool(_COUNTED.intersection(self.hard)) and all(scope.takes_batch() for scope in self.scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookClients:
    """Whom the webhook answers, and what API servers may present, by the flags of their pods."""

    required: bool | None
    """Whether a pod of the webhook requires a client certificate; None: there is no such pod."""
    api_servers: Mapping[str, bool]
    """By pod: whether it has an admission configuration. Empty where API servers are no pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A cluster as an operator meets it. A text in place of a list is the reason why it is not known."""

    url: str
    critical: Sequence[str] | str
    """Critical pods without requests, as NAMESPACE/NAME."""
    quotas: Sequence[Quota] | str
    free_quotas: Sequence[str] | str
    """Namespaces with a quota for free, as NAMESPACE ANNOTATION."""
    installed: bool | str
    """Whether Slacktide is there, by its bridge's account."""
    critical_tried: str
    """The API server's refusal of a critical pod in a dry run; "": accepted, or not tried."""
    held: Sequence[str] | str
    """Rights of the bridge that are deleted, and kept by its finalizer: as KIND/NAME."""
    webhook_nodes: Sequence[str] | str
    """The node of each of the webhook's pods."""
    webhook_clients: WebhookClients | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """One node's kubelet."""

    node: str
    version: str
    certificate: Literal["accepted", "refused", "not reached", "not asked"]
    trouble: str = ""
    """Why the certificate is rejected, or the kubelet not reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The batch CPU that a node could publish, in millicores."""

    node: str
    most_milli: int
    """If its pods used no CPU."""
    by_requests_milli: int
    """If its pods used their requests. Before an installation, add the agent's and a share of the other parts'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """One item of a LimitRange: resource names by field."""

    namespace: str
    name: str
    fields: Mapping[str, Sequence[str]]

    def meets(self, *fields: str) -> bool:
        """Return whether one of these fields names native CPU or memory."""
        return any(name in _NATIVE for field in fields for name in self.fields.get(field, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Koordinator:
    """The parts of Koordinator in a cluster."""

    agents: Mapping[str, bool]
    """koordlet's pods as NAMESPACE/NAME, and whether each runs on a node of Slacktide's."""
    parts: Sequence[str]
    """Koordinator's other pods, CRDs and webhook configurations."""
    own_nodes: int
    """Nodes with the label colocation-agent=slacktide."""
    dry_run_nodes: int = 0
    """Nodes with the label colocation-agent=slacktide-dry-run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightFacts:
    """A cluster before an installation or upgrade. A text instead of a list is the reason why it is unknown."""

    version: str
    """The API server's version, such as ``v1.34.4``; "": unknown."""
    kubelets: Sequence[Kubelet] | str
    kube_scheduler: str
    """Image of the kube-scheduler in Slacktide's Deployment; "": none."""
    latency_sensitive: Sequence[str] | str
    """Pods of class LSE, LSR or LS in the best-effort tier, as NAMESPACE/NAME."""
    limits: Sequence[Limits] | str
    koordinator: Koordinator | str
    offers: Sequence[Offer] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledFacts:
    """What is installed. A text in place of a value is the reason why it is not known."""

    agents: Mapping[str, str] | str
    """Why the agent of each node that the DaemonSet selects is not ready; "": it is."""
    refused: RefusedFile | str | None
    """What is wrong in the ConfigMap of the policy; None: it is valid, or absent."""
    version: str = ""
    """The policy in force; "": unknown."""
