"""PURE: what is gathered of a machine and its log, before anybody judges it. ``trouble`` is "" where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from slacktide.agents.node.ahead.pressure import Kind
from slacktide.agents.node.pods.host_pods import Remark
from slacktide.deploy.cli.topic_plan import Change
from slacktide.schemas.connection import Cluster, Security

ControllerState = Literal["absent", "not handed on", "usable"]
"""``not handed on``: the machine has it, the best-effort group does not."""
FileState = Literal["absent", "not writable", "writable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFolder:
    """Where an agent would keep its state."""

    path: str
    trouble: str
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """A machine and this process on it."""

    kernel: str
    """Its release, such as ``6.1.0-18-amd64``; "": not known."""
    cpus: int
    user_id: int
    capabilities: int | None
    """The bits of CapEff; None: not known."""
    clock_source: str
    """"": not known."""
    clock_kept_by: str
    """What was found that keeps the clock, such as ``chronyd``; "": nothing."""
    clock_synchronised: bool
    """Whether that reports so itself; chronyd and ntpd report only to those who ask them."""
    open_files: int
    """The soft limit of this process."""
    state: StateFolder
    pressure: Mapping[str, str]
    """By file of /proc/pressure: the trouble with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobFacts:
    """The files of one knob in the best-effort group."""

    files: tuple[str, ...]
    """Their names on this version; none: this version has no such knob."""
    state: FileState
    trouble: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupFacts:
    """Control groups as an agent would find them."""

    mount: str
    version: Literal[0, 1, 2]
    """0: none is mounted there."""
    hybrid: bool
    """Version 1 with version 2 beside it."""
    pods: str
    """The group that holds the pods, relative to each hierarchy; "": not found, see ``trouble``."""
    driver: Literal["", "cgroupfs", "systemd", "none"]
    """``none``: no kubelet makes groups here."""
    trouble: str
    best_effort: str
    """The folder of the best-effort group; "": it is not there."""
    controllers: Mapping[str, ControllerState]
    knobs: Mapping[str, KnobFacts]
    """Empty where there is no best-effort group."""
    idle_tier: bool = False
    """Whether the best-effort group itself is idle now: the kernel takes no weight of it."""
    no_stall: str = ""
    """Why PSI of no group of latency-sensitive pods is readable; "": one is, or no group was looked for."""
    refused_triggers: Mapping[Kind, str]
    """Why, by the kind of pressure of latency-sensitive pods that the agent could not wait on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What runs on a machine without Kubernetes."""

    file: str
    best_effort: PurePosixPath
    """The group that is held, relative to each hierarchy."""
    pods: Sequence[str]
    remarks: Sequence[Remark]
    """By the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """An agent that runs on this machine. "": nothing is wrong."""

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
    """Whether the broker stamped it, and not who sent it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The log as this machine meets it."""

    bootstrap: Cluster
    brokers: int
    cluster: str
    """Its id."""
    round_trip_ms: float
    idempotence_trouble: str
    transactions: bool
    changes: Sequence[Change] | None
    """What the cluster lacks of the table of topics; None: whoever asked may not see all."""
    creation_trouble: str | None = None
    """Why who asks could not create the missing topics; "": it could; None: that was not asked."""
    newest: Newest | None
    now_ms: int
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of each topic of the table that exists, as far as the broker reports them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLog:
    """A log that could not be asked."""

    bootstrap: Cluster
    trouble: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginFacts:
    """One part's login to Kafka."""

    part: str
    security: Security | None = None
    """None: its file cannot be read."""
    tried: bool = True
    """False: it logs in with a token that is not here."""
    trouble: str = ""
    """Why it could not log in; "": it could."""
    lacks: Sequence[str] = ()
    """Rights of the part that this login does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRight:
    """Something that may be done in the whole cluster."""

    verb: str
    group: str = ""
    resource: str
    subresource: str = ""


EVICTIONS = ApiRight(verb="create", resource="pods", subresource="eviction")
EVENTS = ApiRight(verb="create", group="events.k8s.io", resource="events")
KUBELET_PODS = ApiRight(verb="get", resource="nodes", subresource="pods")
KUBELET_PROXY = ApiRight(verb="get", resource="nodes", subresource="proxy")
API_RIGHTS = (EVICTIONS, EVENTS, KUBELET_PODS, KUBELET_PROXY)
"""What an agent asks for; of the last two it needs one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """What a token holds."""

    pod: str
    """Namespace and name of the pod that it is bound to; "": to none."""
    node: str
    """Of that pod; "": it does not name one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFacts:
    """An API server as this machine meets it."""

    url: str
    version: str
    """Such as ``v1.34.4``."""
    minor: int | None
    """34 of that; None: not known."""
    token: TokenFacts
    rights: Mapping[ApiRight, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoApi:
    """An API server that could not be asked."""

    url: str
    trouble: str
