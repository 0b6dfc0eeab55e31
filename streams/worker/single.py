"""Answers samples one by one: with new names, or left to the scalar rules by the arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from slacktide.schemas.command import NodeCommand
from slacktide.schemas.errors import BadMessageError, failure
from slacktide.schemas.policy import Policy
from slacktide.schemas.proof import PROVEN, Verdict
from slacktide.streams.columns.head import Head
from slacktide.streams.proofs import Judge, Unproven, reason
from slacktide.streams.records import Out, Record, Writer, text_of
from slacktide.streams.worker.answering import Answerer, Shadow
from slacktide.streams.worker.node_state import Held, NamedSample, Node
from slacktide.streams.worker.nodes import UNKNOWN_NODE
from slacktide.streams.worker.published import Covering
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
        if answerer.mute:
            self._take_in(record)
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
        """Decode a sample by its node's pod lists.

        Raises:
            UnlistedError: its pod list is unknown, so its figures are undefined.
            UnsoundError: a field is invalid.
            BadMessageError: it is not a sample.
        """
        node = None if record.key is None else self._worker.held.of(record.partition).get(text_of(record.key))
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
            return self._unlisted(record, error.sample, answerer, verdict)
        if isinstance(error, UnsoundError):
            return self._refused(record, error.sample, str(error), answerer)
        return [self._writer.dead(record, str(error), answerer.now_ms)]

    def _unlisted(self, record: Record, sample: SoundSample, answerer: Answerer, verdict: Verdict) -> list[Out]:
        """Request a keyframe from the node. The sample is not merged: its figures need the pod list."""
        each = self.named(record, sample)
        if isinstance(each, str):
            return self._uncounted(record, sample, each, answerer, verdict)
        if self._worker.shadow is not None:
            self._worker.shadow.saw(each)
        return [self._answer(record, answerer.decided(record, sample, each.facts, None), verdict, newer=each.newer)]

    def _uncounted(
        self, record: Record, sample: SoundSample, why: str, answerer: Answerer, verdict: Verdict
    ) -> list[Out]:
        """Answer a sample of an unknown node, or of one with two agents; nothing else changes."""
        command = answerer.blank(record, sample, answer="skipped", reason=why)
        letters = self._unknown(record, why) if why.startswith(UNKNOWN_NODE) else []
        return [*letters, self._answer(record, command, verdict)]

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

    def _unknown(self, record: Record, why: str) -> list[Out]:
        """Count a sample of an unknown node; some become dead letters."""
        self.unknown_samples += 1
        last_ms = self._unknown_letter_ms.get(record.partition)
        if last_ms is not None and 0 <= record.timestamp_ms - last_ms < UNKNOWN_LETTER_MS:
            return []
        self._unknown_letter_ms[record.partition] = record.timestamp_ms
        return [self._writer.dead(record, why, record.timestamp_ms)]

    def _take_in(self, record: Record) -> None:
        """Keep a sample that is not answered here; skip bad ones and those of unknown nodes."""
        each = self.named(record, self.read(record))
        if not isinstance(each, str):
            self._keep(each)
            self.heads.learn(each, self._worker.in_force)
