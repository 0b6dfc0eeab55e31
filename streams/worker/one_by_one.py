"""Answers samples one by one with commands, the same for a worker and a shadow. Pure.

A worker answers so what has new names, or what arrays leave to the scalar rules.

A shadow answers the same samples by another policy, open loop: it decides each sample from the limits in force, which
the real policy has set. So it shows its next decision on this node, not where the node would be under its own control.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.command import Answer, NodeCommand, Origin, command_id
from slacktide.schemas.errors import BadMessageError, failure
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.schemas.proof import PROVEN, Verdict
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import SHADOW_ALLOCATABLE
from slacktide.streams.columns.head import Head
from slacktide.streams.columns.node_figures import allocatable_of
from slacktide.streams.decisions.node_decision import answer_of, decide_node, evict_of, holds, setting_of
from slacktide.streams.decisions.prediction.mid_forecast import NO_FORECAST, HeldForecast
from slacktide.streams.proofs import Judge, Unproven, reason
from slacktide.streams.records import Out, Record, Writer, text_of
from slacktide.streams.worker.node_state import Held, NamedSample, Node
from slacktide.streams.worker.nodes import UNKNOWN_NODE
from slacktide.streams.worker.published import Covering, NodeFigures, stale
from slacktide.streams.worker.reading import (
    Answerable,
    Naming,
    SoundSample,
    UnlistedError,
    UnsoundError,
    identity_of,
    naming_of,
    sample_of,
)

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
        self.name, self.policy = name, policy
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

        Raises Exception if invalid figures make the arithmetic fail.
        """
        partition = seen.record.partition
        yield self._writer.shadow_answer(self.answer(seen, now_ms), partition)
        if seen.metric is not None and seen.offered_by is not None and seen.pods is not None:
            offered = self.offered(seen.metric, seen.offered_by, seen.pods, seen.inventory_revision, seen.held_forecast)
            yield self._writer.shadow_allocatable(offered, partition)

    def answer(self, seen: NamedSample, now_ms: int) -> NodeCommand:
        """Decide one sample as if its agent had this policy."""
        sample = msgspec.structs.replace(seen.sample, policy_version=self.policy.version)
        answerer = Answerer(worker=self.name, policy=self.policy, now_ms=now_ms)
        return answerer.decided(seen.record, sample, seen.facts, seen.pods)

    def offered(
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


UNKNOWN_LETTER_MS = 60_000
"""Per partition, samples of unknown nodes cause one dead letter in this time: the names may be unlimited."""


class Heads(Protocol):
    """The heads of samples that are answered in arrays."""

    def learn(self, each: NamedSample, policy: Policy) -> None:
        """Adopt the head of a sample that was answered alone."""

    def forget(self, node: str) -> None:
        """Forget a node's head."""


class State(Protocol):
    """The state of a worker that its parts share."""

    held: Held
    covering: Covering
    republish_ms: int
    shadow: Shadow | None

    @property
    def in_force(self) -> Policy:
        """The policy in force."""

    def begin(self, partition: int, name: str) -> Node | str:
        """Return a node's state, or the reason why there is none."""


class Single:
    """Answers single samples; ``keep`` takes them for the windows."""

    heads: Heads

    def __init__(
        self, worker: State, judge: Judge, writer: Writer, unproven: Unproven, keep: Callable[[NamedSample], object]
    ) -> None:
        self.unknown_samples = 0
        """Samples of nodes that do not exist by the policy's ``node_source``."""
        self._worker, self._judge, self._writer = worker, judge, writer
        self._unproven, self._keep = unproven, keep
        self._unknown_letter_ms: dict[int, int] = {}

    def node(self, record: Record) -> Node | None:
        """Return the state of a record's node; None: there is none."""
        return self._worker.held.of(record.partition).get(text_of(record.key or b""))

    def meet(self, record: Record, seq: int, observed_ms: int) -> NamedSample | None:
        """Take in what a sample names; None: nothing was taken in, and the sample is answered alone."""
        node = self.node(record)
        if node is None:
            return None
        try:
            each = self.named(record, naming_of(record, seq, observed_ms))
        except Exception:  # noqa: BLE001 - nothing has changed: the sample is answered alone, with the reason
            return None
        return None if isinstance(each, str) else each

    def decide(self, each: NamedSample, answerer: Answerer) -> list[Out]:
        """Answer a sample that ``meet`` took in."""
        return self._isolated(each.record, answerer, lambda: self._decide(each, answerer))

    def by_rule(
        self, record: Record, head: Head[Node], answerer: Answerer, verdict: Verdict, *, newer: bool
    ) -> list[Out]:
        """Answer a sample by the scalar rule; its figures are merged with those of others."""
        return self._isolated(record, answerer, lambda: self._by_rule(record, head, answerer, verdict, newer=newer))

    def alone(self, record: Record, answerer: Answerer) -> list[Out]:
        """Answer one sample, and keep it where a window accepts it."""
        return self._isolated(record, answerer, lambda: self._alone(record, answerer))

    def _isolated(self, record: Record, answerer: Answerer, work: Callable[[], list[Out]]) -> list[Out]:
        """Answer a sample; an error costs this one: it becomes a dead letter, and its node is answered ``skipped``."""
        try:
            return work()
        except Exception as exc:  # noqa: BLE001 - invalid figures must not stop the next record
            why = failure("decide", exc)
        if answerer.mute:
            return []
        try:
            return self._refused(record, identity_of(record), why, answerer)
        except Exception:  # noqa: BLE001 - it does not say whom to answer
            return [self._writer.dead(record, why, answerer.now_ms)]

    def _decide(self, each: NamedSample, answerer: Answerer) -> list[Out]:
        if answerer.mute:
            each.sample = self.read(each.record)
            self._keep(each)
            return []
        record, verdict = each.record, self.verdict(each.record)
        try:
            each.sample = self.read(record)
        except UnlistedError as exc:
            command = answerer.decided(record, exc.sample, each.facts, None)
            return [self._answer(record, command, verdict, newer=each.newer)]
        except BadMessageError as exc:
            return self._unread(record, exc, answerer, verdict)
        return self._decided(each, answerer, verdict)

    def _by_rule(
        self, record: Record, head: Head[Node], answerer: Answerer, verdict: Verdict, *, newer: bool
    ) -> list[Out]:
        try:
            sample = sample_of(record, head.uids_of)
        except BadMessageError as exc:
            return self._unread(record, exc, answerer, verdict)
        return [self._answer(record, answerer.decided(record, sample, head.facts, head.pods), verdict, newer=newer)]

    def _alone(self, record: Record, answerer: Answerer) -> list[Out]:
        if answerer.mute:  # bad samples and those of unknown nodes are skipped
            each = self.named(record, self.read(record))
            if not isinstance(each, str):
                self._keep(each)
                self.heads.learn(each, self._worker.in_force)
            return []
        verdict = self.verdict(record)
        if verdict not in PROVEN:
            return self._of_nobody(record, verdict, answerer)
        try:
            sample = self.read(record)
        except BadMessageError as exc:
            return self._unread(record, exc, answerer, verdict)
        each = self.named(record, sample)
        if isinstance(each, str):
            return self._uncounted(record, sample, each, answerer, verdict)
        outs = self._decided(each, answerer, verdict)
        self.heads.learn(each, self._worker.in_force)
        return outs

    def named(self, record: Record, sample: SoundSample | Naming, *, late: bool = False) -> NamedSample | str:
        """Return the sample with what it names, or why it does not count: unknown node, or two agents."""
        node = self._worker.begin(record.partition, sample.node)
        if isinstance(node, str):
            return node
        each = node.take(record, sample, late=late)
        if not node.boots.only(sample.boot_id):
            self.heads.forget(sample.node)
        return node.boots.reason if each.two_boots else each

    def read(self, record: Record) -> SoundSample:
        """Decode a sample by its node's pod lists. Raises as ``sample_of``."""
        node = None if record.key is None else self.node(record)
        return sample_of(record) if node is None else sample_of(record, node.uids_of)

    def verdict(self, record: Record) -> Verdict:
        """Check whether a sample proves its node."""
        return self._judge(record, self._worker.in_force)

    def _decided(self, each: NamedSample, answerer: Answerer, verdict: Verdict) -> list[Out]:
        record, sample = each.record, each.sample
        command = answerer.decided(record, sample, each.facts, each.pods)
        out = self._answer(record, command, verdict, newer=each.newer)
        self._keep(each)
        return [out]

    def _answer(self, record: Record, command: NodeCommand, verdict: Verdict, *, newer: bool = True) -> Out:
        proven = msgspec.structs.replace(command, proof=verdict) if verdict else command
        return self._writer.answer(proven, record.partition, repeated=not newer)

    def _unread(self, record: Record, error: BadMessageError, answerer: Answerer, verdict: Verdict) -> list[Out]:
        """Answer where possible; otherwise write a dead letter."""
        if isinstance(error, UnlistedError):
            # Request a keyframe from the node. The sample is not merged: its figures need the pod list.
            sample, each = error.sample, self.named(record, error.sample)
            if isinstance(each, str):
                return self._uncounted(record, sample, each, answerer, verdict)
            if self._worker.shadow is not None:
                self._worker.shadow.saw(each)
            return [self._answer(record, answerer.decided(record, sample, each.facts, None), verdict, newer=each.newer)]
        if isinstance(error, UnsoundError):
            return self._refused(record, error.sample, str(error), answerer)
        return [self._writer.dead(record, str(error), answerer.now_ms)]

    def _uncounted(
        self, record: Record, sample: SoundSample, why: str, answerer: Answerer, verdict: Verdict
    ) -> list[Out]:
        """Answer a sample of an unknown node, or of one with two agents; nothing else changes.

        Those of unknown nodes are counted, and some become dead letters.
        """
        outs = [self._answer(record, answerer.blank(record, sample, answer="skipped", reason=why), verdict)]
        if why.startswith(UNKNOWN_NODE):
            self.unknown_samples += 1
            last_ms = self._unknown_letter_ms.get(record.partition)
            if last_ms is None or not 0 <= record.timestamp_ms - last_ms < UNKNOWN_LETTER_MS:
                self._unknown_letter_ms[record.partition] = record.timestamp_ms
                outs.insert(0, self._writer.dead(record, why, record.timestamp_ms))
        return outs

    def _refused(self, record: Record, sample: Answerable, why: str, answerer: Answerer) -> list[Out]:
        command = answerer.blank(record, sample, answer="skipped", reason=why)
        return [self._writer.dead(record, why, answerer.now_ms), self._writer.answer(command, record.partition)]

    def _of_nobody(self, record: Record, verdict: Verdict, answerer: Answerer) -> list[Out]:
        """Answer a sample without proof as ``skipped``; nothing else changes."""
        letters = self._unproven.dead(record, verdict, answerer.now_ms)
        try:
            sample = identity_of(record)
        except BadMessageError:
            return letters
        command = answerer.blank(record, sample, answer="skipped", reason=reason(verdict))
        return [*letters, self._answer(record, command, verdict)]
