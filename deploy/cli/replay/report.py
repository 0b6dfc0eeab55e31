"""Formats the result of a replay, and decides the turns of the queue again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from slacktide.deploy.cli.replay import source
from slacktide.deploy.runtime.text import count, instant, table
from slacktide.schemas.topics import QUEUE_DECISION, QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_WORKLOAD
from slacktide.streams.analysis.replay.replay import Result
from slacktide.streams.analysis.replay.whatif import Change, NodeChange
from slacktide.streams.queue.replay import replay
from slacktide.streams.records import Record

FIELDS_MAX = 12
"""The maximum number of fields per difference."""
QUEUE_TOPICS = tuple(one.name for one in (QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_OUTCOME, QUEUE_DECISION))


def text_of(result: Result | Change | QueueResult) -> str:
    """Return the complete text."""
    if isinstance(result, QueueResult):
        return _queue_text(result)
    return "\n".join(_compared(result) if isinstance(result, Result) else _changed(result))


def fine(result: Result | Change | QueueResult) -> bool:
    """Return whether samples or turns were decided, and for a comparison all records are equal."""
    if isinstance(result, QueueResult):
        return 0 < result.turns == result.equal
    return result.samples > 0 if isinstance(result, Change) else result.equal


def _compared(result: Result) -> Iterator[str]:
    """Format a comparison, differences first."""
    for found in result.differences:
        place = f"{found.topic} {found.partition}:{found.offset}"
        yield f"{instant(found.timestamp_ms)} {found.key}: {found.why} ({place})"
        for field in found.fields[:FIELDS_MAX]:
            yield f"    {field.path or '(body)'}: recorded {_short(field.recorded)}, replayed {_short(field.replayed)}"
        if len(found.fields) > FIELDS_MAX:
            yield f"    ... and {count(len(found.fields) - FIELDS_MAX, 'field')} more"
        yield ""
    if result.different > len(result.differences):
        yield f"... and {count(result.different - len(result.differences), 'difference')} more"
    if result.since_ms is None or result.until_ms is None:
        yield "no samples in the span: nothing to replay"
        return
    span = f"{instant(result.since_ms)} to {instant(result.until_ms)}"
    yield f"{count(result.samples, 'sample')} of {count(result.nodes, 'node')}, {span}"
    if result.compares_from_ms:
        first, last = min(result.compares_from_ms.values()), max(result.compares_from_ms.values())
        late = "" if first == last else f", for every node from {instant(last)}"
        yield f"compared from {instant(first)}{late}"
    policies = "1 policy" if result.policies == 1 else f"{result.policies} policies"
    yield (
        f"contains {policies}, {count(result.takeovers, 'takeover')}, {count(result.by_guard, 'act')} by the nodes' "
        f"guards, {count(result.ticks, 'tick')}"
    )
    yield f"commands: {_counts(result.commands)}"
    yield f"figures:  {_counts(result.figures)}"
    if result.unanswered or result.waiting:
        yield f"samples without an answer: {result.unanswered}; unanswered at the end of the span: {result.waiting}"
    yield from _unproven(result)
    if not result.compared:
        yield "nothing was compared: the span contains no answers to its samples"
    else:
        yield "equal" if result.equal else f"{count(result.different, 'difference')}"


def _short(value: object) -> str:
    text = value if value == "(absent)" else msgspec.json.encode(value).decode()
    return str(text) if len(str(text)) <= 100 else f"{str(text)[:97]}..."


def _unproven(result: Result | Change) -> Iterator[str]:
    if result.unproven:
        yield f"{count(result.unproven, 'sample')} left out because the node did not sign them"


def _counts(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{number} {how}" for how, number in sorted(counts.items()) if number) or "none"


def _changed(change: Change) -> Iterator[str]:
    """Format the changes by another policy, one row per node, then the total."""
    if not change.samples:
        yield "no samples in the span: nothing to decide"
        return
    span = f"{instant(change.since_ms or 0)} to {instant(change.until_ms or 0)}"
    yield f"policy {change.policy_version} over {count(change.samples, 'sample')}, {span}"
    head = ["NODE", "HOURS", "ALLOWED", "IF", "USED", "IF", "OFFERED", "IF"]
    head += ["OVER LINE", "IF", "EVICTED", "MORE", "FEWER"]
    yield table(head, [_row(node) for node in [*change.nodes, change.all]])
    yield "ALLOWED, USED: best-effort CPU, core-hours; OFFERED: batch allocatable, core-hours; OVER LINE: seconds in"
    yield "which the node used more than the recorded policies' threshold. IF: under the other policy, least..most."
    for title, names in (("more", change.all.evictions_more), ("fewer", change.all.evictions_fewer)):
        if names:
            yield f"evicted {title}: {', '.join(names)}"
    yield from _unproven(change)
    if change.all.undecided:
        yield f"{count(change.all.undecided, 'sample')} left out because figures, pods or facts were unknown"


def _row(node: NodeChange) -> list[object]:
    one, other = node.recorded, node.other

    def span(low: float, high: float, digits: int) -> str:
        least, most = f"{low:.{digits}f}", f"{high:.{digits}f}"
        return least if least == most else f"{least}..{most}"

    return [
        node.node,
        f"{node.covered_s / 3600:.3f}",
        f"{one.allowed_core_h:.3f}",
        f"{other.allowed_core_h:.3f}",
        f"{one.used_low_core_h:.3f}",
        span(other.used_low_core_h, other.used_high_core_h, 3),
        f"{one.batch_sold_core_h:.3f}",
        f"{other.batch_sold_core_h:.3f}",
        f"{one.over_line_low_s:.0f}",
        span(other.over_line_low_s, other.over_line_high_s, 0),
        one.evictions,
        len(node.evictions_more),
        len(node.evictions_fewer),
    ]


class QueueResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result."""

    turns: int
    """The number of repeated decisions, including the starts of terms."""
    equal: int
    different: list[str]
    """EPOCH/TURN of the first decisions that differ."""


def queue_decided(where: source.Where, shown: int) -> QueueResult:
    """Decide the queue's records again, from their start; ``shown``: limit for listed differences."""
    records: list[Record] = []
    source.read(where, QUEUE_TOPICS, lambda _: records.extend)
    again = list(replay(records))
    different = [f"{one.recorded.epoch}/{one.recorded.turn}" for one in again if not one.equal]
    return QueueResult(turns=len(again), equal=len(again) - len(different), different=different[:shown])


def _queue_text(one: QueueResult) -> str:
    if not one.turns:
        return "no turn was decided again: the records do not contain the beginning of a term"
    turns = f"{count(one.turns, 'turn')} decided again"
    if one.turns == one.equal:
        return f"{turns}: all are equal, byte for byte"
    different = f"{one.turns - one.equal:,} different, first {', '.join(one.different)}"
    return f"{turns}: {different}\nPossible causes: compacted or deleted inputs, or another version of the rules."
