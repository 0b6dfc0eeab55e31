"""Converts a stored point of a node to a row with problems. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slacktide.deploy.console.history.node_figures import ORIGINS, SEVERITIES
from slacktide.deploy.console.history.points import AT, STEPS_S
from slacktide.deploy.console.history.view import NONE, STATES, NodeRow, Problem
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, METRIC, OUTCOME, SAMPLES, SCORE

_FIELDS = (
    "age_ms", "capacity_cpu_milli", "capacity_mem_bytes", "used_cpu_milli", "used_mem_bytes", "ls_cpu_milli",
    "be_cpu_milli", "system_cpu_milli", "be_mem_bytes", "sold_cpu_milli", "sold_mem_bytes", "requested_cpu_milli",
    "requested_mem_bytes", "ceiling_cpu_milli", "limit_cpu_milli", "ls_stall_permille", "slack_won_cpu_milli",
    "decided_ms",
)  # fmt: skip
_OFFSETS = {
    "metric": METRIC.name,
    "allocatable": ALLOCATABLE.name,
    "command": COMMAND.name,
    "outcome": OUTCOME.name,
    "score": SCORE.name,
}
_AT = {step_s: tuple((field, AT[step_s][field]) for field in _FIELDS) for step_s in STEPS_S}
_OFFSETS_AT = {
    step_s: tuple((kind, topic, AT[step_s][f"{kind}_offset"]) for kind, topic in _OFFSETS.items()) for step_s in STEPS_S
}


def row_of(name: str, partition: int, at_s: int, step_s: int, point: Sequence[int], texts: Sequence[str]) -> NodeRow:
    """Build the row of one node at one moment.

    Args:
        name: the node's.
        partition: of topics keyed by node.
        at_s: start of the point.
        step_s: its resolution.
        point: its figures, in the column order of that resolution.
        texts: by number.
    """
    at = AT[step_s]

    def text(column: str) -> str:
        number = point[at[column]]
        return texts[number] if 0 <= number < len(texts) else ""

    figures: dict[str, Any] = {
        field: None if (found := point[place]) == NONE else found for field, place in _AT[step_s]
    }
    pressure = point[at["cpu_some"]]
    return NodeRow(
        node=name,
        at_ms=at_s * 1_000,
        end_ms=(at_s + step_s) * 1_000 - 1,
        state=STATES[max(0, point[at["state"]])],
        severity=SEVERITIES[max(0, point[at["severity"]])],
        why=text("why"),
        cpu_some_pct=None if pressure == NONE else pressure / 100,
        decided_by=ORIGINS[max(0, point[at["origin"]])],
        evictions=max(0, point[at["evictions"]]),
        policy_version=text("policy"),
        boot_id=text("boot"),
        places=_places(partition, step_s, point),
        **figures,
    )


def _places(partition: int, step_s: int, point: Sequence[int]) -> Mapping[str, tuple[str, int, int]]:
    at = AT[step_s]
    found = {}
    if (offset := point[at["sample_offset"]]) != NONE:
        found["sample"] = (SAMPLES[max(0, point[at["sample_topic"]])].name, partition, offset)
    for kind, topic, place in _OFFSETS_AT[step_s]:
        if (offset := point[place]) != NONE:
            found[kind] = (topic, partition, offset)
    return found


def problems_of(row: NodeRow) -> Iterator[Problem]:
    """Yield the problems of one node."""
    if row.evictions:
        place = row.places.get("outcome")
        text = f"{row.evictions} evicted"
        yield Problem(severity="warning", name="evictions", node=row.node, text=text, place=place)
    if row.severity != "ok" or row.state != "ok":
        kind = "allocatable" if row.state == "exhausted" else "outcome" if row.state == "guard" else "metric"
        name = row.state if row.state != "ok" else "node"
        yield Problem(severity=row.severity, name=name, node=row.node, text=row.why, place=row.places.get(kind))
