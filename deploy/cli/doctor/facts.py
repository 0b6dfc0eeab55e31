"""Defines the facts about a machine and its Kafka cluster, before any check; ``trouble`` "": none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from slacktide.agents.node.host_pods import Remark
from slacktide.agents.node.pressure import Kind
from slacktide.deploy.cli.topic_plan import Change
from slacktide.schemas.connection import Cluster, Security

ControllerState = Literal["absent", "not handed on", "usable"]
"""``not handed on``: the machine has it, the best-effort cgroup does not."""
FileState = Literal["absent", "not writable", "writable"]


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
