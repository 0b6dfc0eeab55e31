"""Answers one sample with a command, the same for a worker and a shadow. Pure.

A shadow answers the same samples by another policy, open loop: it decides each sample from the limits in force, which
the real policy has set. So it shows its next decision on this node, not where the node would be under its own control.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.command import Answer, NodeCommand, Origin, command_id
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import SHADOW_ALLOCATABLE
from slacktide.streams.columns.node_figures import allocatable_of
from slacktide.streams.decisions.node_decision import answer_of, decide_node, evict_of, holds, setting_of
from slacktide.streams.decisions.prediction.mid_forecast import NO_FORECAST, HeldForecast
from slacktide.streams.records import Out, Record, Writer
from slacktide.streams.worker.node_state import NamedSample
from slacktide.streams.worker.published import NodeFigures, stale
from slacktide.streams.worker.reading import Answerable

NO_PODS = "no pods"
NO_FACTS = "no facts"
OTHER_POLICY = "other policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answerer:
    """Who answers, when, and by which policy."""

    worker: str
    policy: Policy
    now_ms: int
    mute: bool = False
    """Merge samples without an answer: others have answered them."""

    def decided(
        self, record: Record, sample: NodeSample, facts: NodeFacts | None, pods: Sequence[Pod] | None
    ) -> NodeCommand:
        """Decide a sample by its pods and facts; None: unknown."""
        if pods is None:
            return self.blank(record, sample, answer="skipped", reason=NO_PODS)
        if facts is None:
            return self.blank(record, sample, answer="skipped", reason=NO_FACTS)
        if sample.policy_version != self.policy.version:
            return self.blank(record, sample, answer="skipped", reason=OTHER_POLICY)
        decision = decide_node(sample, facts, pods, self.policy)
        answer = answer_of(decision)
        if answer != "set":
            return self.blank(record, sample, answer=answer, reason=decision.limits.reason)
        version = self.policy.version
        return self._command(
            record,
            sample,
            answer="set",
            hold=holds(decision.limits, sample, version),
            evict=[evict_of(one, sample, version) for one in decision.evict],
            settings=[setting_of(one, sample, version) for one in decision.settings],
        )

    def blank(self, record: Record, sample: Answerable, *, answer: Answer, reason: str) -> NodeCommand:
        """Return a command without holds or evictions."""
        return self._command(record, sample, answer=answer, reason=reason)

    def _command(self, record: Record, sample: Answerable, **fields: Any) -> NodeCommand:
        version = self.policy.version
        return NodeCommand(
            id=command_id(sample.node, sample.boot_id, sample.seq, "answer", sample.node, version),
            node=sample.node,
            boot_id=sample.boot_id,
            seq=sample.seq,
            observed_ms=sample.observed_ms,
            policy_version=version,
            facts_revision=sample.facts_revision,
            pods_revision=sample.pods_revision,
            decided_ms=self.now_ms,
            worker=self.worker,
            sample=Origin(topic=record.topic, partition=record.partition, offset=record.offset),
            **fields,
        )


class Shadow:
    """Answers a worker's samples by another policy, in separate topics. Its file may replace ``policy`` at run time."""

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self._writer = Writer(f"stream/{name}")
        self._seen: list[NamedSample] = []
        self._unasked: list[Out] = []

    def saw(self, seen: NamedSample) -> None:
        """Keep a sample until ``take``: the real answer is sent first."""
        self._seen.append(seen)

    def removed(self, record: Record, node: str) -> None:
        """Withdraw the shadow's allocatable of a removed node."""
        self._unasked += self._writer.tombstones(record, node, [SHADOW_ALLOCATABLE.name])

    def silent(self, partition: int, last: NodeFigures, silent_ms: int) -> None:
        """Mark a silent node's allocatable, published last as ``last``, as stale under this policy, too."""
        figures = stale(last, silent_ms, self.policy).allocatable
        named = msgspec.structs.replace(figures, policy_version=self.policy.version)
        self._unasked.append(self._writer.shadow_allocatable(named, partition))

    def take(self) -> list[NamedSample]:
        """Return what was seen since the last call."""
        seen, self._seen = self._seen, []
        return seen

    def unasked(self) -> list[Out]:
        """Return the records of removed or silent nodes, once."""
        unasked, self._unasked = self._unasked, []
        return unasked

    def decisions(self, seen: NamedSample, now_ms: int) -> Iterator[Out]:
        """Answer one sample, and compute its allocatable if that was due.

        Raises:
            Exception: invalid figures make the arithmetic fail.
        """
        partition = seen.record.partition
        yield self._writer.shadow_answer(self.answer(seen, now_ms), partition)
        if seen.metric is not None and seen.sold_by is not None and seen.pods is not None:
            sold = self.sold(seen.metric, seen.sold_by, seen.pods, seen.inventory_revision, seen.held_forecast)
            yield self._writer.shadow_allocatable(sold, partition)

    def answer(self, seen: NamedSample, now_ms: int) -> NodeCommand:
        """Decide one sample as if its agent had this policy."""
        sample = msgspec.structs.replace(seen.sample, policy_version=self.policy.version)
        answerer = Answerer(worker=self.name, policy=self.policy, now_ms=now_ms)
        return answerer.decided(seen.record, sample, seen.facts, seen.pods)

    def sold(
        self,
        metric: NodeMetric,
        facts: NodeFacts,
        pods: Sequence[Pod],
        inventory_revision: str = "",
        held_forecast: HeldForecast | None = None,
    ) -> NodeAllocatable:
        """Compute the allocatable from the figures of the real policy's window."""
        named = msgspec.structs.replace(metric, policy_version=self.policy.version)
        forecast = NO_FORECAST
        if held_forecast is not None:
            forecast = held_forecast.on(pods, facts, self.policy, boot_id=metric.boot_id, at_ms=metric.observed_ms)
        return allocatable_of(named, facts, pods, self.policy, inventory_revision, forecast)
