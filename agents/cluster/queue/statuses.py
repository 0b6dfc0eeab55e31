"""Writes the status of ClusterQueues and LocalQueues where Slacktide admits, each at most once in two seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.queue import metrics
from slacktide.agents.cluster.queue.actuator import Actuator
from slacktide.agents.cluster.queue.source import Source
from slacktide.agents.cluster.queue.status import Json, Queue, statuses
from slacktide.agents.kubernetes import ApiError, ApiRefusedError, ApiServer, Resource
from slacktide.schemas.errors import CaseError
from slacktide.schemas.queue_objects import SoldObject

log = logging.getLogger(__name__)

PAUSE_S = 2.0
SHARE = 0.05
"""Maximum share of a core: with 50,000 workloads a pass takes a quarter of a second."""


class Statuses:
    """Writes statuses during one leader term."""

    def __init__(
        self, source: Source, actuator: Actuator, sold: Callable[[], Iterable[SoldObject]], clock: Clock
    ) -> None:
        self._source, self._actuator, self._sold, self._clock = source, actuator, sold, clock
        self._seen: tuple[int, int] | None = None

    async def run(self, api: ApiServer, served: Callable[[], Mapping[str, Resource]]) -> None:
        """Write statuses until cancelled, of the kinds that ``served`` returns; none while nothing may be written."""
        took_s = 0.0
        while True:
            await asyncio.sleep(max(PAUSE_S, took_s / SHARE))
            kinds, seen = served(), (self._source.changes, self._actuator.changes)
            if not kinds or seen == self._seen:
                continue
            begun_ns = self._clock.mono_ns()
            try:
                due = self._due()
                took_s = (self._clock.mono_ns() - begun_ns) / 1e9
                for queue, status in due:
                    await self._write(api, kinds[queue.kind], queue, status)
                self._seen = seen
            except CaseError as exc:
                self._seen = seen
                log.warning("the status of queues is not written", extra={"why": str(exc)})
            except ApiError as exc:
                log.info("cannot write the status of queues", extra={"why": str(exc)})

    def _due(self) -> list[tuple[Queue, Json]]:
        source = self._source
        works = {uid: work for uid, (_, work) in source.works.items()}
        objects = [*source.objects, *self._sold()]
        made = statuses(objects, works, self._actuator.states, source.stands, self._clock.wall_ms())
        return [(one, status) for one, status in made.items() if not status.items() <= self._stands(one).items()]

    def _stands(self, one: Queue) -> Json:
        return self._source.stands.get(one, {})

    async def _write(self, api: ApiServer, kind: Resource, queue: Queue, status: Json) -> None:
        result = "done"
        try:
            await api.patch(kind, queue.name, {"status": status}, dict, namespace=queue.namespace, sub="status")
            self._source.stands[queue] = {**self._stands(queue), **status}
        except ApiRefusedError as exc:
            result = "refused"
            log.info("the API server rejected the status of a queue", extra={"queue": queue, "why": str(exc)})
        except ApiError:
            result = "away"
            raise
        finally:
            metrics.WRITES.labels("status", result).inc()
