"""Records by their place, or by the trace that they are of, from sample to outcome."""

from __future__ import annotations

from collections.abc import Callable

from slacktide.deploy.console.history.file import NODE_BITS
from slacktide.deploy.console.history.kept import unpack_kept
from slacktide.deploy.console.history.points import AT, POINTS, STEPS_S, unpack
from slacktide.deploy.console.history.reading import Reading, placed, record_of
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.schemas.headers import traceparent
from slacktide.streams.records import Record


class Traces:
    """Of the file and of the minute that is not stored yet."""

    def __init__(self, reading: Reading, recorder: Callable[[], Recorder | None]) -> None:
        self._reading = reading
        self._recorder = recorder

    def at(self, topic: str, partition: int, offset: int) -> list[Record]:
        """One record that is kept by itself; empty: it is not kept."""
        asked = "SELECT record FROM entry WHERE topic = ? AND partition = ? AND offset = ?"
        found = [record_of(blob) for (blob,) in self._reading.all(asked, topic, partition, offset)]
        live = self._recorder()
        unstored = [] if live is None else live.unstored()
        return found or [one.record for one in unstored if placed(one.record) == (topic, partition, offset)]

    def of(self, trace: str) -> list[Record]:
        """The boot of the trace, the time at which its sample came, and what was kept about then."""
        live = self._recorder()
        self._reading.learn()
        texts = list(live.texts) if live is not None else self._reading.texts
        boots = {number: text for number, text in enumerate(texts) if text}
        for node in {*self._reading.names.values(), *(() if live is None else live.nodes)}:
            mine = {
                number
                for number, text in boots.items()
                if traceparent(f"{node}/{text}", "", "")[3:19] == trace[:16].encode()
            }
            if mine:
                return self._of_node(node, trace, self._came_s(node, mine, int(trace[16:], 16)))
        return []

    def _of_node(self, node: str, trace: str, at_s: int) -> list[Record]:
        near: list[Record] = []
        number, live = self._reading.number(node), self._recorder()
        if number is not None:
            keys = number << 32 | at_s // 60 - 2, number << 32 | at_s // 60 + 2
            rows = self._reading.all("SELECT records FROM kept WHERE key BETWEEN ? AND ? ORDER BY key", *keys)
            near = [one for (blob,) in rows for one in unpack_kept(blob).records]
        near += [] if live is None else live.kept_of(node)
        part = f"-{trace}-".encode()
        found = {placed(one): one for one in near if any(part in value for _, value in one.headers)}
        return sorted(found.values(), key=lambda one: one.timestamp_ms)

    def _came_s(self, node: str, boots: set[int], seq: int) -> int:
        """When a boot's sample came: seqs rise with time within a boot. By the best resolution that has it."""
        live, number = self._recorder(), self._reading.number(node)
        for step_s in STEPS_S if number is not None else ():
            span_s = step_s * POINTS
            asked = f"SELECT key, points FROM p{step_s} WHERE key & ? = ? ORDER BY key"  # noqa: S608
            for key, blob in self._reading.all(asked, (1 << NODE_BITS) - 1, number):
                block = unpack(blob)
                if block[AT[step_s]["boot"]][-1] in boots and max(block[AT[step_s]["seq"]]) >= seq:
                    slot = next(at for at, one in enumerate(block[AT[step_s]["seq"]]) if one >= seq)
                    return int(key >> NODE_BITS) * span_s + slot * step_s
        return 0 if live is None else live.second_s
