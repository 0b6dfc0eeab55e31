"""Follows all pods and their nodes with a watch of its own."""

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
    """Updates the view's pods."""

    def __init__(self, view: View, clock: Clock) -> None:
        self.trouble = "pods were not listed yet"
        """Why pods cannot be read; "": they can."""
        self.whole = False
        """Whether a complete list was ever read."""
        self._view = view
        self._clock = clock

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        async with aclosing(follow(api, PODS, dict[str, Any])) as events:
            async for event in events:
                at_s = self._clock.wall_ms() / 1000
                self._view.blind(isinstance(event, Trouble), now_s=self._clock.mono_ns() / 1e9)
                match event:
                    case Trouble(why=why):
                        if not self.trouble:
                            log.warning("cannot list pods at the API server", extra={"why": why})
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
    """Valid pods. An invalid one is logged and skipped: it must not hide the others."""
    for item in items:
        try:
            yield seen(item)
        except BadMessageError as exc:
            metadata = item.get("metadata") or {}
            name = f"{metadata.get('namespace')}/{metadata.get('name')}"
            log.warning("ignored an invalid pod, which counts on no node", extra={"pod": name, "why": str(exc)})
