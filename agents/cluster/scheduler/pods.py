"""Follows the cluster's pods, for where they are bound, by a watch of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from typing import Any

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.scheduler.pod import SeenPod, seen
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.kubernetes import PODS, ApiServer, Changed, Gone, Trouble, Whole, follow
from slacktide.schemas.errors import BadMessageError

log = logging.getLogger(__name__)


class PodSource:
    """Keeps the pods of the view."""

    def __init__(self, view: View, clock: Clock) -> None:
        self.trouble = "pods were not listed yet"
        """Why nothing is read; "" where it is."""
        self.whole = False
        """Whether it was ever known what there is."""
        self._view = view
        self._clock = clock

    async def run(self, api: ApiServer) -> None:
        """For ever."""
        async with aclosing(follow(api, PODS, dict[str, Any])) as events:
            async for event in events:
                at_s = self._clock.wall_ms() / 1000
                self._view.blind(isinstance(event, Trouble), now_s=self._clock.mono_ns() / 1e9)
                match event:
                    case Trouble(why=why):
                        if not self.trouble:
                            log.warning("the API server does not list pods", extra={"why": why})
                        self.trouble = why
                        continue
                    case Whole(items=items):
                        self._view.whole(_read(items), at_s=at_s)
                        self.whole = True
                    case Changed(object=item):
                        for pod in _read([item]):
                            self._view.changed(pod, at_s=at_s)
                    case Gone(name=name, namespace=namespace):
                        self._view.gone((namespace, name))
                self.trouble = ""


def _read(items: Iterable[dict[str, Any]]) -> Iterator[SeenPod]:
    """One that cannot be read counts nowhere, and is logged: what one user writes may not hide everybody's pods."""
    for item in items:
        try:
            yield seen(item)
        except BadMessageError as exc:
            metadata = item.get("metadata") or {}
            name = f"{metadata.get('namespace')}/{metadata.get('name')}"
            log.warning("a pod cannot be read, and counts nowhere", extra={"pod": name, "why": str(exc)})
