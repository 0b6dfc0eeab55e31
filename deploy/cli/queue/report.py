"""Formats results of a queue simulation as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slacktide.deploy.runtime.text import count, instant, table
from slacktide.schemas.units import cpu_text, mem_text
from slacktide.streams.decisions.queue.cluster_objects import QueueCluster
from slacktide.streams.decisions.queue.cycle import Eviction
from slacktide.streams.decisions.queue.missing import Missing, Wait
from slacktide.streams.decisions.queue.quota_tree import FlavorResource
from slacktide.streams.decisions.queue.simulation import Happened, Outcome, Simulation
from slacktide.streams.explain.job import borrowed


def report(
    given: QueueCluster, run: Simulation, happened: Sequence[Happened], before: Mapping[str, Outcome] | None
) -> str:
    """Format tables of events and of final states; ``before``: results without the changes."""
    parts = [*given.notes]
    if happened:
        rows = [(_time(one.at_s), one.kind, given.names[one.uid], one.queue, _detail(one, given)) for one in happened]
        parts.append(table(("TIME", "EVENT", "WORKLOAD", "QUEUE", "DETAIL"), rows))
    head = ["WORKLOAD", "QUEUE", "STATE", "POSITION", "WAIT", "MODE", "REASON", "LACKS"]
    found = [(one, _row(one, given)) for one in run.outcomes()]
    if before is not None:
        head.append("WITHOUT THE CHANGE")
        found = [(one, (*row, _without(one, before))) for one, row in found]
    parts.append(table(tuple(head), [row for _, row in found]))
    lost = sum(one.lost_core_s for one, _ in found)
    evicted = sum(one.evicted_count for one, _ in found)
    parts.append(f"at {_time(run.now_s)}: {count(evicted, 'eviction')}, {lost:.0f} core-seconds lost")
    if run.unfinished:
        one = run.repeats
        pair = (
            "workloads" if one is None else " and ".join(given.names[each.uid] for each in (one.preemptor, one.victim))
        )
        parts.append(f"Stopped: {pair} preempt each other endlessly.")
    return "\n\n".join(parts)


def lines(
    given: QueueCluster, run: Simulation, happened: Sequence[Happened], before: Mapping[str, Outcome]
) -> Iterator[dict[str, Any]]:
    """Yield one object per event, then one per workload."""
    for one in happened:
        line: dict[str, Any] = {
            "event": one.kind,
            "at_seconds": one.at_s,
            "workload": given.names[one.uid],
            "cluster_queue": one.queue,
        }
        if one.usage:
            line["usage"] = _plain(one.usage)
        if one.eviction is not None:
            line["eviction"] = _eviction(one.eviction, given)
        if one.reason:
            line["reason"] = one.reason
        yield line
    for each in run.outcomes():
        yield _outcome(each, given, before)


def _outcome(one: Outcome, given: QueueCluster, before: Mapping[str, Outcome]) -> dict[str, Any]:
    line: dict[str, Any] = {
        "workload": given.names[one.uid],
        "cluster_queue": one.queue,
        "state": one.state,
        "admitted_at_seconds": one.admitted_at_s,
        "evicted_count": one.evicted_count,
        "lost_core_seconds": one.lost_core_s,
    }
    done = one.entry.assignment if one.entry else None
    if one.entry is not None:
        line["reason"] = one.entry.requeue_reason or one.entry.status
    if done is not None:
        line["mode"] = done.mode
        line["targets"] = [
            {"workload": given.names[each.holder.queued.uid], "reason": each.reason} for each in done.targets
        ]
    if one.state == "waiting":
        line["position"] = one.position
    if one.wait is not None:
        line["wait"] = one.wait._asdict()
    if one.missing is not None:
        line["missing"] = _plain(one.missing.amounts)
        line["uncovered"], line["unmatched"] = one.missing.uncovered, one.missing.unmatched
    if one.uid in before:
        line["state_without_the_change"] = before[one.uid].state
    return line


def _eviction(one: Eviction, given: QueueCluster) -> dict[str, Any]:
    return {
        "cycle": one.cycle,
        "reason": one.reason,
        "preemptor": {"workload": given.names[one.preemptor.uid], **_party(one.preemptor._asdict())},
        "victim": {"workload": given.names[one.victim.uid], **_party(one.victim._asdict())},
    }


def _party(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: value for name, value in fields.items() if name != "amounts"},
        "amounts": _plain(fields["amounts"]),
    }


def _plain(amounts: Mapping[FlavorResource, int]) -> dict[str, int]:
    return {f"{of.flavor}/{of.resource}": amount for of, amount in amounts.items()}


def _row(one: Outcome, given: QueueCluster) -> tuple[str, ...]:
    entry = one.entry
    waits = one.state == "waiting"
    reason = (entry.requeue_reason or entry.status) if entry and waits else ""
    return (
        given.names[one.uid],
        one.queue,
        one.state,
        str(one.position) if waits else "",
        _wait(one.wait) if one.wait else "",
        entry.assignment.mode if entry and entry.assignment and waits else "",
        reason,
        _missing(one.missing) if one.missing else "",
    )


def _without(one: Outcome, before: Mapping[str, Outcome]) -> str:
    if one.uid not in before:
        return "absent"
    was = before[one.uid]
    evicted = f", {count(was.evicted_count, 'eviction')}" if was.evicted_count else ""
    return f"{was.state}{evicted}"


def _detail(one: Happened, given: QueueCluster) -> str:
    if one.eviction is None:
        return one.reason or _amounts(one.usage)
    by = one.eviction.preemptor
    shares = [borrowed(each.queue, each.share_before, each.share_after) for each in (by, one.eviction.victim)]
    why = f"{one.eviction.reason} for {given.names[by.uid]} (priority {by.priority})"
    return "; ".join(filter(None, [why, *shares]))


def _wait(one: Wait) -> str:
    return one.state if one.state != "interval" else f"{one.least_s}..{one.most_s} s"


def _missing(one: Missing) -> str:
    parts = [_amounts(one.amounts)] if one.amounts else []
    parts += [f"no quota of {resource}" for resource in one.uncovered]
    parts += [f"no flavor for pod set {name}" for name in one.unmatched]
    return "; ".join(parts)


def _amounts(amounts: Mapping[FlavorResource, int]) -> str:
    return ", ".join(f"{_amount(of.resource, amount)} {of.resource} of {of.flavor}" for of, amount in amounts.items())


def _amount(resource: str, amount: int) -> str:
    return cpu_text(amount) if resource == "cpu" else mem_text(amount) if resource == "memory" else str(amount)


def _time(at_s: int) -> str:
    return instant(at_s * 1000).replace(".000Z", "Z")
