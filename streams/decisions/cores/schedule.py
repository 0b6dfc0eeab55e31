"""Which CPUs a pod gets on a node without NUMA alignment, and what is written to it. Reading: plugin.go, util.go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import effective_priority_class, raw_qos
from slacktide.streams.decisions.cores.allocate import Free, allocate
from slacktide.streams.decisions.cores.take import FULL, SPREAD, TakeError, Wish
from slacktide.streams.decisions.cores.topology import Cpus

DEFAULT = "Default"
WHOLE_ONLY = "the requested CPUs must be integer"
NO_TOPOLOGY = "node(s) invalid CPU Topology"
CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
NOT_MULTIPLE = "node(s) requested cpus not multiple cpus per core"
Stage = Literal["ok", "prefilter", "filter", "reserve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The annotation resource-spec; "": absent."""

    required: str = ""
    preferred: str = ""
    exclusive: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePolicy:
    """How a node binds pods."""

    label: str = ""
    """node.koordinator.sh/cpu-bind-policy"""
    full_only: bool = False
    """The kubelet's CPU manager is static, and takes whole cores only."""
    default: str = FULL
    strategy: str = ""

    @property
    def bind(self) -> str:
        """Return the bind policy that the node demands; "": none."""
        if self.full_only or self.label == "FullPCPUsOnly":
            return FULL
        return SPREAD if self.label == SPREAD else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """The result for one pod and node."""

    stage: Stage
    reason: str = ""
    binds: bool = False
    """Whether the pod binds CPUs; also where an error comes after the filter."""
    cpus: Cpus | None = None
    spec: Spec = Spec()
    """As it is written to the pod."""


class _StageError(Exception):
    def __init__(self, stage: Stage, reason: str) -> None:
        self.stage: Stage = stage
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a pod asks for by itself."""

    binds: bool = False
    required: str = ""
    policy: str = ""
    exclusive: str = ""


def schedule(pod: Pod, request_milli: int, spec: Spec, free: Free, node: NodePolicy) -> Scheduled:
    """Decide whether a pod binds CPUs, and which.

    Args:
        pod: its labels and priority.
        request_milli: its CPU request.
        spec: its annotation.
        free: what the node has.
        node: how the node binds pods.
    """
    asked = _Asked()
    try:
        asked = _asked(pod, request_milli, spec, node.default)
        if not asked.binds and request_milli > 0 and node.bind:
            asked = _Asked(binds=True)
            _check_whole("filter", request_milli)
        if not asked.binds:
            return Scheduled(stage="ok", spec=spec)
        _filter(asked, request_milli // 1_000, free, node)
        wish = _wish(asked, node)
        try:
            cpus = allocate(free, wish, request_milli // 1_000)
        except TakeError as exc:
            raise _StageError("reserve", str(exc)) from exc
    except _StageError as exc:
        return Scheduled(stage=exc.stage, reason=exc.reason, binds=exc.stage == "reserve", spec=spec)
    return Scheduled(stage="ok", binds=True, cpus=cpus, spec=_recorded(spec, wish))


def _asked(pod: Pod, request_milli: int, spec: Spec, default: str) -> _Asked:
    if raw_qos(pod.qos_label) not in {"LSE", "LSR"} or effective_priority_class(pod) != "koord-prod":
        return _Asked()
    preferred = default if spec.preferred in {"", DEFAULT} else spec.preferred
    required = default if spec.required == DEFAULT else spec.required
    policy = required or preferred
    if policy not in {FULL, SPREAD}:
        return _Asked()
    _check_whole("prefilter", request_milli)
    return _Asked(binds=request_milli > 0, required=required, policy=policy, exclusive=spec.exclusive)


def _check_whole(stage: Stage, request_milli: int) -> None:
    if request_milli % 1_000:
        raise _StageError(stage, WHOLE_ONLY)


def _filter(asked: _Asked, wanted: int, free: Free, node: NodePolicy) -> None:
    if not free.topology.cpus:
        raise _StageError("filter", NO_TOPOLOGY)
    if asked.required and node.bind and asked.required != node.bind:
        raise _StageError("filter", CONFLICT)
    enforced = node.bind or asked.required
    if enforced == FULL and wanted % free.topology.per_core:
        raise _StageError("filter", NOT_MULTIPLE)
    if enforced:
        try:
            allocate(free, _wish(asked, node), wanted)
        except TakeError as exc:
            raise _StageError("filter", str(exc)) from exc


def _wish(asked: _Asked, node: NodePolicy) -> Wish:
    enforced = asked.required or node.bind
    return Wish(
        bind=enforced or asked.policy, required=bool(enforced), exclusive=asked.exclusive, strategy=node.strategy
    )


def _recorded(spec: Spec, wish: Wish) -> Spec:
    required, preferred = spec.required, spec.preferred
    if wish.required and required in {"", DEFAULT}:
        required = wish.bind
    if preferred == DEFAULT or not (required or preferred):
        preferred = wish.bind
    return Spec(required=required, preferred=preferred, exclusive=spec.exclusive)
