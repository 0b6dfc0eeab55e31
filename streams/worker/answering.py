"""Answers one sample with a command, the same for a worker and a shadow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slacktide.schemas.command import Answer, NodeCommand, Origin, command_id
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.node_decision import answer_of, decide_node, evict_of, holds, setting_of
from slacktide.streams.records import Record
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
