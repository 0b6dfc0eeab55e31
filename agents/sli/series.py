"""Turns the series of a query into latencies of services. Pure: whoever may name a series chooses its text."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from slacktide.agents.prometheus import Sample
from slacktide.schemas.bounds import COUNT_MAX, NODE_CHARS_MAX, TIME_MS_MAX
from slacktide.schemas.service import ServiceSli
from slacktide.schemas.units import decimal

SERIES_MAX: Final = 5_000
"""Of a query. A partition of the topic has at most as many services."""
NAMESPACE_CHARS_MAX: Final = 63
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", re.ASCII)

Skipped: TypeAlias = Literal["labels", "name", "value", "time", "duplicate", "many"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Which labels name the service and the node of a series."""

    namespace: str = "namespace"
    owners: tuple[str, ...] = ("deployment", "statefulset", "owner")
    """The first one that a series has counts."""
    node: str = "node"
    """A series without it is of all nodes together."""
    service: str = ""
    """``namespace/owner`` of all series, whatever their labels are; "": by the labels."""


class Named(NamedTuple):
    """Whose latency a series is."""

    service: str
    node: str


class Found(NamedTuple):
    """What a query's series are."""

    slis: list[ServiceSli]
    skipped: Counter[Skipped]
    examples: dict[Skipped, Mapping[str, str]]
    """Labels of the first series that was skipped for each reason."""


def latencies(samples: Sequence[Sample], naming: Naming, span_ms: int, target_us: int | None = None) -> Found:
    """Return the latency of each service, and how many series are skipped.

    Args:
        samples: values in seconds.
        naming: of services and nodes.
        span_ms: how long the query counts requests.
        target_us: for all services; None: unknown.
    """
    found = Found([], Counter(), {})
    seen: set[Named] = set()
    for number, sample in enumerate(samples):
        sli = "many" if number >= SERIES_MAX else latency_of(sample, naming, span_ms, target_us)
        if isinstance(sli, ServiceSli) and (named := Named(sli.service, sli.node)) not in seen:
            seen.add(named)
            found.slis.append(sli)
            continue
        why: Skipped = "duplicate" if isinstance(sli, ServiceSli) else sli
        found.skipped[why] += 1
        found.examples.setdefault(why, sample.metric)
    return found


def latency_of(sample: Sample, naming: Naming, span_ms: int, target_us: int | None) -> ServiceSli | Skipped:
    """Return the latency that a series is, or why it is none."""
    named = _named(sample.metric, naming)
    if not isinstance(named, Named):
        return named
    if sample.value is None:
        return "value"
    at_s, text = sample.value
    if not 0 <= at_s <= TIME_MS_MAX / 1_000:
        return "time"
    seconds = decimal(text)  # None for NaN, as of a service without requests, and for Inf
    if seconds is None or not 1 <= (p99_us := seconds * 1_000_000) <= COUNT_MAX:
        return "value"
    return ServiceSli(
        service=named.service,
        node=named.node,
        observed_ms=min(round(at_s * 1_000), TIME_MS_MAX),
        span_ms=span_ms,
        p99_us=round(p99_us),
        target_us=target_us,
    )


def _named(labels: Mapping[str, str], naming: Naming) -> Named | Skipped:
    node, service = labels.get(naming.node, ""), naming.service
    if not service:
        namespace = labels.get(naming.namespace, "")
        owner = next((labels[one] for one in naming.owners if labels.get(one)), "")
        if not namespace or not owner:
            return "labels"
        if not _is_name(namespace, NAMESPACE_CHARS_MAX) or "." in namespace or not _is_name(owner, NODE_CHARS_MAX):
            return "name"
        service = f"{namespace}/{owner}"
    return Named(service, node) if not node or _is_name(node, NODE_CHARS_MAX) else "name"


def _is_name(text: str, chars_max: int) -> bool:
    return len(text) <= chars_max and _NAME.fullmatch(text) is not None
