"""Records that are kept by themselves: policies, acts on pods, placements, dead letters, some ticks. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from slacktide.deploy.console.history.minute import Entry
from slacktide.schemas.codec import decode
from slacktide.schemas.descheduling import DeschedulingPass
from slacktide.schemas.knob import uid_of
from slacktide.schemas.missed_pod import MissedPod
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.topics import DEAD_LETTER, DESCHEDULING, MISSED_POD, PLACEMENT, POLICY, TICK
from slacktide.streams.decisions.audited import ENDS, HOLDS
from slacktide.streams.records import Record

TICK_MS = 10_000
"""One tick of each worker is kept in each such span."""


class Entries:
    """Those of the minute that is being filled."""

    def __init__(self) -> None:
        self.found: list[Entry] = []
        self._ticks: dict[bytes | None, int] = {}
        self._policy: Record | None = None

    def take(self, record: Record, *, new: bool) -> None:
        """The next record of one of ``KEPT``; one that is not new is stored already.

        Raises:
            BadMessageError: it cannot be read.

        """
        if record.topic == POLICY.name:
            differs = self._policy is None or record.value != self._policy.value
            self._policy = record if differs else self._policy
            self._add(record, new=new and differs)
        elif record.topic == TICK.name:
            span = record.timestamp_ms // TICK_MS
            self._add(record, new=new and self._ticks.get(record.key) != span)
            self._ticks[record.key] = span
        else:
            self._add(record, _pods_of(record), new=new)

    def take_outcome(self, record: Record, body: NodeOutcome, *, new: bool) -> None:
        """What came of an act on a pod, or of one that holds pods back."""
        if body.pod is not None or body.bound in HOLDS | ENDS:
            pod = () if body.pod is None else (f"{body.pod.namespace}/{body.pod.name}", uid_of(body.target))
            self._add(record, pod, body.node, new=new)

    def keep_what_holds(self) -> None:
        """At the very first start: the policy."""
        if self._policy is not None:
            self.found.append(Entry(self._policy))

    def full(self) -> list[Entry]:
        """The minute is over."""
        found, self.found = self.found, []
        return found

    def _add(self, record: Record, names: Iterable[str] = (), node: str = "", *, new: bool) -> None:
        if new:
            self.found.append(Entry(record, tuple(name for name in names if name), node))


def _pods_of(record: Record) -> tuple[str, ...]:
    """Pods that it is about, as NAMESPACE/NAME and uid."""
    if record.topic == PLACEMENT.name:
        placed = decode(record.value, PodPlacement)
        return f"{placed.namespace}/{placed.name}", placed.pod_uid
    if record.topic == MISSED_POD.name:
        missed = decode(record.value, MissedPod)
        return (f"{missed.namespace}/{missed.name}",)
    if record.topic == DESCHEDULING.name:
        return tuple(f"{one.namespace}/{one.name}" for one in decode(record.value, DeschedulingPass).victims)
    return ()


KEPT = (TICK, PLACEMENT, MISSED_POD, DESCHEDULING, DEAD_LETTER)
"""Topics of which that is all; policies and outcomes have other uses, too."""
