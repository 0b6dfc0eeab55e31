"""Outcomes of acts: the key of each, and those on one pod. Pure."""

from __future__ import annotations

import msgspec

from slacktide.agents.node.protocol import Taken
from slacktide.agents.node.reporter import Cause, Reporter
from slacktide.schemas.command import command_id
from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import pod_group, uid_of
from slacktide.schemas.outcome import NodeOutcome, Origin, PodName
from slacktide.streams.decisions.evict.node_evict import Eviction, observed

Key = tuple[str, str, str]


def key_of(outcome: NodeOutcome) -> Key:
    """Return the key that an intent and its outcome share."""
    return outcome.command_id, outcome.rule, outcome.target


def cause_of(victim: Eviction, taken: Taken, origin: Origin, reason: str, *, bound: str = "") -> Cause:
    """Return the cause of an act on a victim; ``bound``: "" for the decision's own."""
    return Cause(
        taken=taken, origin=origin, rule=victim.rule, reason=reason, bound=bound or victim.bound, terms=victim.terms
    )


def begun_on(pod: Pod, cause: Cause, reporter: Reporter) -> NodeOutcome:
    """Return the outcome of an act on a pod, as known before the act."""
    name = PodName(namespace=pod.namespace, name=pod.name)
    return msgspec.structs.replace(reporter.begun(cause, pod_group(pod.uid)), pod=name)


def pod_of(outcome: NodeOutcome) -> str:
    """Return the uid of the pod of an act."""
    return uid_of(outcome.target)


def ends_or_stops(outcome: NodeOutcome) -> bool:
    """Return whether an act evicts, freezes or thaws a pod."""
    return outcome.pod is not None and outcome.knob is None


def reason_of(outcome: NodeOutcome) -> str:
    """Return the observed value, threshold and reason, for the agent's log and Events."""
    return "; ".join(filter(None, (observed(outcome.terms), outcome.reason)))


def sub_act(outcome: NodeOutcome, what: str) -> NodeOutcome:
    """Return the outcome of another act of the same decision, with its own id."""
    id_ = command_id(
        outcome.node, outcome.boot_id, outcome.seq, outcome.rule, f"{outcome.target}/{what}", outcome.policy_version
    )
    return msgspec.structs.replace(outcome, command_id=id_)
