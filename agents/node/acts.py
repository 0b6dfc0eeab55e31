"""Outcomes of acts on one pod: whose they are, and those that follow from one decision. Pure."""

from __future__ import annotations

import msgspec

from slacktide.schemas.command import command_id
from slacktide.schemas.inventory import Pod
from slacktide.schemas.outcome import NodeOutcome, PodName

_POD = "pod/"


def target_of(pod: Pod) -> str:
    """What an outcome calls a pod."""
    return f"{_POD}{pod.uid}"


def of_pod(outcome: NodeOutcome, pod: Pod) -> NodeOutcome:
    """The outcome with the pod's name."""
    return msgspec.structs.replace(outcome, pod=PodName(namespace=pod.namespace, name=pod.name))


def pod_of(outcome: NodeOutcome) -> str:
    """The uid of the pod that an act was about."""
    return outcome.target.removeprefix(_POD)


def ends_or_stops(outcome: NodeOutcome) -> bool:
    """Whether an act was to end a pod, or to stop it for a while, or to let it go on."""
    return outcome.pod is not None and outcome.knob is None


def sub_act(outcome: NodeOutcome, what: str) -> NodeOutcome:
    """Another act of the same decision: it has an id of its own."""
    id_ = command_id(
        outcome.node,
        outcome.boot_id,
        outcome.seq,
        outcome.rule,
        f"{outcome.target}/{what}",
        outcome.policy_version,
    )
    return msgspec.structs.replace(outcome, command_id=id_)
