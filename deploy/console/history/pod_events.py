"""Events of pods in kept records. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from slacktide.deploy.console.history.view import PodEvent
from slacktide.schemas.codec import decode
from slacktide.schemas.descheduling import DeschedulingPass, Victim
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.knob import uid_of
from slacktide.schemas.message import Message
from slacktide.schemas.missed_pod import MissedPod
from slacktide.schemas.outcome import NodeOutcome, PodName
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.topics import DESCHEDULING, MISSED_POD, OUTCOME, PLACEMENT
from slacktide.streams.audit.acts import what
from slacktide.streams.decisions.evict.evict_observed import observed
from slacktide.streams.explain.evidence import Place, place_of
from slacktide.streams.records import Record

_Named = PodName | PodPlacement | MissedPod | Victim


def is_named(name: str, pod: str) -> bool:
    """Return whether the pod matches: ``pod`` is its NAMESPACE/NAME, uid or NAMESPACE."""
    return name == pod or name.startswith(f"{pod}/")


def events_of(record: Record, pod: str) -> Iterator[PodEvent]:
    """Yield events of matching pods in one record."""
    place = place_of(record)
    with suppress(BadMessageError):
        if record.topic == OUTCOME.name:
            act = decode(record.value, NodeOutcome)
            text = ", ".join(one for one in (act.rule, act.reason, observed(act.terms)) if one)
            if act.pod is not None:
                yield _event(place, act, what(act), act.pod, uid=uid_of(act.target), node=act.node, text=text)
        elif record.topic == PLACEMENT.name:
            placed = decode(record.value, PodPlacement)
            text = f"{placed.passed} of {placed.asked} nodes accept it"
            kind = "placed" if placed.passed else "refused"
            yield _event(place, placed, kind, placed, uid=placed.pod_uid, text=text)
        elif record.topic == MISSED_POD.name:
            missed = decode(record.value, MissedPod)
            text = "created while the webhook was unavailable"
            yield _event(place, missed, "missed", missed, uid=missed.pod_uid, text=text)
        elif record.topic == DESCHEDULING.name:
            victims = decode(record.value, DeschedulingPass).victims
            for one in (one for one in victims if is_named(f"{one.namespace}/{one.name}", pod)):
                yield _event(place, one, "descheduled", one, node=one.node, text=observed(one.terms))


def _event(
    place: Place, body: Message, kind: str, pod: _Named, *, uid: str = "", node: str = "", text: str
) -> PodEvent:
    return PodEvent(at_ms=place.logged_ms, kind=kind, namespace=pod.namespace, name=pod.name, uid=uid, node=node,
                    text=text, place=place, body=body)  # fmt: skip
