"""Answers a fetch: samples with a known node are decided together, all others one by one.

A sample with its node's head is not decoded: only its numbers are. Arrays (``columns.screen``) repeat the rule, and the
scalar rule decides what they cannot. A node's samples keep their order: those behind a sample with another head wait
for the next turn.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.command import NodesKept
from slacktide.schemas.policy import Policy
from slacktide.schemas.proof import PROVEN, Verdict
from slacktide.schemas.sample import Limits
from slacktide.schemas.sample_columns import Of
from slacktide.schemas.sample_columns_codec import decode_of, head_of
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, METRIC, SAMPLE, SCORE
from slacktide.streams.columns.block import Block
from slacktide.streams.columns.head import Head, head_of_list, numbers_commas, numbers_of, renumber, split_limits
from slacktide.streams.columns.lines import FIRST, Boot, Line, MarksError, boot_of, line_of, tail_line, text
from slacktide.streams.columns.node_figures import Sampled, capacity_of
from slacktide.streams.columns.numbers import Columns, NoNumbersError, ages_ms, sound
from slacktide.streams.columns.publish import Figures
from slacktide.streams.columns.rings import Ints
from slacktide.streams.columns.screen import KEEP, SCALAR, UNFIT, VARYING, Screened, bound_of, fit, quota_of
from slacktide.streams.columns.turn import Turn, alone, texts, texts_at
from slacktide.streams.kept import Keep
from slacktide.streams.records import Out, Record
from slacktide.streams.rendering import RenderedAnswers, RenderedOut, varint
from slacktide.streams.taken import Records
from slacktide.streams.worker.node_state import NamedSample, Node
from slacktide.streams.worker.one_by_one import Answerer, Single
from slacktide.streams.worker.reading import Naming

_FIGURES: Final = ((METRIC.name, "metric"), (ALLOCATABLE.name, "allocatable"), (SCORE.name, "score"))
_LIMITS_CHARS_MAX: Final = 400
_decode_limits = msgspec.json.Decoder(Limits | None).decode


class _Fetch:
    """The records of a fetch, and what was found so far: of each sample a rendered answer, or records."""

    def __init__(self, records: Records, answerer: Answerer) -> None:
        self.records, self.answerer = records, answerer
        self.results: list[bytes | Keep | Sequence[Out]] = [()] * len(records)
        self.counts = {"keep": 0, "set": 0}
        """Of rendered answers, as ``ages_ms``."""
        self.ages_ms: list[int] = []
        self.repeated: set[int] = set()
        """Places of samples that are not newer than all before them of their node."""


class Fast:
    """Answers samples by the heads of their nodes; ``single`` answers single samples."""

    def __init__(self, worker: str, single: Single) -> None:
        self._worker, self._single = worker, single
        self._heads: dict[bytes, Head[Node]] = {}
        self._turns = 0
        self._named: dict[int, NamedSample] = {}
        """Samples that were taken in and are answered alone, by place."""

    def learn(self, each: NamedSample, policy: Policy) -> None:
        """Adopt the head of a sample that was answered alone, for later samples; without one these are, too."""
        record = each.record
        if record.value is None or not each.newer:
            return
        before = self._heads.pop(record.key, None)  # type: ignore[arg-type]
        with suppress(Exception):  # one node's: the sample is answered already
            self._learn(each, record.value, before, policy)

    def _learn(self, each: NamedSample, value: bytes, before: Head[Node] | None, policy: Policy) -> None:
        record, node = each.record, each.node
        if each.facts is None or each.pods is None or not node.boots.only(each.sample.boot_id):
            return
        prefix = value[: head_of(value)]
        of = each.sample.of if isinstance(each.sample, Naming) else decode_of(prefix)
        parts = split_limits(prefix, msgspec.json.encode(of.limits))
        listed = head_of_list(each.pods, of.be_group)
        if parts is None or listed is None:
            return
        uids, counted = listed
        same_policy = of.policy_version == policy.version
        known = before is not None and before.of.boot_id == of.boot_id
        boot = before.boot if before is not None and known else self._boot(of, policy)
        self._heads[of.node.encode()] = Head(
            node=node,
            window=node.window,
            partition=record.partition,
            of=of,
            prefix=prefix,
            before_limits=parts[0],
            behind_limits=parts[1],
            quota_us=quota_of(of.limits),
            facts=each.facts,
            pods=each.pods,
            uids=uids,
            best_effort=counted,
            numbers=numbers_of(
                fit(each.facts, policy, pods=len(uids)) if same_policy and not each.pods.exclusive else UNFIT,
                node.window,
                pods=len(uids),
                spread_ms=node.spread_ms,
                capacity=capacity_of(each.offered_by or each.facts),
            ),
            window_ms=node.window_ms(each.offered_by, policy),
            restarted=each.restarted,
            boot=boot,
            names=[text(one) for one in (policy.version, of.facts_revision, of.pods_revision)],
            offer=None if before is None else before.offer,
            commas=numbers_commas(len(uids)),
        )

    def forget(self, node: str) -> None:
        """Forget a node's head; its samples are then answered one by one."""
        self._heads.pop(node.encode(), None)

    def forecast_changed(self, node: str) -> None:
        """Compare the node's published figures again, because its forecast may differ."""
        if (head := self._heads.get(node.encode())) is not None:
            renumber(head)

    def forget_all(self) -> None:
        """Forget all heads, because the policy changed."""
        self._heads.clear()

    def answers(
        self, records: Sequence[Record], answerer: Answerer, answered: Callable[[Block[Node]], None]
    ) -> Sequence[Out]:
        """Answer each sample once, in order; ``answered`` takes each block that was answered together."""
        its = Records.of(records)
        fetch = _Fetch(its, answerer)
        self._named.clear()
        todo: Sequence[int] = range(len(its))
        while todo:
            self._turns += 1
            turn, todo = self._split(fetch, todo)
            if turn.places:
                self._answer(turn, fetch, answered)
        kept = NodesKept(
            policy_version=answerer.policy.version, decided_ms=answerer.now_ms, worker=self._worker, kept=[]
        )
        return RenderedAnswers(
            COMMAND.name, its.partitions, its.keys, fetch.results, kept, fetch.counts, fetch.ages_ms, fetch.repeated
        )

    def _split(self, fetch: _Fetch, todo: Sequence[int]) -> tuple[Turn[Node], list[int]]:
        """Split samples into those with a known head, those answered alone at once, and those that wait."""
        turn: Turn[Node] = Turn()
        later: list[int] = []
        number = self._turns
        records, results, answerer = fetch.records, fetch.results, fetch.answerer
        heads, checked = self._heads, answerer.policy.node_proof != "off"
        keys, values, partitions = records.keys, records.values, records.partitions
        add_place, add_head, add_text = turn.places.append, turn.heads.append, turn.texts.append
        add_quota, add_value, add_verdict = turn.quotas.append, turn.values.append, turn.verdicts.append
        add_looks = turn.looks.append
        verdict: Verdict = ""
        for at, place in enumerate(todo):
            value = values[place]
            if value is None:
                continue
            if checked and (verdict := self._single.verdict(records[place])) not in PROVEN:
                results[place] = self._single.alone(records[place], answerer)
                continue
            head = heads.get(keys[place])  # type: ignore[arg-type]
            if head is not None and head.later == number:
                later.append(place)
                continue
            if head is not None and (value.startswith(head.prefix) or _other_limits(head, value)):
                text, looks = texts_at(value, len(head.prefix))
                known = head if text else None
            else:
                text, looks = texts(value)
                known = self._met(turn, place, records[place], text, head, answerer.policy) if text else None
            if known is not None and known.partition == partitions[place]:
                if known.turn != number:
                    known.turn, known.first = number, len(turn.places)
                    turn.begun.setdefault(id(known.node), known.node.newest)
                add_place(place)
                add_head(known)
                add_quota(known.quota_us)
                add_text(text)
                add_looks(looks)
                add_value(value)
                add_verdict(verdict)
            elif head is None or head.turn != number:
                single, each = self._single, self._named.pop(place, None)
                results[place] = single.decide(each, answerer) if each else single.alone(records[place], answerer)
            elif place in self._named:
                return turn, [*later, *todo[at:]]
            else:
                head.later = number
                later.append(place)
        return turn, later

    def _met(
        self, turn: Turn[Node], place: int, record: Record, text: bytes, old: Head[Node] | None, policy: Policy
    ) -> Head[Node] | None:
        """Take in a sample that names something new; return the node's new head, if arrays can use it."""
        if place in self._named:
            return None
        numbers = alone(text)
        if numbers is None:
            return None
        node = self._single.node(record)
        if node is not None:
            turn.begun.setdefault(id(node), node.newest)
            if old is not None and old.turn == self._turns:
                node.newest = max(node.newest, turn.newest(old))
        each = self._single.meet(record, *numbers)
        if each is None:
            return None
        turn.begun.setdefault(id(each.node), ("", -1))
        self.learn(each, policy)
        head = self._heads.get(record.key) if each.newer else None  # type: ignore[arg-type]
        if head is None or head.commas != text.count(b","):
            self._named[place] = each
            return None
        turn.met.add(id(head))
        return head

    def _answer(self, turn: Turn[Node], fetch: _Fetch, answered: Callable[[Block[Node]], None]) -> None:
        read = self._read(turn, fetch)
        if read is None:
            return
        turn, its = read
        newer = _newer(turn, its, fetch.records.times_ms, self._turns)
        fetch.repeated.update(place for place, new in zip(turn.places, newer, strict=True) if not new)
        if not fetch.answerer.mute:
            self._write(turn, its, turn.screened(its), fetch)
        answered(turn.block(its, newer, fetch.records.offsets))

    def _read(self, turn: Turn[Node], fetch: _Fetch) -> tuple[Turn[Node], Columns] | None:
        """Decode the numbers; a sample with invalid figures is answered alone, without effect on its node."""
        try:
            its = turn.read()
        except NoNumbersError:
            turn = self._left(turn, turn.readable(), fetch)
            if not turn.places:
                return None
            its = turn.read()
        good = sound(its)
        if good.all():
            return turn, its
        turn = self._left(turn, good.tolist(), fetch)
        return self._read(turn, fetch) if turn.places else None

    def _left(self, turn: Turn[Node], keep: Sequence[bool], fetch: _Fetch) -> Turn[Node]:
        for place, kept in zip(turn.places, keep, strict=True):
            if not kept:
                fetch.results[place] = self._single.alone(fetch.records[place], fetch.answerer)
        return turn.kept(keep)

    def _write(self, turn: Turn[Node], its: Columns, found: Screened, fetch: _Fetch) -> None:
        records, results, answerer = fetch.records, fetch.results, fetch.answerer
        now_ms, quotas, cases = answerer.now_ms, found.quota_us.tolist(), found.cases()
        terms = found.terms[:, VARYING].tolist()
        seqs, observed = its.node[:, 0].tolist(), its.node[:, 1].tolist()
        command, offsets, by_rule = COMMAND.name, records.offsets, list[int]()
        kept, second, its_second = 0, -1, b""
        for at, (place, head, verdict, seq, observed_ms, case) in enumerate(
            zip(turn.places, turn.heads, turn.verdicts, seqs, observed, cases, strict=True)
        ):
            boot = head.boot
            if case == KEEP:
                kept += 1
                results[place] = Keep(boot.answered % seq, offsets[place], observed_ms, verdict)
                continue
            line = head.lines.get((case, verdict)) or self._line(head, case, verdict, found.terms[at])
            if line is None:
                newer = place not in fetch.repeated
                results[place] = self._single.by_rule(records[place], head, answerer, verdict, newer=newer)
                by_rule.append(at)
                continue
            shown = line.shown(terms[at])
            value = line.line % (seq, seq, observed_ms, seq, quotas[at], *shown, now_ms, offsets[place])
            if observed_ms // 1_000 != second:
                second = observed_ms // 1_000
                its_second = _second(second)
            tail = boot.tails[command] % (seq, its_second, observed_ms % 1_000, seq, seq & 0xFFFFFFFF)
            results[place] = b"".join((boot.key, varint(len(value)), value, tail))
        ages = ages_ms(its, now_ms, by_rule)
        fetch.counts["keep"] += kept
        fetch.counts["set"] += len(ages) - kept
        fetch.ages_ms += ages

    def _line(self, head: Head[Node], case: int, verdict: Verdict, terms: Ints) -> Line | None:
        """Return a template of a node's answers; None: the rule decides, or the worker's name looks like a mark.

        ``terms``: of one of its samples, see ``Screened``.
        """
        if bound_of(case) == SCALAR:
            return None
        try:
            line = line_of(
                case,
                head.boot,
                head.names,
                terms.tolist(),
                worker=self._worker,
                topic=SAMPLE.name,
                partition=head.partition,
                proof=verdict,
            )
        except MarksError:
            return None
        head.lines[case, verdict] = line
        return line

    def figures(self, head: Head[Node], named: Sampled, found: Figures) -> list[Out]:
        """Return the records of a node's figures."""
        second, ms = divmod(named.observed_ms, 1_000)
        numbers = named.seq, _second(second), ms, named.seq, named.seq & 0xFFFFFFFF
        key = head.of.node.encode()
        return [
            RenderedOut(
                topic=topic, partition=head.partition, key=key, value=value, tail=head.boot.tails[topic] % numbers
            )
            for (topic, _), value in zip(_FIGURES, (found.metric, found.allocatable, found.score), strict=True)
        ]

    def _boot(self, of: Of, policy: Policy) -> Boot:
        boot, source = boot_of(of.node, of.boot_id, policy.version), f"stream/{self._worker}"
        answer = f"{boot.answer_id.decode()}-{FIRST}"
        boot.tails[COMMAND.name] = tail_line(COMMAND.name, source, of.node, of.boot_id, answer)
        for topic, kind in _FIGURES:
            event_id = f"{kind}/{of.node}/{of.boot_id}/{FIRST}"
            boot.tails[topic] = tail_line(topic, source, of.node, of.boot_id, event_id)
        return boot


def _other_limits(head: Head[Node], value: bytes) -> bool:
    """Check whether only the limits of the head differ, and adopt them."""
    if not value.startswith(head.before_limits):
        return False
    begin = len(head.before_limits)
    end = value.find(head.behind_limits, begin, begin + _LIMITS_CHARS_MAX + len(head.behind_limits))
    if end < 0:
        return False
    try:
        limits = _decode_limits(value[begin:end])
    except MALFORMED:
        return False
    head.prefix = value[: end + len(head.behind_limits)]
    head.quota_us = quota_of(limits)
    return True


def _newer(turn: Turn[Node], its: Columns, times_ms: Sequence[int], number: int) -> list[bool]:
    """Note the progress of each node; return which samples are newer than all before.

    A node may have two heads in ``turn``, one after the other. ``times_ms``: append times of all records. ``number``:
    of the turn.
    """
    newer: list[bool] = []
    add = newer.append
    last: dict[int, Head[Node]] = {}
    heads: list[Head[Node]] = []
    for head, place, seq in zip(turn.heads, turn.places, its.node[:, 0].tolist(), strict=True):
        at_ms = times_ms[place]
        if head.counted != number:
            before = last.get(id(head.node))
            boot, reached = turn.begun[id(head.node)] if before is None else (before.of.boot_id, before.newest)
            head.newest, head.last_ms, head.counted = reached if boot == head.of.boot_id else -1, at_ms, number
            head.node.boots.saw(at_ms)
            last[id(head.node)] = head
            heads.append(head)
        elif at_ms > head.last_ms:
            head.last_ms = at_ms
        if seq > head.newest:
            head.newest = seq
            add(True)
        else:
            add(False)
    for head in heads:
        head.node.newest = max(head.node.newest, (head.of.boot_id, head.newest))
        head.node.boots.saw(head.last_ms)
    return newer


@lru_cache(maxsize=4_096)
def _second(epoch_s: int) -> bytes:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
