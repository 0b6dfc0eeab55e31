"""Compares published figures of a node with those of the replay, if both published after the same sample.

A window is incomplete after a takeover, or if the trace starts in it. Each part is compared once its window is complete
on both sides.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import MALFORMED, decode
from slacktide.schemas.command import NodeCommand, command_id
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.topics import METRIC
from slacktide.streams.analysis.replay.policies import Policies, Unsettled
from slacktide.streams.records import Out, Record, text_of

EVIDENCE = ("decided_ms", "worker", "sample", "proof")
"""Fields of a command that are not its content: writer, time, and the sample's position."""
ABSENT = "(absent)"


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field."""

    path: str
    recorded: Any
    replayed: Any


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded record that the replay does not confirm, or a missing answer."""

    why: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str
    fields: list[Field] = []

    @property
    def when(self) -> tuple[int, int, int]:
        """Order within its topic."""
        return self.timestamp_ms, self.partition, self.offset


def difference(record: Record, why: str, fields: list[Field] | None = None) -> Difference:
    """Return a difference of a record."""
    return Difference(
        why=why,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=text_of(record.key or b""),
        fields=fields or [],
    )


OF_ITS_SAMPLE = frozenset({"observed_ms", "facts_revision", "pods_revision"})


def content(message: Message, *, ids: bool = True) -> dict[str, Any]:
    """Return the content without evidence; ``ids``: whether to include ids of parts."""
    plain: dict[str, Any] = msgspec.to_builtins(message)
    left = {name: value for name, value in plain.items() if name not in EVIDENCE}
    if left.get("answer") == "keep":  # traces of earlier versions have these of each answer
        left = {name: value for name, value in left.items() if name not in OF_ITS_SAMPLE}
    if ids:
        return left
    for value in left.values():
        for part in value if isinstance(value, list) else ():
            part.pop("id", None)
    left.pop("id", None)
    return left


def own_id(one: NodeCommand) -> str:
    """Return the id that a command should have."""
    return command_id(one.node, one.boot_id, one.seq, "answer", one.node, one.policy_version)


def has_ids_by_sample(one: NodeCommand) -> bool:
    """Return whether its ids have the older form: a hash that includes the sequence number."""
    parts = one.node, one.boot_id, one.seq, "answer", one.node, one.policy_version
    return one.id == hashlib.sha256("\x00".join(map(str, parts)).encode()).hexdigest()[:16]


def has_own_id(command: NodeCommand) -> bool:
    """Return whether a recorded command's id is correct, in the current or the older form."""
    return command.id == own_id(command) or has_ids_by_sample(command)


def fields(recorded: dict[str, Any], replayed: dict[str, Any]) -> list[Field]:
    """Return all differing fields."""
    return list(_differing("", recorded, replayed))


def _differing(path: str, one: Any, other: Any) -> Iterator[Field]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*one, *(name for name in other if name not in one)]:
            yield from _differing(f"{path}.{name}" if path else name, one.get(name, ABSENT), other.get(name, ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        for place in range(max(len(one), len(other))):
            yield from _differing(
                f"{path}[{place}]", *(side[place] if place < len(side) else ABSENT for side in (one, other))
            )
    elif one != other or type(one) is not type(other):
        yield Field(path=path, recorded=one, replayed=other)


WAIT_MS = 5_000
"""Delay of comparisons, so that a takeover behind them has been read."""
KEPT_MS = 60_000
LONGEST_MS = 30 * 60_000
EVER_MS = 1 << 60
SLACK_MS = 1_000


class _Which(msgspec.Struct, frozen=True):
    node: str
    boot_id: str
    seq: int


class _Stale(_Which, frozen=True):
    stale_ms: int = 0


_which = msgspec.json.Decoder(_Stale)
BEHIND = b',"observed_ms":'
"""What the codec writes behind node, boot and seq."""
Key = tuple[str, bytes]
"""Topic; node, boot and seq as the codec writes them."""


class Figures:
    """Compares recorded figures with replayed figures; reports differences."""

    def __init__(self, policies: Policies, unsettled: Unsettled, report: Callable[[Difference], None]) -> None:
        self.counts: Counter[str] = Counter()
        self._policies, self._unsettled, self._report = policies, unsettled, report
        self._published: dict[Key, bytes] = {}
        self._order: deque[tuple[int, Key]] = deque()
        self._waiting: deque[Record] = deque()

    def published(self, out: Out, at_ms: int) -> None:
        """Add figures of the replay."""
        if out.value is not None:
            key = out.topic, out.value[: out.value.find(BEHIND)]
            self._published[key] = out.value
            self._order.append((at_ms, key))

    def recorded(self, record: Record) -> None:
        """Add recorded figures. A tombstone means that the inventory was removed."""
        if record.value is not None:
            self._waiting.append(record)

    def advance(self, now_ms: int, policy_changed_ms: int) -> None:
        """Advance the time."""
        while self._waiting and self._waiting[0].timestamp_ms <= now_ms - WAIT_MS:
            self._compare(self._waiting.popleft(), policy_changed_ms)
        while self._order and self._order[0][0] < now_ms - KEPT_MS:
            self._published.pop(self._order.popleft()[1], None)

    def _compare(self, record: Record, policy_changed_ms: int) -> None:
        value = record.value or b""
        if self._published.get((record.topic, value[: value.find(BEHIND)])) == value:
            self.counts["equal"] += 1
            return
        try:
            which = _which.decode(value)
        except MALFORMED as exc:
            self._differs(difference(record, f"not figures: {exc}"))
            return
        written = msgspec.json.encode(_Which(which.node, which.boot_id, which.seq)).removesuffix(b"}")
        replayed = self._published.get((record.topic, written))
        if which.stale_ms:
            self.counts["not compared: published of a silent node"] += 1
        elif replayed is None:
            self.counts["not compared: the replay published after other samples"] += 1
        else:
            self._judge(record, replayed, policy_changed_ms)

    def _judge(self, record: Record, replayed: bytes, policy_changed_ms: int) -> None:
        try:
            one, other = _decoded(record.topic, record.value), _decoded(record.topic, replayed)
        except BadMessageError as exc:
            self._differs(difference(record, str(exc)))
            return
        if on_its_way := self._on_its_way(one, other, record.timestamp_ms):
            self.counts[f"not compared: {on_its_way} was on its way"] += 1
            return
        if one.covered_ms < other.covered_ms:
            self._unsettled.began_anew(record.partition, record.timestamp_ms)
        warm_ms = self._unsettled.warm_since_ms(record.partition)
        unjudged, found = 0, []
        for span_ms, ours, theirs in _parts(one, other):
            differing = fields(ours, theirs)
            changed = policy_changed_ms and record.timestamp_ms - policy_changed_ms <= one.window_ms + SLACK_MS
            young = warm_ms is not None and record.timestamp_ms - warm_ms <= span_ms + SLACK_MS
            if differing and (young or changed):
                unjudged += 1
            else:
                found += differing
        if found:
            self._differs(difference(record, "other figures than the replay's", found))
        else:
            self.counts["not compared: a window began elsewhere" if unjudged else "equal"] += 1

    def _on_its_way(self, one: NodeMetric | NodeAllocatable, other: NodeMetric | NodeAllocatable, at_ms: int) -> str:
        """Return the input that the worker may have read at another time than the replay; "": none."""
        if one.policy_version != other.policy_version and self._policies.held(one.policy_version, at_ms):
            return "a policy"
        if _revision(one) != _revision(other) and self._unsettled.inventory_on_its_way(one.node, at_ms):
            return "an inventory"
        differ = one.forecast_revision != other.forecast_revision
        return "a forecast" if differ and self._unsettled.forecast_on_its_way(one.node, at_ms) else ""

    def _differs(self, found: Difference) -> None:
        self.counts["different"] += 1
        self._report(found)


def _decoded(topic: str, value: bytes | None) -> NodeMetric | NodeAllocatable:
    return decode(value, NodeMetric) if topic == METRIC.name else decode(value, NodeAllocatable)


def _revision(figures: NodeMetric | NodeAllocatable) -> str:
    return figures.inventory_revision if isinstance(figures, NodeAllocatable) else ""


def _parts(one: NodeMetric | NodeAllocatable, other: Any) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Yield the parts that depend on a window: its length, and that part of both."""
    ours, theirs = msgspec.to_builtins(one), msgspec.to_builtins(other)
    if not _revision(one):  # written before figures had an inventory revision
        theirs.pop("inventory_revision", None)
    longer = ("aggregates", *(name for name in {**ours, **theirs} if name.startswith("mid_")))
    for name in longer:
        yield LONGEST_MS, {name: ours.pop(name, None)}, {name: theirs.pop(name, None)}
    late = {"late": ours.pop("late", 0)}, {"late": theirs.pop("late", 0)}  # counted since the worker's start
    yield EVER_MS, *late
    yield max(one.window_ms, other.window_ms), ours, theirs
