"""Outcomes of acts on one pod: whose they are, and those that follow from one decision. Pure."""

from __future__ import annotations

import msgspec

from slacktide.agents.node.protocol import Taken
from slacktide.agents.node.reporter import Cause, Reporter
from slacktide.schemas.command import command_id
from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import pod_group, uid_of
from slacktide.schemas.outcome import NodeOutcome, Origin, PodName
from slacktide.streams.decisions.evict_observed import observed
from slacktide.streams.decisions.node_evict import Eviction


def cause_of(victim: Eviction, taken: Taken, origin: Origin, reason: str, *, bound: str = "") -> Cause:
    """Why something is done to a victim; ``bound`` where it is not the decision's own."""
    return Cause(
        taken=taken, origin=origin, rule=victim.rule, reason=reason, bound=bound or victim.bound, terms=victim.terms
    )


def begun_on(pod: Pod, cause: Cause, reporter: Reporter) -> NodeOutcome:
    """The outcome of an act on a pod as far as it is known before it."""
    name = PodName(namespace=pod.namespace, name=pod.name)
    return msgspec.structs.replace(reporter.begun(cause, pod_group(pod.uid)), pod=name)


def pod_of(outcome: NodeOutcome) -> str:
    """The uid of the pod that an act was about."""
    return uid_of(outcome.target)


def ends_or_stops(outcome: NodeOutcome) -> bool:
    """Whether an act was to end a pod, or to stop it for a while, or to let it go on."""
    return outcome.pod is not None and outcome.knob is None


def reason_of(outcome: NodeOutcome) -> str:
    """Observed value against threshold, and the reason: the same in the agent's log as in an Event on the pod."""
    return "; ".join(filter(None, (observed(outcome.terms), outcome.reason)))


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
