"""Learned slopes of services, from Kafka: which one is the largest on this node."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from slacktide.agents.node.service_times import service_of
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeFacts, Pod, unended, with_slope
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.qos import as_held, is_best_effort
from slacktide.schemas.service import ServiceSlope
from slacktide.streams.records import Record

log = logging.getLogger(__name__)

SERVICES_MAX = 20_000
"""Slopes that an agent keeps: some 4 MB."""


def learns(colocation: Colocation) -> bool:
    """Return whether the policy learns how much best-effort work the node's services bear."""
    return colocation.enable and colocation.learned_caps != "off"


class Kept(Protocol):
    """Keeps slopes for the agent's next start, in thousandths. Never raises."""

    def slopes(self) -> dict[str, int]:
        """Return those that were kept last."""

    def keep_slopes(self, slopes: Mapping[str, int]) -> None:
        """Keep these."""


class Slopes:
    """The slope of each service that has one, in thousandths. At a start, those that the last run kept are known."""

    def __init__(self, changed: Callable[[], None], kept: Kept) -> None:
        """``changed`` is called whenever a slope in force has changed."""
        self._changed, self._kept = changed, kept
        self._known = dict(kept.slopes())
        self._follows = False
        """Whether the topic was read completely since the start: until then, kept slopes may be of pods not listed
        yet, and they stay kept."""
        self._read: dict[str, int] | None = {}
        """What was read since the connection; None: all was read, and ``_known`` follows."""
        self._too_many = False

    def begin(self) -> None:
        """The topic is read from its beginning. Until it was read completely, the slopes known so far stay."""
        self._read = {}

    def take(self, records: Iterable[Record], refuse: Callable[[Record, str], None]) -> None:
        """Read records of the topic, in order. A null value removes a slope."""
        changed = False
        for record in records:
            try:
                changed = self._take(record) or changed
            except BadMessageError as exc:
                refuse(record, str(exc))
        if changed and self._read is None:
            self._changed()

    def whole(self) -> None:
        """All that the topic held was read, by now or earlier."""
        if self._read is not None:
            self._follows = True
            before, self._known, self._read = self._known, self._read, None
            if before != self._known:
                self._changed()

    def onto(self, facts: NodeFacts, pods: Sequence[Pod], colocation: Colocation) -> NodeFacts:
        """Return the facts with the largest slope of the node's latency-sensitive pods, as far as the policy learns.

        The slopes of these pods are kept for the next start.
        """
        own = dict[str, int]()
        if learns(colocation):
            services = {service_of(pod) for pod in unended(pods) if not is_best_effort(as_held(pod))}
            own = {one: self._known[one] for one in services if self._known.get(one)}
            if self._follows:
                self._kept.keep_slopes(own)
        largest = min(own, key=lambda one: (-own[one], one), default="")
        return with_slope(facts, own.get(largest, 0), largest)

    def _take(self, record: Record) -> bool:
        slopes = self._known if self._read is None else self._read
        service = (record.key or b"").decode(errors="replace")
        if record.value is None:
            return slopes.pop(service, None) is not None
        slope = decode(record.value, ServiceSlope)
        if slope.service != service:
            raise BadMessageError("ServiceSlope", f"it is of {slope.service!r}, and its key is {service!r}")
        if service not in slopes and len(slopes) >= SERVICES_MAX:
            if not self._too_many:
                self._too_many = True
                log.warning("slopes of more services than an agent keeps are ignored", extra={"kept": SERVICES_MAX})
            return False
        before, slopes[service] = slopes.get(service), slope.slope_permille
        return before != slope.slope_permille
