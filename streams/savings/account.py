"""Accounts a span of records. Pure."""

from __future__ import annotations

from slacktide.schemas.codec import decode
from slacktide.schemas.credit import DESCHEDULER, QUEUE
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.knob import uid_of
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import LISTED_MS
from slacktide.schemas.sample_columns_codec import UnknownPodsError
from slacktide.schemas.topics import OUTCOME, SAMPLE
from slacktide.streams.records import Record, text_of
from slacktide.streams.samples import SampleReader
from slacktide.streams.savings.node import NodeAccount
from slacktide.streams.savings.offsets import Offsets, Within
from slacktide.streams.savings.report import Report, Span, report
from slacktide.streams.savings.tally import Tally

SOURCES = frozenset({SAMPLE.name, OUTCOME.name})
"""Topics that an account needs."""


class Account:
    """Accounts the records of a span. Records are added by time, those of a partition by offset."""

    def __init__(self, span: Span, within: Within | None = None) -> None:
        """Create an account.

        Args:
            span: by Kafka's clock. Earlier samples are read for pods and facts.
            within: only these records; None: all.
        """
        self._span = span
        self._keys = {node.encode() for node in (*span.nodes, DESCHEDULER)} if span.nodes else set()
        self._within = within
        self._samples = SampleReader()
        self._nodes: dict[str, NodeAccount] = {}
        self._offsets = Offsets()
        self._refused = 0

    def take(self, record: Record) -> None:
        """Add the next record. Records outside of the span change nothing."""
        if not self._wanted(record) or not self._offsets.note(record):
            return
        try:
            if record.topic == OUTCOME.name:
                self._outcome(record)
            else:
                self._sample(record)
        except BadMessageError:
            self._refused += 1  # a reader of the topic sends it to the dead letters

    def finish(self, unproven: int = 0) -> Report:
        """Return the report; ``unproven``: samples that were left out before."""
        return report(
            {node: account.tally for node, account in sorted(self._nodes.items())},
            self._span,
            self._offsets.ranges(),
            refused=self._refused,
            unproven=unproven,
        )

    def tallies(self) -> dict[str, Tally]:
        """Return the sums so far, by node."""
        return {node: account.tally for node, account in self._nodes.items()}

    def _wanted(self, record: Record) -> bool:
        early_ms = self._span.since_ms - (0 if record.topic == OUTCOME.name else LISTED_MS)
        return (
            record.topic in SOURCES
            and early_ms <= record.timestamp_ms < self._span.until_ms
            and (not self._keys or record.key in self._keys)
            and (self._within is None or self._within.holds(record))
        )

    def _sample(self, record: Record) -> None:
        try:
            sample = self._samples.read(record)
        except UnknownPodsError as exc:  # it counts as undecided
            sample = exc.sample
        if sample.node == text_of(record.key or b""):  # not in the name of another node
            self._node(sample.node).sample(sample, counted=record.timestamp_ms >= self._span.since_ms)

    def _outcome(self, record: Record) -> None:
        outcome = decode(record.value, NodeOutcome)
        if outcome.node != text_of(record.key or b""):
            return
        if outcome.node == QUEUE:
            return  # it names a workload, and no pod
        if outcome.node == DESCHEDULER:  # it names the pod, and no node
            if outcome.result == "applied":
                self._descheduled(uid_of(outcome.target))
        else:
            self._node(outcome.node).outcome(outcome)

    def _descheduled(self, uid: str) -> None:
        for node in self._nodes.values():
            if node.descheduled(uid):
                return

    def _node(self, name: str) -> NodeAccount:
        return self._nodes.setdefault(name, NodeAccount())
