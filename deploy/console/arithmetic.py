"""The arithmetic behind a number of a page, in the words of ``slacktide explain``. Pure but for the history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from slacktide.deploy.cli.explain.node_text import node_text
from slacktide.deploy.cli.text import instant
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.view import NodeRow, PodEvent
from slacktide.deploy.console.jobs import job_lines, job_of
from slacktide.deploy.console.standing import STANDING, credit_text, standing_lines
from slacktide.streams.explain.node import NodeExplanation
from slacktide.streams.explain.selling import amount
from slacktide.streams.records import Record

LIFE_MS = 24 * 3_600_000
_SOURCES = {
    "sold_cpu_milli": "allocatable", "sold_mem_bytes": "allocatable", "requested_cpu_milli": "allocatable",
    "requested_mem_bytes": "allocatable", "limit_cpu_milli": "outcome", "decided_ms": "outcome",
    "slack_won_cpu_milli": "sample",
}  # fmt: skip
"""Which record a figure is of, where it is not the sample."""


def end_of_second(at_ms: int) -> int:
    """A row is of a whole second, and of records until its end."""
    return at_ms // 1_000 * 1_000 + 999


def explained(
    history: History, at_ms: int, given: Mapping[str, str], others: Sequence[Record] = ()
) -> list[str] | None:
    """Explain one number, a line each; None: nothing is kept of it.

    Args:
        history: where the records are kept.
        at_ms: the moment that is shown.
        given: ``node``, ``pod`` or ``job``, or none for a sum over all nodes; ``figure``: the number's name.
        others: records of the node that the history does not keep.

    """
    figure = given.get("figure", "")
    if pod := given.get("pod"):
        return [
            line for one in history.pod_events(pod, at_ms - LIFE_MS, at_ms) for line in _event(history, one)
        ] or None
    if name := given.get("job"):
        job = job_of(history, name, at_ms)
        return None if job is None else list(job_lines(job, figure))
    if node := given.get("node"):
        decision = history.decision_at(node, end_of_second(at_ms), others)
        row = history.row_at(node, at_ms)
        if decision is None:
            return None
        shown = [] if row is None else [*_of_row(row, figure), *_kept(row, figure, decision.explanation), ""]
        return [*shown, *node_text(decision.explanation).split("\n")]
    if figure in STANDING:
        return list(standing_lines(history, at_ms, figure))
    return list(_sum(history.cluster_at(at_ms), figure)) or None


def _event(history: History, one: PodEvent) -> Iterator[str]:
    yield f"{instant(one.at_ms)}  {one.kind} {one.namespace}/{one.name} on {one.node or 'no node'}"
    yield f"    {one.text}"
    if credit := credit_text(history, one):
        yield f"    {credit}"
    yield f"    of: {one.place}"


def _of_row(row: NodeRow, figure: str) -> Iterator[str]:
    """The figure as the page shows it, and the record that it is of."""
    value = getattr(row, figure, None)
    place = _place(row, figure)
    if isinstance(value, int) and place:
        yield f"{figure} {_amount(value, figure)} at {instant(row.at_ms)}, of {place}"


def _kept(row: NodeRow, figure: str, explanation: NodeExplanation) -> Iterator[str]:
    """Where a record is neither kept nor in Kafka any more, what is explained is older, and its time is shown."""
    if _place(row, figure) not in {str(step.place) for step in explanation.steps}:
        then = instant(explanation.asked_ms)
        yield f"neither the history nor Kafka has that record any more; what follows is of {then}"


def _place(row: NodeRow, figure: str) -> str:
    place = row.places.get(_SOURCES.get(figure, "sample"))
    return "" if place is None else f"{place[0]} {place[1]}:{place[2]}"


def _sum(rows: Sequence[NodeRow], figure: str) -> Iterator[str]:
    """A sum over all nodes, each with its record, the largest first."""
    known = [(value, row) for row in rows if isinstance(value := getattr(row, figure, None), int)]
    if not known:
        return
    without = len(rows) - len(known)
    lacks = f"; {without} without it" if without else ""
    yield f"{figure}: the sum of {len(known)} nodes at {instant(known[0][1].at_ms)}{lacks}"
    for value, row in sorted(known, key=lambda one: (-one[0], one[1].node)):
        yield f"  + {row.node:<24} {_amount(value, figure):>14}  {_place(row, figure)}"
    yield f"  = {figure} {_amount(sum(value for value, _ in known), figure)}"


def _amount(value: int, figure: str) -> str:
    return amount(value, figure) if figure.endswith(("_milli", "_bytes")) else f"{value:,}"
