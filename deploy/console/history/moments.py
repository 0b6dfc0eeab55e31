"""Reads all nodes or one node at a moment, at the best available resolution: rows, and their problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from slacktide.deploy.console.history.file import NODE_BITS, block_key, readable
from slacktide.deploy.console.history.node_figures import ORIGINS, SEVERITIES
from slacktide.deploy.console.history.points import AT, POINTS, STEPS_S, point
from slacktide.deploy.console.history.reading import Reading
from slacktide.deploy.console.history.view import NONE, STATES, NodeRow, Problem
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, METRIC, OUTCOME, SAMPLE, SCORE
from slacktide.streams.explain.facts import severity_of
from slacktide.streams.kafka import partition_of

_FIELDS = (
    "age_ms", "capacity_cpu_milli", "capacity_mem_bytes", "used_cpu_milli", "used_mem_bytes", "ls_cpu_milli",
    "be_cpu_milli", "system_cpu_milli", "be_mem_bytes", "sold_cpu_milli", "sold_mem_bytes", "requested_cpu_milli",
    "requested_mem_bytes", "ceiling_cpu_milli", "limit_cpu_milli", "ls_stall_permille", "gained_cpu_milli",
    "decided_ms",
)  # fmt: skip
_OFFSETS = {
    "sample": SAMPLE.name,
    "metric": METRIC.name,
    "allocatable": ALLOCATABLE.name,
    "command": COMMAND.name,
    "outcome": OUTCOME.name,
    "score": SCORE.name,
}
_FIELDS_AT = tuple((field, AT[field]) for field in _FIELDS)
_OFFSETS_AT = tuple((kind, topic, AT[f"{kind}_offset"]) for kind, topic in _OFFSETS.items())


def problems_of(row: NodeRow) -> Iterator[Problem]:
    """Yield the problems of one node."""
    if row.evictions:
        place = row.places.get("outcome")
        text = f"{row.evictions} evicted"
        yield Problem(severity=severity_of("evictions"), name="evictions", node=row.node, text=text, place=place)
    if row.severity != "ok" or row.state != "ok":
        kind = "allocatable" if row.state == "exhausted" else "outcome" if row.state == "guard" else "metric"
        name = row.state if row.state != "ok" else "node"
        yield Problem(severity=row.severity, name=name, node=row.node, text=row.why, place=row.places.get(kind))


class Moments:
    """Reads moments from the file and the recorder; ``partitions``: of topics keyed by node."""

    def __init__(self, reading: Reading, partitions: int) -> None:
        self._reading = reading
        self._partitions = partitions
        self._partition: dict[str, int] = {}

    def all(self, at_s: int) -> list[NodeRow]:
        """Return all nodes, unordered; empty: none was recorded."""
        if (second_s := self._unstored_s(at_s)) is not None:
            return self._unstored(second_s)
        self._reading.learn()
        names = self._reading.names
        for step_s in STEPS_S:
            begin, slot = block_key(at_s, step_s, 0), at_s // step_s % POINTS
            asked = f"SELECT key, points FROM p{step_s} WHERE key >= ? AND key < ?"  # noqa: S608 - our own names
            blobs = self._reading.all(asked, begin, begin + (1 << NODE_BITS))
            named = ((name, blob) for key, blob in blobs if (name := names.get(key & ((1 << NODE_BITS) - 1))))
            rows = readable(lambda one: self._row(one[0], at_s, step_s, point(one[1], slot)), named)  # noqa: B023 - at once
            found = [row for row in rows if row is not None]
            if found:
                return found
        return []

    def one(self, node: str, at_s: int) -> NodeRow | None:
        """Return one node; None: it was not recorded."""
        if (second_s := self._unstored_s(at_s)) is not None:
            return next(iter(self._unstored(second_s, node)), None)
        self._reading.learn()
        number = self._reading.number(node)
        for step_s in STEPS_S if number is not None else ():
            asked = f"SELECT points FROM p{step_s} WHERE key = ?"  # noqa: S608 - our own names
            slot, rows = at_s // step_s % POINTS, self._reading.all(asked, block_key(at_s, step_s, number or 0))
            for one in readable(lambda row: point(row[0], slot), rows):  # noqa: B023 - at once
                if (found := self._row(node, at_s, step_s, one)) is not None:
                    return found
        return None

    def _unstored_s(self, at_s: int) -> int | None:
        """Return the second, if only the recorder has it; None: it is in the file."""
        at_s = min(at_s, self._reading.live().second_s - 1)  # the current second is incomplete
        return at_s if at_s >= self._reading.stored_s() else None

    def _unstored(self, at_s: int, node: str | None = None) -> list[NodeRow]:
        live = self._reading.live()
        slot, texts, blocks = at_s % POINTS, list(live.texts), live.blocks(at_s // POINTS * POINTS)
        chosen = blocks.items() if node is None else [(node, blocks[node])] if node in blocks else []
        points = ((name, [column[slot] for column in block]) for name, block in chosen)
        return [row for name, one in points if (row := self._row(name, at_s, 1, one, texts)) is not None]

    def _row(
        self, name: str, at_s: int, step_s: int, point: Sequence[int], texts: Sequence[str] | None = None
    ) -> NodeRow | None:
        """Convert a point to a row; None: the follower did not record that second. Default texts: those of the file."""
        if point[0] <= 0:
            return None
        if name not in self._partition:
            self._partition[name] = partition_of(name, self._partitions)
        partition, known = self._partition[name], self._reading.texts if texts is None else texts
        begin_ms = at_s // step_s * step_s * 1_000

        def text(column: str) -> str:
            number = point[AT[column]]
            return known[number] if 0 <= number < len(known) else ""

        figures: dict[str, Any] = {
            field: None if (found := point[place]) == NONE else found for field, place in _FIELDS_AT
        }
        places = {
            kind: (topic, partition, offset) for kind, topic, place in _OFFSETS_AT if (offset := point[place]) != NONE
        }
        pressure = point[AT["cpu_some"]]
        return NodeRow(
            node=name,
            at_ms=begin_ms,
            end_ms=begin_ms + step_s * 1_000 - 1,
            state=STATES[max(0, point[AT["state"]])],
            severity=SEVERITIES[max(0, point[AT["severity"]])],
            why=text("why"),
            cpu_some_pct=None if pressure == NONE else pressure / 100,
            decided_by=ORIGINS[max(0, point[AT["origin"]])],
            evictions=max(0, point[AT["evictions"]]),
            policy_version=text("policy"),
            boot_id=text("boot"),
            places=places,
            **figures,
        )
