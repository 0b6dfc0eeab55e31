"""The placement of a pod, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.deploy.cli.explain.findings import age
from slacktide.deploy.cli.text import count, table
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
    """Who refused it and why, and how the best of the others were ranked."""
    body = placement.body
    when = age(max(0, asked_ms - body.decided_ms))
    head = (
        f"asked for by a scheduler {when}: "
        f"of {count(body.asked, 'node')} {body.passed} would take it ({placement.place})"
    )
    lines = [head, *(line for one in body.refused for line in _refusing(one))]
    if body.best:
        lines.append(table(HEAD, [tuple(_row(one)) for one in body.best]))
        lines += [f"  {one.node}: {zones}" for one in body.best if (zones := _zones(one.terms))]
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


def _zones(terms: Terms) -> str:
    """The NUMA zones that the pod would get, CPU free there before and after, and what is reserved; "": none count."""
    if "zone_count" not in terms and "numa_score" not in terms:
        return ""
    free = {name.removesuffix("_free_milli"): milli for name, milli in terms.items() if name.endswith("_free_milli")}
    parts = [
        f"{name.replace('_', ' ')}: {milli}m free, {terms[f'{name}_left_milli']}m with it"
        for name, milli in free.items()
    ]
    if "numa_score" in terms:
        parts.append(f"NUMA score {terms['numa_score']} x {terms['numa_weight']}")
    if terms.get("reserved_pods"):
        parts.append(f"counting {count(int(terms['reserved_pods']), 'pod')} that its zones do not show yet")
    return "; ".join(parts)


def _pair(terms: Terms, one: str, other: str, unit: str) -> str:
    """Two amounts; - where they were not reckoned with."""
    found = [terms.get(f"{name}_{unit}") for name in (one, other)]
    return "-" if None in found else " / ".join(amount(int(each or 0), UNITS[unit]) for each in found)
