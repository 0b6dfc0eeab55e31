"""A Faust app of one role: its settings, its start, and its end.

Faust manages the group, rebalances, flow control and supervision. Two methods replace Faust's own:

* ``App._create_directories``: stock Faust makes a folder for tables, which are not used here.
* ``TableManager.on_start``: stock Faust waits a second for tables to be declared.

A crashed app is not repaired: the session ends, and the next one has a new app.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

import faust
from aiokafka.errors import KafkaError
from faust.app.base import BootStrategy
from faust.exceptions import ConsumerNotStarted
from faust.tables.manager import TableManager

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.engine.transport import WHOLE_BYTES_MAX, Consumer, Owner, Transport
from slacktide.streams.records import Place
from slacktide.streams.tasks import given_up, unwatched

COMMIT_EVERY_S = 1.0
BEATS = 6
STOP_S = 30.0
"""A session may end slowly on a busy machine. The stop of a process has a shorter limit."""
BUFFER_MAX = 1_000
"""Never full: Faust would pause partitions."""


class Session(Owner, Protocol):
    """What runs an app: it answers turns until it fails or is asked to stop."""

    def assigned(self, places: frozenset[Place], generation: int) -> None:
        """Note the places of this generation of the group."""

    def revoked(self) -> None:
        """Note a rebalance; ``assigned`` follows."""

    async def until(self, stop: asyncio.Event, work: Any = None) -> bool:
        """Run ``work`` until it ends, ``stop`` is set, or the session fails."""


class App(faust.App):
    """The app of one member of a consumer group."""

    def __init__(
        self,
        group: str,
        session: Session,
        bootstrap: Cluster,
        session_timeout_ms: int,
        fetch_wait_ms: int,
        beats: int = BEATS,
    ) -> None:
        """Declare it. It sends ``beats`` heartbeats per session timeout: so it learns of a rebalance, too."""
        timeout_s = session_timeout_ms / 1_000
        super().__init__(
            group,
            broker=";".join(f"kafka://{place.strip()}" for place in bootstrap.addresses.split(",")),
            autodiscover=False,
            broker_commit_interval=COMMIT_EVERY_S,
            broker_heartbeat_interval=timeout_s / beats,
            broker_rebalance_timeout=timeout_s,
            broker_session_timeout=timeout_s,
            TableManager=_Tables,
            consumer_auto_offset_reset="earliest",
            consumer_max_fetch_size=WHOLE_BYTES_MAX,
            key_serializer="raw",
            value_serializer="raw",
            store="memory://",
            stream_buffer_maxsize=BUFFER_MAX,
            table_standby_replicas=0,  # otherwise Faust's assignor, which other members may lack
            topic_allow_declare=False,
            topic_disable_leader=True,
            web_enabled=False,
        )
        self.session = session
        self.transport = Transport(self, session, bootstrap, fetch_wait_ms)
        self.on_partitions_assigned.connect(self._assigned, weak=False)
        self.on_partitions_revoked.connect(self._revoked, weak=False)

    @property
    def member(self) -> Consumer:
        """Return the member of the group."""
        return cast("Consumer", self.consumer)

    async def attempt(self, work: Callable[..., Awaitable[None]], *given: Any) -> None:
        """Do work unless the session has failed; an error ends the session.

        Stock Faust drops the message, restarts the agent, and goes on with the next message.
        """
        if not self.session.failed:
            try:
                await work(*given)
            except Exception as exc:  # noqa: BLE001 - raised by the session's end
                self.session.fail(exc)

    async def run(self, stop: asyncio.Event, finish: Callable[[Consumer], Awaitable[None]] | None = None) -> None:
        """Run until ``stop`` is set, ``finish``, and leave the group.

        Raises LogError if Kafka failed; or any other error.
        """
        watching = asyncio.create_task(self._watch())
        try:
            if await self.session.until(stop, self.start()):
                await self.session.until(stop)
                if finish is not None:
                    await finish(self.member)
                await self.member.give_back()
        finally:
            given_up(watching)
            stopping = asyncio.ensure_future(self.stop())
            await asyncio.wait({stopping}, timeout=STOP_S)  # Faust's stop goes on after a cancel
            if not stopping.done():
                unwatched(stopping)
                raise RuntimeError(f"Faust did not stop within {STOP_S:g} s")
            stopping.result()

    async def _watch(self) -> None:
        """End the session when Faust crashes; Kafka errors count as outages."""
        await self._crashed.wait()
        reason = self.crash_reason
        if isinstance(reason, KafkaError | OSError | TimeoutError | ConsumerNotStarted):
            self.session.fail(LogError(f"Faust gave up: {reason or type(reason).__name__}"))
        else:
            self.session.fail(reason or RuntimeError("Faust crashed without a reason"))

    async def _assigned(self, _: Any, /, *places: Any, signal: Any, **__: Any) -> None:  # noqa: ARG002 - Faust's signature
        self.session.assigned(frozenset(Place(*place) for place in places[0]), self.consumer_generation_id)

    async def _revoked(self, _: Any, /, *__: Any, signal: Any, **___: Any) -> None:  # noqa: ARG002
        self.session.revoked()

    def _create_directories(self) -> None:
        """Create none."""


class _Tables(TableManager):
    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()


class _Boot(BootStrategy):
    enable_kafka_producer = False  # all streams share one sender for answers


App.BootStrategy = _Boot
for _service in (App, Consumer, _Tables):
    _service.logger = logging.getLogger("faust")
logging.getLogger("faust").setLevel(logging.WARNING)
logging.getLogger("mode").setLevel(logging.WARNING)
logging.getLogger("mode.timers").setLevel(logging.ERROR)  # a tick that is late is in the metrics
