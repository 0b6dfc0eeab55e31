"""Formats a pod's placement for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.deploy.cli.explain.findings import age
from slacktide.deploy.runtime.text import count, table
from slacktide.schemas.message import Terms
from slacktide.schemas.placement import PodPlacement, RankedNode, RefusingNodes
from slacktide.streams.explain.evidence import Logged
from slacktide.streams.explain.selling import amount

HEAD = (
    "NODE",
    "LEVEL",
    "SCORE",
    "LOAD",
    "CPU USED/OF",
    "MEMORY USED/OF",
    "BALANCE",
    "CPU LEFT/MOST",
    "MEMORY LEFT/MOST",
)
UNITS = {"milli": "cpu_milli", "bytes": "mem_bytes"}


def placement_text(placement: Logged[PodPlacement], asked_ms: int) -> str:
    """Format which nodes refused the pod and why, and the ranking of the others."""
    body = placement.body
    when = age(max(0, asked_ms - body.decided_ms))
    head = f"scheduler request {when}: {body.passed} of {count(body.asked, 'node')} accept the pod ({placement.place})"
    lines = [head, *(line for one in body.refused for line in _refusing(one))]
    if body.best:
        lines.append(table(HEAD, [tuple(_row(one)) for one in body.best]))
        lines += [f"  {one.node}: {zones}" for one in body.best if (zones := _zones(one))]
    return "\n".join(lines)


def _refusing(one: RefusingNodes) -> Iterator[str]:
    yield f"  {one.count} {one.reason}: {', '.join(one.nodes)}"
    if why := one.why.removeprefix(f"{one.reason}: "):
        yield f"    {why}"


def _row(one: RankedNode) -> Iterator[str]:
    terms = one.terms
    score = f"{one.score_permille / 10:.1f}"
    yield from (one.node, str(one.level), score if one.bound == "scored" else f"{score} ({one.bound})")
    yield f"{terms.get('load_score', 0)} x {terms.get('load_weight', 0)}"
    yield from (_pair(terms, "used", "allocatable", unit) for unit in UNITS)
    yield f"{terms.get('balance_permille', 0) / 10:.1f} x {terms.get('balance_weight', 0)}"
    yield from (_pair(terms, "left", "most_left", unit) for unit in UNITS)


def _zones(one: RankedNode) -> str:
    """Return the NUMA zones that the pod would get, with their score; "": not applicable."""
    parts = [one.zones] if one.zones else []
    if "numa_score" in one.terms:
        parts.append(f"NUMA score {one.terms['numa_score']} x {one.terms['numa_weight']}")
    return "; ".join(parts)


def _pair(terms: Terms, one: str, other: str, unit: str) -> str:
    """Format two amounts; -: not computed."""
    found = [terms.get(f"{name}_{unit}") for name in (one, other)]
    return "-" if None in found else " / ".join(amount(int(each or 0), UNITS[unit]) for each in found)
