"""Fills windows from late samples, from published minutes, and from another worker's windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from slacktide.schemas.proof import PROVEN
from slacktide.streams.columns.node_window import NodeWindow
from slacktide.streams.columns.segments import (
    MINUTE_MS,
    Minute,
    minutes_of,
    restore,
    written_minute,
    written_seconds,
)
from slacktide.streams.isolated import isolated
from slacktide.streams.proofs import Unproven
from slacktide.streams.records import Out, Record, Writer
from slacktide.streams.worker.held import Held
from slacktide.streams.worker.node_state import NamedSample, Node, waves
from slacktide.streams.worker.publishing import Publishing
from slacktide.streams.worker.reading import check_key
from slacktide.streams.worker.single import Of, Single

FILLED_AT_ONCE = 16
"""Nodes whose last minutes are filled in one step of some milliseconds."""


class Filling:
    """Fills the gaps in the windows of a worker; ``publishing`` merges samples that are not late after all."""

    def __init__(self, worker: Of, single: Single, publishing: Publishing, writer: Writer, unproven: Unproven) -> None:
        self._worker, self._single, self._publishing = worker, single, publishing
        self._writer, self._unproven = writer, unproven
        self._windows = worker.held.windows

    def fill(self, records: Iterable[Record]) -> list[Out]:
        """Take in late samples without an answer. Bad ones become dead letters."""
        outs: list[Out] = []
        samples: list[NamedSample] = []
        for record in records:
            if (verdict := self._single.verdict(record)) not in PROVEN:
                outs += self._unproven.dead(record, verdict, record.timestamp_ms)
                continue
            try:
                each = self._single.named(record, self._single.read(record), late=True)
            except Exception as exc:  # noqa: BLE001 - one record's
                outs.append(self._writer.failed("read a late sample", record, exc))
            else:
                samples += [each] if isinstance(each, NamedSample) else []
        for wave in waves(samples):
            for each, merged in zip(wave, self._publishing.merge(wave, outs), strict=True):
                if not merged:
                    outs += self._fill(each)
        return outs

    def fill_from(self, other: Held, partition: int, minutes: int) -> Iterator[None]:
        """Fill gaps with another worker's last minutes, some nodes per step."""
        nodes = list(other.of(partition).items())
        for begin in range(0, len(nodes), FILLED_AT_ONCE):
            some = nodes[begin : begin + FILLED_AT_ONCE]
            isolated(lambda some: self._fill_from(other, partition, minutes, some), some, lambda *_: [])
            yield

    def _fill_from(
        self, other: Held, partition: int, minutes: int, nodes: Iterable[tuple[str, Node]]
    ) -> Sequence[None]:
        found = []
        for name, node in nodes:
            if isinstance(known := self._worker.begin(partition, name), str):
                continue
            window = known.window
            newest = node.window.watermark_ms // MINUTE_MS
            numbers = range(newest - minutes, newest + 1)
            found += [(window, one) for one in minutes_of(other.windows, node.window, numbers)]
        restore(self._windows, found)
        return ()

    def restore(self, records: Iterable[Record]) -> list[Out]:
        """Restore windows from published minutes; bad ones become dead letters."""
        outs: list[Out] = []
        found: list[tuple[Record, NodeWindow, Minute]] = []
        for record in records:
            try:
                found += self._segment_in(record)
            except Exception as exc:  # noqa: BLE001 - one segment's
                outs.append(self._writer.failed("restore", record, exc))
        outs += isolated(self._restored, found, lambda one, exc: [self._writer.failed("restore", one[0], exc)])
        for _, window, its in found:
            if its.end_ms <= window.watermark_ms:  # otherwise its samples come again, or its clock was set back
                window.minute = max(window.minute, its.begin_ms // MINUTE_MS + 1)
        return outs

    def _segment_in(self, record: Record) -> list[tuple[Record, NodeWindow, Minute]]:
        """Return a segment's minute with its node's window; empty if the node does not exist."""
        if record.value is None:
            return []
        segment_ = written_seconds(record.value)
        check_key(record, segment_.node, "NodeWindowSegment")
        node = self._worker.begin(record.partition, segment_.node)
        if isinstance(node, str):
            return []
        minute = written_minute(segment_, record.value, node.window)
        if not node.newest[0]:  # so that further samples of this boot do not restart the node
            node.newest = segment_.boot_id, -1
            node.boots.adopt(segment_.boot_id)
        return [(record, node.window, minute)]

    def _restored(self, found: Sequence[tuple[Record, NodeWindow, Minute]]) -> list[Out]:
        restore(self._windows, [(window, its) for _, window, its in found])
        return []

    def _fill(self, each: NamedSample) -> list[Out]:
        try:
            self._windows.fill(each.node.window, each.sample)
        except Exception as exc:  # noqa: BLE001 - one sample's
            return [self._writer.failed("fill", each.record, exc)]
        return []
