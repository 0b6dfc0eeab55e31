"""Puts the answers ``keep`` of a turn together, one record for each partition, and takes them apart again. Pure.

Whoever reads the topic receives one command for each node (``answers_in``), as if each had its own record.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import (
    KEEP,
    KEEP_KEY,
    KEPT_MAX,
    Answered,
    NodeCommand,
    NodesKept,
    Origin,
    kept_command,
)
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.headers import headers
from slacktide.schemas.proof import Verdict
from slacktide.schemas.topics import COMMAND, SAMPLE, SHADOW_COMMAND
from slacktide.streams.records import Out, Record

ANSWERS = frozenset({COMMAND.name, SHADOW_COMMAND.name})
_KEY = KEEP_KEY.encode()
_answered = msgspec.json.Decoder(Answered).decode


class Keep(NamedTuple):
    """An answer ``keep`` to one sample."""

    answered: bytes
    """Node, boot_id and seq, as JSON."""
    offset: int
    """Of the sample."""
    observed_ms: int
    proof: Verdict

    def out(self, topic: str, partition: int, key: bytes | None, turn: NodesKept, *, repeated: bool) -> Out:
        """Return the command; ``turn``: what the answers of its turn have in common."""
        command = kept_command(msgspec.structs.replace(turn, proof=self.proof), _answered(self.answered))
        sample = Origin(topic=SAMPLE.name, partition=partition, offset=self.offset)
        return Out(
            topic=topic,
            partition=partition,
            key=key,
            value=encode(msgspec.structs.replace(command, sample=sample)),
            answer="keep",
            age_ms=max(0, turn.decided_ms - self.observed_ms),
            repeated=repeated,
        )


@dataclass(slots=True, eq=False)
class _Group:
    turn: NodesKept
    answered: list[bytes] = field(default_factory=list)
    nodes: set[bytes | None] = field(default_factory=set)
    offset: int = -1


class Folding:
    """Gathers answers ``keep`` until a record is full, or a node in it is answered otherwise: its order stays."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._groups: dict[int | None, dict[tuple[str, str], _Group]] = {}

    def add(self, partition: int, key: bytes | None, turn: NodesKept, one: Keep) -> list[Out]:
        """Add an answer; return the records that precede it, and the one that is full."""
        groups = self._groups.setdefault(partition, {})
        which = one.proof, turn.reason
        group = groups.get(which)
        if group is None or len(groups) > 1:
            others = [name for name, other in groups.items() if name != which and key in other.nodes]
            before = [self._record(partition, groups.pop(name)) for name in others]
        else:
            before = []
        if group is None:
            group = groups[which] = _Group(msgspec.structs.replace(turn, proof=one.proof) if one.proof else turn)
        group.answered.append(one.answered)
        group.nodes.add(key)
        group.offset = one.offset
        if len(group.answered) == KEPT_MAX:
            before.append(self._record(partition, groups.pop(which)))
        return before

    def take(self, out: Out) -> list[Out]:
        """Add an answer of any kind; return the records that are complete."""
        if out.answer != "keep" or out.partition is None:
            return [*self.before(out.partition, out.key), out]
        its = decode(out.value, NodeCommand)
        turn = NodesKept(
            policy_version=its.policy_version, reason=its.reason, decided_ms=its.decided_ms, worker=its.worker, kept=[]
        )
        answered = msgspec.json.encode((its.node, its.boot_id, its.seq))
        offset = 0 if its.sample is None else its.sample.offset
        return self.add(out.partition, out.key, turn, Keep(answered, offset, its.observed_ms, its.proof))

    def before(self, partition: int | None, key: bytes | None) -> list[Out]:
        """Return the records that precede another answer to this node."""
        groups = self._groups.get(partition)
        if not groups or not any(key in group.nodes for group in groups.values()):
            return []
        return self._closed(partition)

    def rest(self) -> list[Out]:
        """Return the records of all answers that are left."""
        return [out for partition in list(self._groups) for out in self._closed(partition)]

    def _closed(self, partition: int | None) -> list[Out]:
        return [self._record(partition, group) for group in self._groups.pop(partition).values()]

    def _record(self, partition: int | None, group: _Group) -> Out:
        turn = group.turn
        kept = msgspec.structs.replace(
            turn,
            sample=Origin(topic=SAMPLE.name, partition=partition or 0, offset=group.offset),
            kept=[msgspec.Raw(one) for one in group.answered],
        )
        lines = headers(
            kind=KEEP,
            source=f"stream/{turn.worker}",
            subject=KEEP_KEY,
            event_id=f"keep/{partition}/{group.offset}",
            event_ms=turn.decided_ms,
        )
        return Out(topic=self._topic, partition=partition, key=_KEY, value=encode(kept), headers=lines)


def folded(outs: Iterable[Out]) -> list[Out]:
    """Put the answers ``keep`` among these records together."""
    foldings: dict[str, Folding] = {}
    written: list[Out] = []
    for out in outs:
        if out.topic in ANSWERS and out.answer:
            written += foldings.setdefault(out.topic, Folding(out.topic)).take(out)
        else:
            written.append(out)
    return written + [out for folding in foldings.values() for out in folding.rest()]


def answers_in(record: Record, key: bytes | None = None) -> list[Record]:
    """Return one record for each answer in this one, or for the node with this ``key`` alone; others as they are.

    One that cannot be read stays as it is, for its reader to refuse.
    """
    value = record.value
    if record.key != _KEY or record.topic not in ANSWERS or value is None:
        return [record] if key is None or record.key == key else []
    node = None if key is None else key.decode(errors="replace")
    if node is not None and msgspec.json.encode(node) not in value:
        return []
    try:
        kept = decode(value, NodesKept)
    except BadMessageError:
        return [record]
    return [
        _record(record, kept_command(kept, one), kept.sample if one == kept.kept[-1] else None)
        for one in kept.kept
        if node is None or one[0] == node
    ]


def answers_of(out: Out) -> Iterator[NodeCommand]:
    """Yield the commands in a record of answers that was to be written."""
    if out.key == _KEY:
        kept = decode(out.value, NodesKept)
        yield from (kept_command(kept, one) for one in kept.kept)
    else:
        yield decode(out.value, NodeCommand)


def _record(of: Record, command: NodeCommand, sample: Origin | None) -> Record:
    its = command if sample is None else msgspec.structs.replace(command, sample=sample)
    lines = headers(
        kind=of.topic,
        source=f"stream/{command.worker}",
        subject=command.node,
        event_id=command.id,
        event_ms=command.decided_ms,
        trace=f"{command.node}/{command.boot_id}/{command.seq}",
    )
    return msgspec.structs.replace(of, key=command.node.encode(), value=encode(its), headers=lines)
