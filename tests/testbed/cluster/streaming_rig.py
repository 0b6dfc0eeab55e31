"""Parts of the product on the test's own loop, beside a stream that says what it is told to, again and again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import Any, Self

from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.health import Health
from slacktide.schemas.message import Message
from slacktide.schemas.topics import Topic
from slacktide.streams.kafka import Sender, read_topic
from slacktide.streams.records import Out, Record

SAID_S = 0.3
GIB = 2**30


class Replica:
    """One part at work."""

    def __init__(self, run: Callable[[Any, asyncio.Event, Health], Coroutine[Any, Any, None]], settings: Any) -> None:
        self.health = Health()
        self._stop = asyncio.Event()
        self._running = asyncio.create_task(run(settings, self._stop, self.health))

    async def ready(self) -> None:
        async with asyncio.timeout(60):
            while self.health.not_ready:
                assert not self._running.done(), self._running.exception()
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """As SIGTERM does; nothing if it was killed."""
        if self._running.cancelled():
            return
        self._stop.set()
        async with asyncio.timeout(60):
            await self._running

    async def kill(self) -> None:
        """At once; the lease is given back all the same, where it can be."""
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running


class StreamingRig:
    """What a test has of a broker; ``said`` is all that the stream says of nodes now."""

    topics: tuple[Topic, ...]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._replicas: list[Replica] = []

    def said(self) -> Iterable[tuple[Topic, Message]]:
        raise NotImplementedError

    async def _stream(self) -> None:
        sender = Sender(Cluster(self.bootstrap), client_id="test-stream", acks="all")
        try:
            while True:
                with contextlib.suppress(LogError):  # the broker is away
                    if not sender.connected:
                        await sender.connect([topic.name for topic in self.topics])
                    await sender.send(
                        [Out(topic=topic.name, key=one.node.encode(), value=encode(one)) for topic, one in self.said()]
                    )
                await asyncio.sleep(SAID_S)
        finally:
            await sender.close()

    @contextlib.asynccontextmanager
    async def streaming(self) -> AsyncIterator[Self]:
        """The stream runs; parts are started by the test."""
        streaming = asyncio.create_task(self._stream())
        try:
            yield self
        finally:
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)
            await self.close()

    async def put(self, record: Out) -> None:
        sender = Sender(Cluster(self.bootstrap), client_id="test", acks="all", timeout_s=5)
        await sender.connect([record.topic])
        await sender.send([record])
        await sender.close()

    async def records(self, topic: str, key: str | None = None) -> list[Record]:
        async with aclosing(read_topic(Cluster(self.bootstrap), topic, key=key)) as records:
            return [record async for record in records]

    async def close(self) -> None:
        """End what still runs of it."""
        raise NotImplementedError
