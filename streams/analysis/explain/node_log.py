"""Selects the records of one node, by kind."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import msgspec

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.forecast import NodeForecast
from slacktide.schemas.heartbeat import is_heartbeat
from slacktide.schemas.inventory import NodeFacts, NodeInventory, Pod, with_slope_of
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import InForce, Policy, refusal
from slacktide.schemas.proof import PROVEN
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, FORECAST, INVENTORY, METRIC, OUTCOME, POLICY, SAMPLE, SCORE
from slacktide.streams.analysis.explain.evidence import Logged, logged, newest, place_of
from slacktide.streams.decisions.coverage import Coverage
from slacktide.streams.records import FIGURES, Record
from slacktide.streams.samples import SampleReader
from slacktide.streams.worker.nodes import Boots

Covered = Mapping[tuple[str, str], int]
"""The append time of the last covering heartbeat by topic and node, UTC epoch milliseconds."""


def covered_of(records: Iterable[Record]) -> Covered:
    """Process the heartbeats among records of any topics, each partition in order."""
    coverage, found = Coverage(), dict[tuple[str, str], int]()
    for record in records:
        if record.topic in FIGURES and is_heartbeat(record.key):
            with suppress(BadMessageError):
                nodes = coverage.receive(record, record.timestamp_ms / 1_000)
                found |= {(record.topic, node): record.timestamp_ms for node in nodes}
    return found


M = TypeVar("M", NodeSample, NodeMetric, NodeAllocatable, NodeScore, NodeCommand, NodeForecast)
InOrder = NodeSample | NodeMetric | NodeAllocatable | NodeScore | NodeCommand | NodeForecast


@dataclass(frozen=True, kw_only=True)  # without slots: they rule out cached properties
class NodeLog:
    """One node's records; None or empty: not among the records read."""

    node: str
    policy: Logged[Policy] | None
    policy_refused: str
    """Why the newest policy record, or the operator's newest file, is not in force; "": it is."""
    inventory: Logged[NodeInventory] | None
    samples: Sequence[Logged[NodeSample]]
    metric: Logged[NodeMetric] | None
    allocatable: Logged[NodeAllocatable] | None
    score: Logged[NodeScore] | None
    commands: Sequence[Logged[NodeCommand]]
    refused: Sequence[Logged[NodeCommand]]
    """Answers to samples that failed the node proof. These and their samples are excluded from the others."""
    outcomes: Sequence[Logged[NodeOutcome]]
    forecast: Logged[NodeForecast] | None = None
    """The predicted peak use of its production pods."""
    covered: Covered = field(default_factory=dict)
    """The times at which heartbeats covered its figures."""

    def uncovered_ms(self, of: Logged[NodeMetric] | Logged[NodeAllocatable] | Logged[NodeScore], now_ms: int) -> int:
        """Return the time since the record was published or covered by a heartbeat."""
        return uncovered_ms(of, self.covered.get((of.place.topic, self.node), 0), now_ms)

    @property
    def known(self) -> bool:
        """Return whether there are any records."""
        latest = (self.inventory, self.metric, self.allocatable, self.score)
        return any(latest) or any((self.samples, self.commands, self.outcomes))

    @cached_property
    def sample(self) -> Logged[NodeSample] | None:
        """Return the newest sample."""
        return newest(self.samples, order)

    @cached_property
    def command(self) -> Logged[NodeCommand] | None:
        """Return the answer to the newest answered sample."""
        return newest(self.commands, order)

    @cached_property
    def facts(self) -> NodeFacts | None:
        """Return the node's facts: from the inventory, else the newest keyframe."""
        keyframe = newest((one for one in self.samples if one.body.facts is not None), order)
        own = None if keyframe is None else keyframe.body.facts
        return own if self.inventory is None else with_slope_of(self.inventory.body.facts, own)

    @cached_property
    def keyframe(self) -> Logged[NodeSample] | None:
        """Return the newest sample with a pod list."""
        return newest((one for one in self.samples if one.body.pods is not None), order)

    @cached_property
    def pods(self) -> Sequence[Pod]:
        """Return the pods of the newest keyframe."""
        keyframe = self.keyframe
        return () if keyframe is None else keyframe.body.pods or ()


def uncovered_ms(
    of: Logged[NodeMetric] | Logged[NodeAllocatable] | Logged[NodeScore], covered_ms: int, now_ms: int
) -> int:
    """Return the time since a record was published, or covered by the last heartbeat, at ``covered_ms``."""
    return min(of.age_ms(now_ms), max(0, now_ms - covered_ms))


def order(body: InOrder) -> tuple[str, int]:
    """Return the sort key: the node's boot and the sequence number."""
    return body.boot_id, body.seq


def node_log(node: str, records: Iterable[Record], covered: Covered | None = None) -> NodeLog:
    """Select and decode the records of a node among those of any topics and nodes, each partition in order.

    ``covered``: by heartbeats; None: these are among the records.
    """
    records = list(records)
    inventories = logged(records, INVENTORY, NodeInventory, node)
    commands = logged(records, COMMAND, NodeCommand, node)
    refused = [one for one in commands if one.body.proof not in PROVEN]
    unproven = {(its.topic, its.partition, its.offset) for one in refused if (its := one.body.sample) is not None}
    samples = [
        one
        for one in logged(records, SAMPLE, NodeSample, node, SampleReader().read)
        if (one.place.topic, one.place.partition, one.place.offset) not in unproven
    ]
    samples.sort(key=lambda one: one.place.logged_ms)
    policy, policy_refused = policy_of(records)
    boots = Boots()
    for one in samples:
        boots.see(one.body.boot_id, one.place.logged_ms, one.body.observed_ms)
    return NodeLog(
        node=node,
        policy=policy,
        policy_refused=policy_refused,
        inventory=inventories[-1] if inventories else None,
        samples=_believed(samples, boots),
        metric=newest(_believed(logged(records, METRIC, NodeMetric, node), boots), order),
        allocatable=newest(_believed(logged(records, ALLOCATABLE, NodeAllocatable, node), boots), order),
        score=newest(_believed(logged(records, SCORE, NodeScore, node), boots), order),
        commands=_believed(_of_samples([one for one in commands if one.body.proof in PROVEN], samples), boots),
        refused=refused,
        outcomes=logged(records, OUTCOME, NodeOutcome, node),
        forecast=newest(_believed(logged(records, FORECAST, NodeForecast, node), boots), order),
        covered=covered_of(records) if covered is None else covered,
    )


def _of_samples(
    commands: Sequence[Logged[NodeCommand]], samples: Sequence[Logged[NodeSample]]
) -> list[Logged[NodeCommand]]:
    """Add to commands that keep what only their samples name."""
    by_order = {order(one.body): one.body for one in samples}

    def whole(command: NodeCommand) -> NodeCommand:
        sample = by_order.get(order(command)) if command.answer == "keep" else None
        if sample is None:
            return command
        return msgspec.structs.replace(
            command,
            observed_ms=sample.observed_ms,
            facts_revision=sample.facts_revision,
            pods_revision=sample.pods_revision,
        )

    return [Logged(body=whole(one.body), place=one.place) for one in commands]


def _believed(found: Sequence[Logged[M]], boots: Boots) -> Sequence[Logged[M]]:
    """Drop records of boots above the one that workers accept: they are forged, or their agent has stopped."""
    kept = [one for one in found if one.body.boot_id <= boots.believed]
    return kept or found


def policy_of(records: Iterable[Record]) -> tuple[Logged[Policy] | None, str]:
    """Return the policy in force, and why the newest record, or the operator's newest file, is not; "": it is."""
    policies, found = InForce(), None
    for record in records:
        if record.topic != POLICY.name:
            continue
        with suppress(BadMessageError):  # a dead letter reports it
            if policies.take(record.key, record.value, str(place_of(record))):
                found = Logged(body=policies.policy, place=place_of(record))
    return found, policy_refused(policies)


def policy_refused(policies: InForce) -> str:
    """Return why the newest record, or the operator's newest file, is not in force; "": it is."""
    kept = policies.policy
    return policies.refused or ("" if kept.refused is None else refusal(kept.refused, kept.version))
