"""Pods: events, names and nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from slacktide.deploy.console.history.file import readable
from slacktide.deploy.console.history.reading import Reading, record_of
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
from slacktide.streams.decisions.evict.node_evict import observed
from slacktide.streams.explain.evidence import Place, place_of
from slacktide.streams.records import Record

DAY_MS = 24 * 3_600_000
LATELY_MS = 120_000
"""The newest pod lists are used for moments within this time."""
_Named = PodName | PodPlacement | MissedPod | Victim


class Pods:
    """Reads pods from the file and the current minute."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def events(self, pod: str, from_ms: int, to_ms: int) -> Sequence[PodEvent]:
        """Return a pod's events, oldest first. ``pod``: NAMESPACE/NAME, NAMESPACE, or a uid."""
        asked = (
            "SELECT DISTINCT record FROM entry JOIN pod ON pod.entry = entry.id "
            "WHERE (pod.name = ? OR pod.name GLOB ?) AND pod.at_ms >= ? AND pod.at_ms < ? ORDER BY pod.at_ms"
        )
        known = list(readable(record_of, self._reading.all(asked, pod, f"{_globbed(pod)}/*", from_ms, to_ms)))
        live = [one.record for one in self._reading.live().unstored() if any(is_named(name, pod) for name in one.names)]
        known += [one for one in live if from_ms <= one.timestamp_ms < to_ms]
        return [event for record in known for event in events_of(record, pod)]

    def names(self, at_ms: int, namespace: str = "", most: int = 1_000) -> Sequence[str]:
        """Return NAMESPACE/NAME of pods with records within the day before a moment.

        With a namespace, only its pods. For recent moments also pods of the nodes' lists.
        """
        asked = "SELECT DISTINCT name FROM pod WHERE at_ms > ? AND at_ms <= ? AND name GLOB ? ORDER BY name LIMIT ?"
        wanted = f"{_globbed(namespace)}/*" if namespace else "*/*"
        kept = self._reading.all(asked, at_ms - DAY_MS, at_ms, wanted, most)
        found = {name for (name,) in kept} | {
            name for one in self._reading.live().unstored() for name in one.names if "/" in name
        }
        if namespace:
            if at_ms >= self._reading.live().second_s * 1_000 - LATELY_MS:
                found |= {name for name, _ in self._listed()}
            found = {name for name in found if is_named(name, namespace)}
        return sorted(found)[:most]

    def node_of(self, pod: str, at_ms: int) -> str:
        """Return the node of NAMESPACE/NAME by its last event, else by the newest pod lists; "": unknown."""
        events = self.events(pod, at_ms - DAY_MS, at_ms + 1)
        known = next((one.node for one in reversed(events) if one.node), "")
        return known or next((node for name, node in self._listed() if name == pod), "")

    def _listed(self) -> Iterator[tuple[str, str]]:
        """Yield NAMESPACE/NAME and node of each pod in the nodes' newest keyframes."""
        for node in list(self._reading.live().nodes.values()):
            if node.keyframe is not None:
                for one in node.keyframe.body.pods or ():
                    yield f"{one.namespace}/{one.name}", node.name


def _globbed(text: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in text)


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
