"""Follows all pods with a watch of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import aclosing

from slacktide.agents.cluster.descheduler.cluster import Cluster
from slacktide.agents.cluster.descheduler.pod import SeenPod, seen
from slacktide.agents.cluster.descheduler.pod_object import PodObject
from slacktide.agents.kubernetes import PODS, ApiServer, Changed, Gone, Over, Trouble, Whole, follow
from slacktide.schemas.errors import BadMessageError

log = logging.getLogger(__name__)

YIELD_EVERY = 100
"""Pods between two yields to the event loop."""


class PodSource:
    """Follows pods."""

    def __init__(self, cluster: Cluster) -> None:
        self.trouble = "pods were not listed yet"
        """Why pods cannot be read; "": they can."""
        self._cluster = cluster

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        async with aclosing(follow(api, PODS, PodObject)) as events:
            async for event in events:
                match event:
                    case Trouble(why=why):
                        self.trouble = why
                        continue
                    case Whole(items=items):
                        self._cluster.whole(await _all(items))
                    case Changed(object=item):
                        if (pod := _read(item)) is not None:
                            self._cluster.changed(pod)
                    case Gone(name=name, namespace=namespace):
                        self._cluster.gone((namespace, name))
                    case Over():
                        pass
                self.trouble = ""


async def _all(items: Iterable[PodObject]) -> list[SeenPod]:
    pods = []
    for number, item in enumerate(items, 1):
        if (pod := _read(item)) is not None:
            pods.append(pod)
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
    return pods


def _read(item: PodObject) -> SeenPod | None:
    """None: the pod is invalid, which is logged; one invalid pod must not hide the others."""
    try:
        return seen(item.plain())
    except BadMessageError as exc:
        name = f"{item.metadata.namespace}/{item.metadata.name}"
        log.warning("ignored an invalid pod, which is never evicted", extra={"pod": name, "why": str(exc)})
        return None
