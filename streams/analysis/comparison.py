"""Compares the decisions of a shadow policy with those of the policy in force. Pure.

Two decisions agree if they lead to the same limits, evictions and knob values. A decision without a limit keeps the
limit of the sample.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.bounds import KnobValue
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.message import Message
from slacktide.schemas.proof import PROVEN
from slacktide.schemas.sample import Limits
from slacktide.schemas.sample_columns_codec import identity_of
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, SAMPLE, SHADOW_ALLOCATABLE, SHADOW_COMMAND
from slacktide.streams.decisions.suppress.cpu_suppress import measured, quota_rate
from slacktide.streams.records import Record

WAITING_MAX = 50_000
"""Samples that wait for the second of their two decisions. Above this the oldest is dropped and counted."""
PATIENCE_MS = 5_000
"""The shadow's decision may arrive this long after the real one."""

Key = tuple[str, str, int]


class Taken(Message, frozen=True, kw_only=True):
    """The limits in force, read from a sample."""

    node: str
    boot_id: str
    seq: int
    limits: Limits | None = None


@dataclass(slots=True)
class Limit:
    """The differences of one rule's limit."""

    tighter: int = 0
    looser: int = 0
    """Samples in which the shadow's limit is lower, or higher."""
    sum_milli: int = 0
    """Shadow minus real, over the samples where both are limited."""
    measured: int = 0
    greatest_milli: int = 0
    """The largest difference, by absolute value."""

    @property
    def mean_milli(self) -> int | None:
        """Return the mean of shadow minus real over the samples that differ; None: one was always unlimited."""
        return round(self.sum_milli / self.measured) if self.measured else None


@dataclass(slots=True)
class Tally:
    """Counts for one node, or for all."""

    samples: int = 0
    """Samples with a decision from both."""
    same: int = 0
    skipped: int = 0
    """Samples that one of them could not decide."""
    limits: dict[str, Limit] = field(default_factory=dict)
    """By rule."""
    evicts_real: Counter[str] = field(default_factory=Counter)
    """Samples by pod that only the real policy would evict."""
    evicts_shadow: Counter[str] = field(default_factory=Counter)
    settings: Counter[str] = field(default_factory=Counter)
    """Knobs with different values, by rule."""

    @property
    def agreement(self) -> float | None:
        """Return the fraction of samples with equal decisions; None: nothing was compared."""
        return self.same / self.samples if self.samples else None

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.samples += other.samples
        self.same += other.same
        self.skipped += other.skipped
        for rule, theirs in other.limits.items():
            mine = self.limits.setdefault(rule, Limit())
            mine.tighter += theirs.tighter
            mine.looser += theirs.looser
            mine.sum_milli += theirs.sum_milli
            mine.measured += theirs.measured
            mine.greatest_milli = max(mine.greatest_milli, theirs.greatest_milli, key=abs)
        self.evicts_real += other.evicts_real
        self.evicts_shadow += other.evicts_shadow
        self.settings += other.settings


@dataclass(slots=True)
class Offered:
    """The allocatable that each policy last published for a node; None: nothing."""

    real: NodeAllocatable | None = None
    shadow: NodeAllocatable | None = None


@dataclass(slots=True)
class _Pair:
    taken: Taken | None = None
    real: NodeCommand | None = None
    shadow: NodeCommand | None = None

    @property
    def is_alone(self) -> bool:
        """Check whether the shadow's decision is still missing."""
        return self.real is not None and self.shadow is None


class Comparison:
    """Consumes decisions, samples and figures in any order; duplicates are harmless."""

    def __init__(self) -> None:
        self.nodes: dict[str, Tally] = {}
        self.offered: dict[str, Offered] = {}
        self.versions: Counter[tuple[str, str]] = Counter()
        """Samples by (real policy version, shadow policy version)."""
        self.shadows = 0
        self._left_alone = 0
        self._newest_ms = 0
        self._waiting: OrderedDict[Key, _Pair] = OrderedDict()
        self._done: OrderedDict[Key, None] = OrderedDict()

    def sample(self, taken: Taken) -> None:
        """Read the limits in force from a sample."""
        pair = self._pair(taken)
        if pair is not None and pair.taken is None:
            pair.taken = taken
            self._settle(pair)

    def real(self, command: NodeCommand) -> None:
        """Add a decision in force. The shadow decides no sample that fails the node proof."""
        if command.proof not in PROVEN:
            return
        pair = self._pair(command)
        self._newest_ms = max(self._newest_ms, command.decided_ms)
        if pair is not None and pair.real is None:
            pair.real = command
            self._settle(pair)

    def shadow(self, command: NodeCommand) -> None:
        """Add a decision of the shadow."""
        pair = self._pair(command)
        if pair is not None and pair.shadow is None:
            self.shadows += 1
            pair.shadow = command
            self._settle(pair)

    def offers(self, policy: Literal["real", "shadow"], offered: NodeAllocatable) -> None:
        """Add the allocatable of a node under one of the policies."""
        mine = self.offered.setdefault(offered.node, Offered())
        before: NodeAllocatable | None = getattr(mine, policy)
        if before is None or (offered.boot_id, offered.seq) >= (before.boot_id, before.seq):
            setattr(mine, policy, offered)

    @property
    def alone(self) -> int:
        """Return the number of real decisions without one of the shadow, except the newest."""
        old_ms = self._newest_ms - PATIENCE_MS
        waiting = (pair for pair in self._waiting.values() if pair.is_alone)
        return self._left_alone + sum(pair.real is not None and pair.real.decided_ms < old_ms for pair in waiting)

    def worst_first(self) -> list[tuple[str, Tally]]:
        """Return nodes by agreement, lowest first, then by name."""
        return sorted(
            self.nodes.items(), key=lambda one: (1.0 if one[1].agreement is None else one[1].agreement, one[0])
        )

    def all(self) -> Tally:
        """Return the counts of all nodes together."""
        tally = Tally()
        for one in self.nodes.values():
            tally.add(one)
        return tally

    def _pair(self, command: Taken | NodeCommand) -> _Pair | None:
        """Return the pair of a sample; None: it was already compared."""
        key = (command.node, command.boot_id, command.seq)
        if key in self._done:
            return None
        if key not in self._waiting:
            self._waiting[key] = _Pair()
            if len(self._waiting) > WAITING_MAX:
                _, oldest = self._waiting.popitem(last=False)
                self._left_alone += oldest.is_alone
        return self._waiting[key]

    def _settle(self, pair: _Pair) -> None:
        taken, real, shadow = pair.taken, pair.real, pair.shadow
        if taken is None or real is None or shadow is None:
            return
        key = (real.node, real.boot_id, real.seq)
        del self._waiting[key]
        self._done[key] = None
        if len(self._done) > WAITING_MAX:
            self._done.popitem(last=False)
        self.versions[real.policy_version, shadow.policy_version] += 1
        compare(self.nodes.setdefault(real.node, Tally()), taken.limits, real, shadow)


def compare(tally: Tally, in_force: Limits | None, real: NodeCommand, shadow: NodeCommand) -> None:
    """Count one pair of decisions for the same sample."""
    if "skipped" in {real.answer, shadow.answer}:
        tally.skipped += 1
        return
    tally.samples += 1
    differs = _limits(tally, in_force, real, shadow)
    pods_real, pods_shadow = ({f"{one.namespace}/{one.name}" for one in command.evict} for command in (real, shadow))
    tally.evicts_real.update(pods_real - pods_shadow)
    tally.evicts_shadow.update(pods_shadow - pods_real)
    knobs = _knobs(real) ^ _knobs(shadow)
    tally.settings.update({rule for rule, *_ in knobs})
    tally.same += not (differs or pods_real != pods_shadow or knobs)


def _limits(tally: Tally, in_force: Limits | None, real: NodeCommand, shadow: NodeCommand) -> bool:
    """Count and return whether the limit of any rule and target differs."""
    held = [{(hold.rule, hold.target): measured(hold.limits) for hold in command.hold} for command in (real, shadow)]
    differs = False
    for rule, target in held[0].keys() | held[1].keys():
        ours, theirs = (one.get((rule, target), measured(in_force)) for one in held)
        if ours == theirs:
            continue
        differs = True
        if ours is None or theirs is None:
            continue  # the limit in force is unknown, so the difference is, too
        limit = tally.limits.setdefault(rule, Limit())
        change_milli = rate_milli(theirs) - rate_milli(ours)  # NaN if both are unlimited
        limit.tighter += change_milli < 0
        limit.looser += change_milli > 0
        if isfinite(change_milli):
            limit.sum_milli += round(change_milli)
            limit.measured += 1
            limit.greatest_milli = max(limit.greatest_milli, round(change_milli), key=abs)
    return differs


def rate_milli(limits: Limits) -> float:
    """Return the millicores that quota and CPU set leave to best-effort pods; infinite if unlimited."""
    by_set = float("inf") if limits.be_cpuset is None else len(limits.be_cpuset) * 1_000.0
    return min(by_set, quota_rate(limits) * 1_000)


def _knobs(command: NodeCommand) -> set[tuple[str, str, Knob, KnobValue | None]]:
    return {(one.rule, one.group, one.knob, one.value) for one in command.settings}


def difference(values: Iterable[tuple[int | None, int | None]]) -> tuple[int, int]:
    """Return the sums of real and shadow figures; None counts as 0."""
    pairs = list(values)
    return sum(real or 0 for real, _ in pairs), sum(shadow or 0 for _, shadow in pairs)


def report(compared: Comparison, record: Record, since_ms: int = 0) -> None:
    """Pass one record to a comparison; ignore unreadable or other records, and decisions before ``since_ms``."""
    if record.value is None:
        return
    with suppress(BadMessageError):
        match record.topic:
            case SAMPLE.name | COMMAND.name | SHADOW_COMMAND.name if record.timestamp_ms < since_ms:
                pass
            case SAMPLE.name:
                of, seq, _ = identity_of(record.value)
                compared.sample(Taken(node=of.node, boot_id=of.boot_id, seq=seq, limits=of.limits))
            case COMMAND.name:
                compared.real(decode(record.value, NodeCommand))
            case SHADOW_COMMAND.name:
                compared.shadow(decode(record.value, NodeCommand))
            case ALLOCATABLE.name:
                compared.offers("real", decode(record.value, NodeAllocatable))
            case SHADOW_ALLOCATABLE.name:
                compared.offers("shadow", decode(record.value, NodeAllocatable))
