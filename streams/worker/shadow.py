"""What another policy would answer to the same samples. Pure, and open loop.

A shadow decides each sample from the limits really in force, which the real policy has set: it gives what it
would do next on this node as it is, not where the node would be if it had been in charge all along.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import SHADOW_ALLOCATABLE
from slacktide.streams.columns.node_figures import allocatable_of
from slacktide.streams.decisions.prediction.mid_forecast import NO_FORECAST, HeldForecast
from slacktide.streams.records import Out, Record, Writer
from slacktide.streams.worker.answering import Answerer
from slacktide.streams.worker.stale import NodeFigures, stale


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A sample, and what the real answer to it came from."""

    record: Record
    sample: NodeSample
    facts: NodeFacts | None
    pods: Sequence[Pod] | None
    sold_by: NodeFacts | None = None
    """The facts that sold figures go by."""
    inventory_revision: str = ""
    """Of the inventory that they come from; "": from a sample."""
    metric: NodeMetric | None = None
    """What was published with the answer, if that was due."""
    held_forecast: HeldForecast | None = None
    """The node's forecast."""


class Shadow:
    """Answers by another policy, into topics of its own, what a worker has answered.

    Args:
        name: of the worker.
        policy: replaced while it runs, where its file changes.

    """

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self._writer = Writer(f"stream/{name}")
        self._seen: list[Seen] = []
        self._unasked: list[Out] = []

    def saw(self, seen: Seen) -> None:
        """Keep what a sample was answered from, until ``take``: the real answer goes out first."""
        self._seen.append(seen)

    def removed(self, record: Record, node: str) -> None:
        """A node is gone: what would be sold on it goes, too."""
        self._unasked += self._writer.tombstones(record, node, [SHADOW_ALLOCATABLE.name])

    def silent(self, partition: int, last: NodeFigures, silent_ms: int) -> None:
        """A node has been silent for so long: under this policy, too, nothing new goes there.

        Args:
            partition: of the node.
            last: what the worker published of it last.
            silent_ms: above 0.

        """
        figures = stale(last, silent_ms, self.policy).allocatable
        named = msgspec.structs.replace(figures, policy_version=self.policy.version)
        self._unasked.append(self._writer.shadow_allocatable(named, partition))

    def take(self) -> list[Seen]:
        """Give what was seen since the last time."""
        seen, self._seen = self._seen, []
        return seen

    def unasked(self) -> list[Out]:
        """Give the records of nodes without a sample, once: that they are gone, or silent."""
        unasked, self._unasked = self._unasked, []
        return unasked

    def decisions(self, seen: Seen, now_ms: int) -> Iterator[Out]:
        """Answer one sample, and publish what would be sold where that was due.

        Raises:
            Exception: whatever odd figures do to the arithmetic.

        """
        partition = seen.record.partition
        yield self._writer.shadow_answer(self.answer(seen, now_ms), partition)
        if seen.metric is not None and seen.sold_by is not None and seen.pods is not None:
            sold = self.sold(seen.metric, seen.sold_by, seen.pods, seen.inventory_revision, seen.held_forecast)
            yield self._writer.shadow_allocatable(sold, partition)

    def answer(self, seen: Seen, now_ms: int) -> NodeCommand:
        """Decide one sample as if its agent had sent it under the shadow's policy."""
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
        """Give batch and mid resources out of the figures that the real policy's window holds."""
        named = msgspec.structs.replace(metric, policy_version=self.policy.version)
        forecast = NO_FORECAST
        if held_forecast is not None:
            forecast = held_forecast.on(pods, facts, self.policy, boot_id=metric.boot_id, at_ms=metric.observed_ms)
        return allocatable_of(named, facts, pods, self.policy, inventory_revision, forecast)
