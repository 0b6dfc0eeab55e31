"""Follows the cluster's pods, by a watch of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from typing import Any

from slacktide.agents.cluster.descheduler.cluster import Cluster
from slacktide.agents.cluster.descheduler.pod import SeenPod, seen
from slacktide.agents.kubernetes import PODS, ApiServer, Changed, Gone, Over, Trouble, Whole, follow
from slacktide.schemas.errors import BadMessageError

log = logging.getLogger(__name__)


class PodSource:
    """Says which pods there are."""

    def __init__(self, cluster: Cluster) -> None:
        self.trouble = "pods were not listed yet"
        """Why nothing is heard; "" where it is."""
        self._cluster = cluster

    async def run(self, api: ApiServer) -> None:
        """For ever."""
        async with aclosing(follow(api, PODS, dict[str, Any])) as telling:
            async for told in telling:
                match told:
                    case Trouble(why=why):
                        self.trouble = why
                        continue
                    case Whole(items=items):
                        self._cluster.whole(_read(items))
                    case Changed(object=item):
                        self._changed(item)
                    case Gone(name=name, namespace=namespace):
                        self._cluster.gone((namespace, name))
                    case Over():
                        pass
                self.trouble = ""

    def _changed(self, item: dict[str, Any]) -> None:
        for pod in _read([item]):
            self._cluster.changed(pod)


def _read(items: Iterable[dict[str, Any]]) -> Iterator[SeenPod]:
    """One that cannot be read does not go, and is said: what one user writes may not hide everybody's pods."""
    for item in items:
        try:
            yield seen(item)
        except BadMessageError as exc:
            metadata = item.get("metadata") or {}
            name = f"{metadata.get('namespace')}/{metadata.get('name')}"
            log.warning("a pod cannot be read, and is never evicted here", extra={"pod": name, "why": str(exc)})
