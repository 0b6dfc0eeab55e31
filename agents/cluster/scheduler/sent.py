"""Follows placements by other replicas and earlier runs: these pods count on their nodes until they are bound.

Without them, an extender that starts during a burst would send further pods to full nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.scheduler.view import BINDING_S, View
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.topics import PLACEMENT
from slacktide.streams.kafka import Following, TailReader
from slacktide.streams.records import Record

POLL_S = 0.1


class Sent:
    """Reads placements that may not be bound yet.

    ``own``: whether this process placed the pod of this uid; then it knows more than the record.
    ``pods_known``: whether pods were listed; before that a placed pod's requests are unknown.
    ``leave`` is called for each placement with the pod's uid and its time, UTC epoch in ms.
    """

    def __init__(
        self,
        cluster: Cluster,
        view: View,
        own: Callable[[str], bool],
        pods_known: Callable[[], bool],
        clock: Clock,
        leave: Callable[[str, int], None],
    ) -> None:
        self.whole = False
        """Whether all earlier placements were read."""
        self._reader = TailReader(
            cluster,
            (PLACEMENT.name,),
            client_id="slacktide-scheduler-sent",
            back_ms=round(BINDING_S * 1000),
            now_ms=clock.wall_ms,
        )
        self._following = Following(self._reader, away="pods that other replicas placed are not counted", clock=clock)
        self._view = view
        self._own = own
        self._pods_known = pods_known
        self._leave = leave
        self._clock = clock

    @property
    def trouble(self) -> str:
        """Why placements cannot be read; "": they can."""
        return self._following.trouble

    async def run(self) -> None:
        """Run until cancelled."""
        while not self._pods_known():  # noqa: ASYNC110 - a plain value, filled by the watch
            await asyncio.sleep(POLL_S)
        await self._following.run(lambda: None, self._read)

    async def _read(self, records: list[Record], now_s: float) -> None:
        now_ms = self._clock.wall_ms()
        for record in records:
            try:
                placement = decode(record.value, PodPlacement)
            except BadMessageError:  # an invalid record does not count
                continue
            self._leave(placement.pod_uid, placement.decided_ms)
            if not self._own(placement.pod_uid):
                self._take(placement, now_s=now_s, age_s=max(0, now_ms - record.timestamp_ms) / 1000)
        if not self.whole and await self._reader.caught_up():
            self.whole = True

    def _take(self, placement: PodPlacement, *, now_s: float, age_s: float) -> None:
        node = placement.best[0].node if placement.passed and placement.best else ""
        self._view.sent(
            (placement.namespace, placement.name),
            placement.pod_uid,
            node,
            until_s=now_s + BINDING_S - age_s,
            at_s=self._clock.wall_ms() / 1000 - age_s,
        )
