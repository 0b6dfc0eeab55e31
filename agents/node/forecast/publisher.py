"""Saves a node's models in the state folder, and publishes them to Kafka for the stream workers.

A start restores them from the file, else from the node's newest record of the last hour. Each record has its own
connection, since records are rare and idle connections cost the broker memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from slacktide.agents.clock import Clock
from slacktide.agents.metrics import AgentMetrics
from slacktide.agents.node.envelopes import of_forecast
from slacktide.agents.node.forecast.trainer import Trainer
from slacktide.agents.node.link import Line
from slacktide.agents.node.state import State
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.forecast import NodeForecast
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.topics import FORECAST
from slacktide.streams.kafka import Refused, Sender, read_topic
from slacktide.streams.records import Out

log = logging.getLogger(__name__)

LOOK_S = 1.0
RECALL_MS = 3_600_000
"""How far back a start without a file reads. The topic keeps two days of all nodes."""


class ForecastPublisher:
    """Publishes each forecast that is due."""

    def __init__(  # noqa: PLR0913 - each is a different outside thing
        self,
        trainer: Trainer,
        *,
        node: str,
        state: State,
        colocation: Callable[[], Colocation],
        bootstrap: Cluster,
        sign: Callable[[Out], Out],
        refuse: Callable[[Out, str], None],
        metrics: AgentMetrics,
        clock: Clock,
    ) -> None:
        self._trainer = trainer
        self._node = node
        self._state = state
        self._colocation = colocation
        self._bootstrap = bootstrap
        self._sign = sign
        self._refuse = refuse
        self._metrics = metrics
        self._clock = clock
        self._line = Line("forecasts")
        kept = state.forecast()
        self._recalled = kept is not None
        """Whether the models are restored, so that Kafka need not be read."""
        if kept is not None:
            self._restore(kept)

    async def run(self) -> None:
        """Publish what is due each second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                if not self._recalled:
                    await self._recall()
                if (forecast := self._trainer.due(self._colocation())) is not None:
                    await self._publish(forecast)
            except LogError as exc:
                await self._line.broke(exc)

    def close(self) -> None:
        """Save the models for the next start, if there are any."""
        if self._trainer.trained:
            self._state.keep_forecast(self._trainer.forecast())

    async def _recall(self) -> None:
        """Restore the models from the node's newest record. Raise LogError if the topic cannot be read."""
        newest, since_ms = None, max(0, self._clock.wall_ms() - RECALL_MS)
        async with aclosing(read_topic(self._bootstrap, FORECAST.name, since_ms=since_ms, key=self._node)) as records:
            async for record in records:
                newest = record
        self._recalled = True
        if newest is None or newest.value is None:
            return
        try:
            self._restore(decode(newest.value, NodeForecast))
        except BadMessageError as exc:
            log.warning("the node's forecast cannot be read; new models are trained", extra={"why": str(exc)})

    def _restore(self, forecast: NodeForecast) -> None:
        if refused := self._trainer.restore(forecast):
            log.warning("models cannot be read; new models are trained", extra={"of": refused})

    async def _publish(self, forecast: NodeForecast) -> None:
        """Publish a forecast. Raise LogError if that fails; a newer one follows later."""
        self._state.keep_forecast(forecast)
        sender = Sender(self._bootstrap, client_id=f"slacktide-agent-{self._node}", acks=FORECAST.acks)
        try:
            await sender.connect([FORECAST.name])
            self._metrics.connected("forecasts")
            results = await sender.send_each([self._sign(of_forecast(forecast))])
        except LogError:
            self._trainer.owe()
            raise
        finally:
            await sender.close()
        self._line.works()
        for one in results:
            if isinstance(one, Refused):
                self._refuse(one.out, one.why)
