"""Defines records with their positions in Kafka, findings, and how severe each fact is, for every view."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.message import Message
from slacktide.schemas.third_party import ANNOTATION
from slacktide.schemas.topics import Topic
from slacktide.streams.decisions.ignored_marks import ignored_marks
from slacktide.streams.records import Record

Severity = Literal["ok", "note", "warning", "problem"]
"""``problem``: Slacktide does not do its work there, or a pod cannot run. ``warning``: it works, but not as it should.
``note``: less than one could expect, by the policy or the load. ``ok``: information."""

_OF_NODES: Final[Mapping[Severity, Mapping[str, str]]] = {
    "problem": {
        "agent.silent": "silent: no sample arrives",
        "agent.two": "frozen: two agents send samples of it",
        "agent.unproven": "its samples are rejected: their signature is not valid",
        "batch.absent": "no batch resources are published",
        "batch.none": "no batch resources are published",
        "batch.stale": "its batch resources are reduced to what running pods requested",
        "batch.unreadable": "no batch resources are offered: an annotation cannot be read",
        "limit.failed": "the limit of best-effort pods could not be set",
        "node.unknown": "it has no inventory record",
        "pods.unheld": "pods that claim to be best-effort are not limited",
        "policy.absent": "there is no policy",
        "policy.other": "its agent uses another policy",
        "policy.refused": "the newest policy was rejected",
        "window.absent": "no figures are published",
        "window.frozen": "frozen: no worker has published its figures for 15 s",
        "window.stale": "silent: workers have marked it stale",
        "worker.silent": "no worker answers its samples",
    },
    "warning": {
        "agent.forged": "another writer uses its name",
        "agent.missing": "its agent cannot read a source",
        "batch.degraded": "no recent measurement for longer than the policy allows",
        "command.not-carried-out": "a command was not carried out",
        "command.skipped": "workers cannot decide for it",
        "command.unheard": "a command has no outcome",
        "figures.stand": "silent, but not marked stale yet",
        "guard.in-charge": "its guard decides",
        "node.ignored": "a label or an annotation of it cannot be read",
        "node.no-pressure": "it has no pressure figures",
        "node.suspended": "suspended",
        "policy.older-figures": "its figures were computed by an older policy",
    },
    "note": {
        "batch.capped": "batch resources are limited by their cap",
        "batch.disabled": "batch resources are disabled by the policy",
        "batch.dry-run": "dry run: batch resources are not written to the Node",
        "batch.exhausted": "no batch resources are left",
        "batch.floored": "batch resources are what running pods requested",
        "batch.held": "best-effort pods may use less CPU than they requested",
        "batch.third-party": "other schedulers hold batch resources",
        "command.dry-run": "dry run: a command was not carried out",
        "free.exhausted": "no free resources are left",
        "limit.dry-run": "dry run: limits are not applied",
        "memory.not-reclaimed": "no memory can be reclaimed before pods are evicted",
        "memory.reclaimed": "memory of best-effort pods is reclaimed",
        "tier.critical": "critical pods without requests are not limited",
        "window.partial": "its window is not full yet",
    },
    "ok": {
        "cpus.exclusive": "pods have exclusive CPUs",
        "mid.predicted": "mid resources are predicted",
        "node.learned-cap": "a cap was learned of its services",
        "node.pressure": "pressure is measured",
        "tier.mid": "mid pods have their own limit",
    },
}
"""Facts about nodes, with a short text that does not change from second to second."""
_OF_OTHERS: Final[Mapping[Severity, str]] = {
    "problem": "evicted.often figures.above-capacity figures.frozen job.failed lint.class lint.native lint.overruled "
    "lint.unheld memory.short pending.all-passed-over pending.cordoned pending.gang pending.no-nodes pending.refused "
    "pending.scheduler pending.selector pending.short pending.too-high pending.unserved pod.missed pod.quota",
    "warning": "descheduling.chosen descheduling.silent descheduling.stopped evicted eviction.notice evictions "
    "evictions.waiting governor.absent history.missing job.backoff-near job.evicted job.failed-indexes job.ignored "
    "letters.new "
    "lint.band lint.bare lint.equal lint.limits lint.over lint.requests lint.service lint.stateful log.short "
    "pending.passed-over pod.cores-lost pod.cores-unset pod.held pod.ignored pod.no-cores worker.lags",
    "note": "descheduling.dry-run descheduling.over eviction.no-credit job.failures job.unseen lint.idle "
    "lint.no-priority pending.condition pending.fits-requests pending.not-judged pod.borrowed pod.planned "
    "pod.reclaimed pod.unlisted pod.unmeasured service.learning service.off service.old",
    "ok": "descheduling.stays evicted.never pending.fits pod.cores pod.forecast pod.limit pod.pressure service.cap "
    "service.no-cap",
}
"""Facts about pods, Jobs, services, workers, the policy and the console."""
BRIEF: Final[Mapping[str, str]] = {name: text for some in _OF_NODES.values() for name, text in some.items()}
_SEVERITY: Final[Mapping[str, Severity]] = {
    **{name: severity for severity, some in _OF_NODES.items() for name in some},
    **{name: severity for severity, names in _OF_OTHERS.items() for name in names.split()},
}
WORST_FIRST: Final[tuple[Severity, ...]] = ("problem", "warning", "note", "ok")


def severity_of(fact: str) -> Severity:
    """Return how severe a fact is; a fact that the table lacks is a defect."""
    return _SEVERITY[fact]


M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A record's position."""

    topic: str
    partition: int
    offset: int
    logged_ms: int
    """The record's timestamp, UTC epoch."""

    def __str__(self) -> str:
        return f"{self.topic} {self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged(Generic[M]):
    """A decoded record."""

    body: M
    place: Place

    def age_ms(self, now_ms: int) -> int:
        """Return the age by Kafka's clock; at least 0."""
        return max(0, now_ms - self.place.logged_ms)


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of an explanation."""

    name: str
    """Stable identifier: part and subject, such as ``agent.silent``."""
    severity: Severity = field(init=False)
    """By the name, the same in every view."""
    text: str
    """The facts with numbers."""
    advice: str = ""
    """What to do; "": nothing."""

    def __post_init__(self) -> None:
        """Look the severity up."""
        object.__setattr__(self, "severity", severity_of(self.name))


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings: the worst first, of equal ones in their order."""
    return sorted(findings, key=lambda one: WORST_FIRST.index(one.severity))


def place_of(record: Record) -> Place:
    """Return the record's position."""
    return Place(topic=record.topic, partition=record.partition, offset=record.offset, logged_ms=record.timestamp_ms)


def logged(
    records: Iterable[Record],
    topic: Topic,
    kind: type[M],
    key: str | None = None,
    read: Callable[[Record], M] | None = None,
) -> list[Logged[M]]:
    """Return the messages of a topic, in order; invalid records are skipped.

    ``key``: only this key (None: all); a tombstone removes its earlier records. ``read`` decodes a record; None: by its
    kind.
    """
    raw = None if key is None else key.encode()
    found: list[Logged[M]] = []
    for record in records:
        if record.topic != topic.name or (raw is not None and record.key != raw):
            continue
        if record.value is None:
            if raw is not None:
                found.clear()
            continue
        try:
            body = decode(record.value, kind) if read is None else read(record)
            found.append(Logged(body=body, place=place_of(record)))
        except BadMessageError:  # a dead letter reports it
            continue
    return found


def newest(found: Iterable[Logged[M]], order: Callable[[M], tuple[str, int]]) -> Logged[M] | None:
    """Return the message with the highest boot and seq; among equals the last."""
    best: Logged[M] | None = None
    for one in found:
        if best is None or order(one.body) >= order(best.body):
            best = one
    return best


def by_key(records: Iterable[Record], topic: Topic) -> dict[str, list[Record]]:
    """Return a topic's records by key."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.topic == topic.name and record.key is not None:
            found.setdefault(record.key.decode(errors="backslashreplace"), []).append(record)
    return found


def ignored_findings(of: str, ignored: Sequence[str]) -> Iterator[Finding]:
    """Report each of an object. ``of``: pod, node or job."""
    for note in ignored:
        yield Finding(
            f"{of}.ignored", note, advice="correct or remove it; a FieldIgnored Event on the object repeats this"
        )


def ignored_node_findings(facts: NodeFacts | None) -> Iterator[Finding]:
    """Report those of a Node, except the one that has a finding of its own."""
    notes = [] if facts is None else ignored_marks(facts)
    return ignored_findings("node", [note for note in notes if ANNOTATION not in note])
