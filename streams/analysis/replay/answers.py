"""Compares recorded answers with those of the replay.

Recorded answers may be duplicates. They come from several workers, each of which read policies at its own time. If an
answer differs, the replay's worker decides the sample again with the policy and inputs of the recorded answer.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from slacktide.schemas.codec import MALFORMED, decode
from slacktide.schemas.command import NodeCommand, Origin
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.sample_columns import Of
from slacktide.schemas.sample_columns_codec import NOW, carried, decode_of, head_of
from slacktide.schemas.topics import COMMAND
from slacktide.streams.analysis.replay.figures import (
    ABSENT,
    Difference,
    Field,
    content,
    difference,
    fields,
    has_ids_by_sample,
    has_own_id,
    own_id,
)
from slacktide.streams.analysis.replay.policies import Policies, Unsettled
from slacktide.streams.proofs import believes
from slacktide.streams.records import Out, Record, text_of
from slacktide.streams.worker import FULL, NO_FACTS, NO_PODS, TWO_BOOTS, UNKNOWN_NODE, Worker
from slacktide.streams.worker.takeover import CARRIES

KEPT_MS = 30_000
"""The time that an answered sample is kept for duplicate answers."""
REVISIONS_KEPT = 8
"""Pod lists and facts kept per node."""
LATE_MS = 2_000
"""A slower answer is from a worker that was paused, or restarted under the same name."""
REFUSED = "the answer was refused: "
EVIDENCE_BEGINS = b',"decided_ms":'
NOTHING = b"", b"null"
ALL = ("facts", "pods")
LESS = (("facts",), ("pods",), ())
Key = tuple[str, str, int]
"""Node, boot, seq."""


class Named(msgspec.Struct, frozen=True, gc=False):
    """The fields of a command that identify its sample."""

    node: str
    boot_id: str
    seq: int
    worker: str = ""
    sample: Origin | None = None

    @property
    def key(self) -> Key:
        """Return the answered sample."""
        return self.node, self.boot_id, self.seq


@dataclass(slots=True)
class _Asked:
    """A sample, or several with the same identity."""

    key: Key
    place: int
    """The sample's index in the partition."""
    at_ms: int
    records: list[Record]
    answers: list[bytes]
    answered: int = 0


@dataclass(slots=True)
class _Partition:
    """Samples of one partition that may still be answered, oldest first."""

    waiting: deque[_Asked] = field(default_factory=deque)
    asked: int = 0
    answered_to: int = -1
    """Index of the last answered one."""
    worker: str = ""
    last_offset: int = -1


named = msgspec.json.Decoder(Named).decode
_body = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Answers:
    """Compares recorded answers with the replay's answers; reports differences."""

    def __init__(self, policies: Policies, unsettled: Unsettled, report: Callable[[Difference], None]) -> None:
        self.counts: Counter[str] = Counter()
        self.compared_from_ms: dict[str, int] = {}
        """The time of the first compared answer, by node."""
        self._policies, self._unsettled, self._report = policies, unsettled, report
        self._asked: dict[Key, _Asked] = {}
        self._early: dict[Key, list[Record]] = defaultdict(list)
        """Answers that precede their samples, due to clock differences."""
        self._dropped: dict[tuple[str, str], int] = {}
        """The newest dropped sample, by node and boot."""
        self._partitions: dict[int, _Partition] = defaultdict(_Partition)
        self._carriers: dict[tuple[str, str], OrderedDict[str, Record]] = defaultdict(OrderedDict)

    def sample(self, record: Record, answer: bytes | None) -> None:
        """Add a sample and the replay's answer; None: there is none."""
        partition = self._partitions[record.partition]
        # The topic was recreated: earlier samples will not be answered.
        if record.offset <= partition.last_offset:
            partition.answered_to = -1
            partition.waiting.clear()
        partition.last_offset = record.offset
        if answer is None:
            return
        key = named(answer).key
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = _Asked(key, partition.asked, record.timestamp_ms, [], [])
            partition.waiting.append(asked)
            partition.asked += 1
        asked.records.append(record)
        asked.answers.append(answer)
        for early in self._early.pop(key, ()):
            self._compare(early, asked)
        waiting, old_ms = partition.waiting, record.timestamp_ms - KEPT_MS
        while waiting and waiting[0].at_ms < old_ms and waiting[0].place <= partition.answered_to:
            self._leave(waiting.popleft(), partition)

    def remember(self, record: Record) -> None:
        """Keep a sample with pods or facts that later ones may refer to, if new."""
        value = record.value or b""
        rest = value[value.find(b"]", value.find(NOW)) :]
        if not any(mark in rest for mark in CARRIES):
            return
        try:
            of, (facts, pods) = decode_of(value[: head_of(value)]), carried(value)
        except BadMessageError:
            return
        node = text_of(record.key or b"")
        for what, revision, has in (
            ("facts", of.facts_revision, bytes(facts) not in NOTHING),
            ("pods", of.pods_revision, bytes(pods) not in NOTHING),
        ):
            known = self._carriers[node, what]
            if revision in known:
                known.move_to_end(revision)
            elif has:
                known[revision] = record
                if len(known) > REVISIONS_KEPT:
                    known.popitem(last=False)

    def command(self, record: Record) -> None:
        """Add a recorded answer."""
        if record.value is None:
            return
        try:
            which = named(record.value)
        except MALFORMED as exc:
            self._differs(difference(record, f"not an answer: {exc}"))
            return
        partition = self._partitions[record.partition]
        if which.worker != partition.worker:  # another one, which knows only the records that it read back
            if partition.worker:
                self.counts["takeovers"] += 1
                self._unsettled.partition(record.partition, record.timestamp_ms)
            partition.worker = which.worker
        asked = self._asked.get(which.key)
        if asked is not None:
            self._compare(record, asked)
        elif which.seq <= self._dropped.get((which.node, which.boot_id), -1):
            self._lost(record, "repeated after the sample was left behind")
        else:
            self._early[which.key].append(record)

    def finish(self) -> None:
        """End: remaining samples have no answer."""
        for records in self._early.values():
            for record in records:
                self._lost(record, "of samples before the span")
        for partition in self._partitions.values():
            for asked in partition.waiting:
                self._leave(asked, partition)

    def _leave(self, asked: _Asked, partition: _Partition) -> None:
        del self._asked[asked.key]
        node, boot_id, seq = asked.key
        self._dropped[node, boot_id] = max(self._dropped.get((node, boot_id), -1), seq)
        if asked.answered:
            self.counts["repeated"] += asked.answered - 1
        elif asked.place < partition.answered_to and not self._unsettled.made_anew(asked.records[0]):
            self.counts["samples unanswered"] += 1
            self._report(
                difference(asked.records[0], "unanswered, although a later sample of its partition was answered")
            )
        else:
            self.counts["samples not answered yet"] += 1

    def _lost(self, record: Record, why: str) -> None:
        """Check the id of a recorded answer without its sample."""
        command = self._decoded(record)
        if command is None:
            return
        if not has_own_id(command):
            field = Field(path="id", recorded=command.id, replayed=own_id(command))
            self._differs(difference(record, "its id is not its own", [field]))
        elif why.startswith("of samples") and not self._unsettled.may_lack(command, record):
            self._differs(difference(record, "answers a sample that is not in the trace"))
        else:
            self.counts[f"not compared: {why}"] += 1

    def _compare(self, record: Record, asked: _Asked) -> None:
        assert record.value is not None
        asked.answered += 1
        if record.timestamp_ms - asked.at_ms > LATE_MS:
            self._unsettled.partition(record.partition, record.timestamp_ms)
        partition = self._partitions[record.partition]
        partition.answered_to = max(partition.answered_to, asked.place)
        before_evidence = record.value.partition(EVIDENCE_BEGINS)[0]
        if any(before_evidence == answer.partition(EVIDENCE_BEGINS)[0] for answer in asked.answers):
            self._equal(asked, record, "equal")
            return
        command = self._decoded(record)
        if command is not None:
            self._judge(record, command, asked)

    def _judge(self, record: Record, command: NodeCommand, asked: _Asked) -> None:
        """Check whether a recorded answer with different bytes is valid."""
        ids = not has_ids_by_sample(command)
        wanted = content(command, ids=ids)
        replayed = answer = decode(asked.answers[-1], NodeCommand)
        for how, other in self._others(record, command, asked):
            replayed = decode(other, NodeCommand)
            if content(replayed, ids=ids) == wanted:
                self._equal(asked, record, how)
                return
        own = has_own_id(command)
        unknown = answer.reason in {NO_PODS, NO_FACTS}
        if unknown and own and self._unsettled.cold(asked.records[0]):
            self.counts["not compared: pods or facts were published before the span"] += 1
        elif own and self._knew_other(command, answer, record):
            self.counts["not compared: the worker knew other nodes or boots"] += 1
        elif self._policies.record(command.policy_version) is None and own:
            self.counts["not compared: by a policy that the trace does not have"] += 1
        else:
            found = fields(wanted, content(replayed, ids=ids)) or [Field(path="", recorded=ABSENT, replayed=ABSENT)]
            self._differs(difference(record, "another answer than the replay's", found))

    def _knew_other(self, command: NodeCommand, replayed: NodeCommand, record: Record) -> bool:
        """Return whether only one side skipped the sample for its node or boot, and may have."""
        reasons = command.reason, replayed.reason
        if any(reason.startswith(TWO_BOOTS) for reason in reasons):
            return self._unsettled.taken_over(record.partition, record.timestamp_ms)
        if FULL in reasons:
            return True
        on_its_way = self._unsettled.inventory_on_its_way(command.node, record.timestamp_ms)
        return on_its_way and any(reason.startswith(UNKNOWN_NODE) for reason in reasons)

    def _others(self, record: Record, command: NodeCommand, asked: _Asked) -> Iterator[tuple[str, bytes | None]]:
        """Yield other valid answers under the recorded answer's policy."""
        for one in asked.answers:
            yield "equal", one
        if not self._policies.held(command.policy_version, record.timestamp_ms):
            return
        for sample in asked.records:
            if self._unsettled.knows_less(sample, record.timestamp_ms):
                for known in LESS:
                    yield "equal, by a worker that knew no more", self._answered(sample, command, known).value
            answer = self._answered(sample, command, ALL)
            if command.reason.startswith(REFUSED):  # the record that the worker sends if Kafka rejects its answer
                instead = Worker("replay").refused(answer, command.reason.removeprefix(REFUSED), 0)[-1]
                yield "equal, rejected by Kafka", instead.value
            # The last one is the closest, for the report.
            yield "equal, by the policy that its worker held", answer.value

    def _answered(self, sample: Record, command: NodeCommand, known: Sequence[str]) -> Out:
        """Return the answer of a worker with the command's policy and all or some of its inputs."""
        policy = self._policies.record(command.policy_version)
        assert policy is not None, "it is held"
        worker = Worker("replay", believes)
        worker.policy(policy)
        of: Of | NodeCommand = command
        if command.answer == "keep":  # it leaves out what its sample names
            value = sample.value or b""
            of = decode_of(value[: head_of(value)])
        revisions = {"facts": of.facts_revision, "pods": of.pods_revision}
        carriers = (self._carriers[command.node, what].get(revisions[what]) for what in known)
        worker.lists.adopt(
            _only(what, one, sample.partition) for what, one in zip(known, carriers, strict=True) if one is not None
        )
        return next(out for out in worker.samples([sample], sample.timestamp_ms) if out.topic == COMMAND.name)

    def _equal(self, asked: _Asked, record: Record, how: str) -> None:
        self.counts[how] += 1
        self.compared_from_ms.setdefault(asked.key[0], record.timestamp_ms)

    def _differs(self, found: Difference) -> None:
        self.counts["different"] += 1
        self._report(found)

    def _decoded(self, record: Record) -> NodeCommand | None:
        try:
            return decode(record.value, NodeCommand)
        except BadMessageError as exc:
            self._differs(difference(record, str(exc)))
            return None


def _only(what: str, carrier: Record, partition: int) -> Record:
    """Return the sample with only this part, in the given partition."""
    body = _body.decode(carrier.value or b"")
    body.pop("pods" if what == "facts" else "facts", None)
    return msgspec.structs.replace(carrier, partition=partition, value=msgspec.json.encode(body))
