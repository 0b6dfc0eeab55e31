"""Pods: events, names and nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slacktide.deploy.console.history.minute import Entry
from slacktide.deploy.console.history.pod_events import events_of, is_named
from slacktide.deploy.console.history.reading import Reading, record_of
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.deploy.console.history.view import PodEvent

DAY_MS = 24 * 3_600_000
LATELY_MS = 120_000
"""The newest pod lists are used for moments within this time."""


class Pods:
    """Reads pods from the file and the current minute."""

    def __init__(self, reading: Reading, recorder: Callable[[], Recorder | None]) -> None:
        self._reading = reading
        self._recorder = recorder

    def events(self, pod: str, from_ms: int, to_ms: int) -> Sequence[PodEvent]:
        """Return a pod's events, oldest first. ``pod``: NAMESPACE/NAME, NAMESPACE, or a uid."""
        asked = (
            "SELECT DISTINCT record FROM entry JOIN pod ON pod.entry = entry.id "
            "WHERE (pod.name = ? OR pod.name GLOB ?) AND pod.at_ms >= ? AND pod.at_ms < ? ORDER BY pod.at_ms"
        )
        known = [record_of(blob) for (blob,) in self._reading.all(asked, pod, f"{_globbed(pod)}/*", from_ms, to_ms)]
        live = [one.record for one in self._unstored() if any(is_named(name, pod) for name in one.names)]
        known += [one for one in live if from_ms <= one.timestamp_ms < to_ms]
        return [event for record in known for event in events_of(record, pod)]

    def names(self, at_ms: int, namespace: str = "", most: int = 1_000) -> Sequence[str]:
        """Return NAMESPACE/NAME of pods with records within the day before a moment.

        With a namespace, only its pods. For recent moments also pods of the nodes' lists.
        """
        asked = "SELECT DISTINCT name FROM pod WHERE at_ms > ? AND at_ms <= ? AND name GLOB ? ORDER BY name LIMIT ?"
        wanted = f"{_globbed(namespace)}/*" if namespace else "*/*"
        kept = self._reading.all(asked, at_ms - DAY_MS, at_ms, wanted, most)
        found = {name for (name,) in kept} | {name for one in self._unstored() for name in one.names if "/" in name}
        if namespace:
            live = self._recorder()
            if live is not None and at_ms >= live.second_s * 1_000 - LATELY_MS:
                found |= {name for name, _ in self._listed()}
            found = {name for name in found if is_named(name, namespace)}
        return sorted(found)[:most]

    def node_of(self, pod: str, at_ms: int) -> str:
        """Return the node of NAMESPACE/NAME by its last event, else by the newest pod lists; "": unknown."""
        events = self.events(pod, at_ms - DAY_MS, at_ms + 1)
        known = next((one.node for one in reversed(events) if one.node), "")
        return known or next((node for name, node in self._listed() if name == pod), "")

    def _listed(self) -> Iterator[tuple[str, str]]:
        """Yield NAMESPACE/NAME and node of each pod in the nodes' newest keyframes."""
        live = self._recorder()
        for node in [] if live is None else list(live.nodes.values()):
            if node.keyframe is not None:
                for one in node.keyframe.body.pods or ():
                    yield f"{one.namespace}/{one.name}", node.name

    def _unstored(self) -> Sequence[Entry]:
        live = self._recorder()
        return () if live is None else live.unstored()


def _globbed(text: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in text)
