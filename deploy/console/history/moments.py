"""Reads all nodes or one node at a moment, at the best available resolution: rows, and their problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from slacktide.deploy.console.history.file import NODE_BITS, Reading, block_key
from slacktide.deploy.console.history.node_figures import ORIGINS, SEVERITIES
from slacktide.deploy.console.history.points import AT, POINTS, STEPS_S, point
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.deploy.console.history.view import NONE, STATES, NodeRow, Problem
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, METRIC, OUTCOME, SAMPLES, SCORE
from slacktide.streams.kafka import partition_of

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


class Moments:
    """Reads moments from the file and from the minutes that are not stored yet.

    Args:
        reading: the file.
        recorder: returns the recorder; None: there is none.
        partitions: of topics keyed by node.
    """

    def __init__(self, reading: Reading, recorder: Callable[[], Recorder | None], partitions: int) -> None:
        self._reading = reading
        self._recorder = recorder
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
            points = ((names.get(key & ((1 << NODE_BITS) - 1)), point(blob, slot)) for key, blob in blobs)
            found = [row for name, one in points if name and (row := self._row(name, at_s, step_s, one)) is not None]
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
            blob = self._reading.one(asked, block_key(at_s, step_s, number or 0))
            found = self._row(node, at_s, step_s, point(blob[0], at_s // step_s % POINTS)) if blob else None
            if found is not None:
                return found
        return None

    def _unstored_s(self, at_s: int) -> int | None:
        """Return the second, if only the recorder has it; None: it is in the file."""
        live, stored_s = self._recorder(), self._reading.stored_s()
        if live is None or at_s < stored_s:
            return None
        at_s = min(at_s, live.second_s - 1)  # the current second is incomplete
        return at_s if at_s >= stored_s else None

    def _unstored(self, at_s: int, node: str | None = None) -> list[NodeRow]:
        live = self._recorder()
        assert live is not None  # there is a second of it
        slot, texts, blocks = at_s % POINTS, list(live.texts), live.blocks(at_s // POINTS * POINTS)
        chosen = blocks.items() if node is None else [(node, blocks[node])] if node in blocks else []
        points = ((name, [column[slot] for column in block]) for name, block in chosen)
        return [row for name, one in points if (row := self._row(name, at_s, 1, one, texts)) is not None]

    def _row(
        self, name: str, at_s: int, step_s: int, one: Sequence[int], texts: Sequence[str] | None = None
    ) -> NodeRow | None:
        """Convert a point to a row; None: the follower did not record that second."""
        if one[0] <= 0:
            return None
        partition = self._partition.get(name)
        if partition is None:
            partition = self._partition[name] = partition_of(name, self._partitions)
        texts = self._reading.texts if texts is None else texts
        return row_of(name, partition, at_s // step_s * step_s, step_s, one, texts)
