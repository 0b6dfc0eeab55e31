"""Reads all nodes or one node at a moment, at the best available resolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slacktide.deploy.console.history.file import NODE_BITS, block_key
from slacktide.deploy.console.history.points import POINTS, STEPS_S, point
from slacktide.deploy.console.history.reading import Reading
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.deploy.console.history.rows import row_of
from slacktide.deploy.console.history.view import NodeRow
from slacktide.streams.kafka import partition_of


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
