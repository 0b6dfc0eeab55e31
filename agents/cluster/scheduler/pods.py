"""Passes pods to the view, with the time of each change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.pods import PodSource
from slacktide.agents.cluster.scheduler.pod import SchedulerPod, parsed
from slacktide.agents.cluster.scheduler.view import View


def pod_source(view: View, clock: Clock) -> PodSource[dict[str, Any], SchedulerPod]:
    """Follow pods for this view."""
    timed = _Timed(view, clock)
    return PodSource(dict[str, Any], parsed, timed, "it is not counted on any node", timed.blind)


class _Timed:
    """Adds the time to each change of the view."""

    def __init__(self, view: View, clock: Clock) -> None:
        self._view, self._clock = view, clock
        self.gone = view.gone

    def whole(self, pods: Iterable[SchedulerPod]) -> None:
        self._view.whole(pods, at_s=self._clock.wall_ms() / 1000)

    def changed(self, pod: SchedulerPod) -> None:
        self._view.changed(pod, at_s=self._clock.wall_ms() / 1000)

    def blind(self, blind: bool) -> None:  # noqa: FBT001
        self._view.blind(blind, now_s=self._clock.mono_ns() / 1e9)
