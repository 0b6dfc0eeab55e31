"""Formats a Job's place in its queue for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.deploy.cli.explain.findings import age
from slacktide.schemas.units import cpu_text, mem_text
from slacktide.streams.decisions.queue.reasons import meaning
from slacktide.streams.explain.queued import Lacks, QueuePlace, remedy


def queue_text(one: QueuePlace, now_ms: int) -> str:
    """Return the complete text."""
    return "\n".join(_lines(one, now_ms))


def _lines(one: QueuePlace, now_ms: int) -> Iterator[str]:
    state, queue = one.state, one.cluster_queue or "-"
    reason = f", {one.reason}" if one.reason else ""
    if one.position:
        yield f"queue {queue}: position {one.position:,} of {one.pending_count:,}{reason}"
    else:
        started = ", started" if state.started else ""
        yield f"queue {queue}: {state.phase}{started}{reason}"
    if one.reason:
        yield f"  {meaning(one.reason).why}"
    if state.booking is not None:
        yield f"  has quota since {age(now_ms - state.booking.reserved_ms)}"
    if state.phase == "pending":
        yield from _waits(one, now_ms)
    if one.preempted is not None:
        done = one.preempted
        mine, theirs = done.eviction.victim, done.eviction.preemptor
        yield (
            f"  preempted {age(now_ms - done.at_ms)} by {done.by} of {theirs.cluster_queue}, priority "
            f"{theirs.priority:,}: {done.eviction.reason}; share of {theirs.cluster_queue} {theirs.share_before:g} to "
            f"{theirs.share_after:g}, of {mine.cluster_queue} {mine.share_before:g} to {mine.share_after:g}"
        )


def _waits(one: QueuePlace, now_ms: int) -> Iterator[str]:
    state, wait = one.state, one.wait
    if wait is not None:
        text = f"{wait.least_s:,} to {wait.most_s:,} s" if wait.state == "interval" else f"{wait.state}: {wait.reason}"
        yield f"  wait: {text}"
    if state.retry_ms > now_ms:
        yield f"  next attempt in {(state.retry_ms - now_ms) / 1000:,.0f} s"
    helps = remedy(one) or ", ".join(_amount(each) for each in one.lacks)
    if helps:
        yield f"  would be admitted with {helps}"


def _amount(one: Lacks) -> str:
    text = cpu_text(one.amount) if one.resource == "cpu" else mem_text(one.amount)
    text = text if one.resource in {"cpu", "memory"} else f"{one.amount:,}"
    return f"{text} more {one.resource} of {one.flavor}"
