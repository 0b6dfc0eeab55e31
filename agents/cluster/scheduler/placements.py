"""Publishes placements without delaying responses to the kube-scheduler."""

from collections import OrderedDict
from collections.abc import Callable

from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.publisher import Outbox
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.topics import DEAD_LETTER, PLACEMENT
from slacktide.streams.records import event

SOURCE = "scheduler"
AGAIN_MS = 60_000
"""An unchanged placement of a pending pod is published at most once in this time."""
REMEMBERED = 10_000
"""Pending pods for which that applies; others are published at each request."""


class Placements(Outbox):
    """Queues placements and dead letters.

    Close it at shutdown: without the rest of the placements, another replica would report pods.
    """

    def __init__(self, bootstrap: Cluster, now_ms: Callable[[], int]) -> None:
        topics, dropped = (PLACEMENT.name, DEAD_LETTER.name), metrics.DROPPED_PLACEMENTS.inc
        super().__init__(bootstrap, topics, now_ms, source=SOURCE, acks="1", dropped=dropped)
        self._waits: OrderedDict[str, tuple[object, int]] = OrderedDict()

    def publish(self, placement: PodPlacement) -> None:
        """Queue a placement, unless the same was just published of a pending pod."""
        uid, at_ms = placement.pod_uid, placement.decided_ms
        before, published_ms = self._waits.get(uid, (None, 0))
        why = tuple((one.reason, one.count) for one in placement.refused)
        if not placement.passed and before == why and at_ms < published_ms + AGAIN_MS:
            return
        self._waits.pop(uid, None)
        if not placement.passed:
            self._waits[uid] = why, at_ms
        while len(self._waits) > REMEMBERED:
            self._waits.popitem(last=False)
        event_id = f"placement/{uid}/{at_ms}"
        self.put(event(PLACEMENT.name, uid, encode(placement), source=SOURCE, event_id=event_id, event_ms=at_ms))
