"""A flood of connections costs an HTTP server of ours no more than its bounds."""

import asyncio
from types import SimpleNamespace
from typing import Any

import aiohttp

from slacktide.agents.cluster import request_bounds
from slacktide.agents.cluster.scheduler.scheduler import serving

LACKING = "nothing is known yet"
NOBODY: Any = SimpleNamespace(filter=None, prioritize=None)
"""Who answers is not asked while something is lacking."""


async def half_open(port: int, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connections that begin a request and never end it."""
    found = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /filter HTTP/1.1\r\nHost: a\r\n")
        found.append((reader, writer))
    return found


async def closed(connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]], within_s: float) -> int:
    """How many of these the server closes within a time."""

    async def ends(reader: asyncio.StreamReader) -> bool:
        try:
            async with asyncio.timeout(within_s):
                return await reader.read(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    return sum(await asyncio.gather(*(ends(reader) for reader, _ in connections)))


async def test_half_open_connections_are_closed_and_others_answered() -> None:
    async with serving(NOBODY, lambda: LACKING, "127.0.0.1", 0) as port:
        flood = await half_open(port, request_bounds.CONNECTIONS_MAX + 50)
        async with aiohttp.ClientSession() as client:
            async with client.post(f"http://127.0.0.1:{port}/filter", data=b"{}") as answer:
                assert (answer.status, await answer.text()) == (503, LACKING)
            done = await closed(flood, request_bounds.FIRST_S + 10)
            async with client.post(f"http://127.0.0.1:{port}/filter", data=b"{}") as answer:
                assert answer.status == 503
    for _, writer in flood:
        writer.close()

    assert done == len(flood)


async def test_there_are_never_many_more_connections_than_the_bound() -> None:
    """Also of those that have asked once and then keep their connection."""
    async with serving(NOBODY, lambda: LACKING, "127.0.0.1", 0) as port:
        kept, refused = [], 0
        for _ in range(request_bounds.CONNECTIONS_MAX + 20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
            try:
                await reader.readuntil(LACKING.encode())
            except (ConnectionError, asyncio.IncompleteReadError):  # as good: it is not one more
                refused += 1
                writer.close()
            else:
                kept.append((reader, writer))
        done = await closed(kept, 3)
    for _, writer in kept:
        writer.close()

    assert done + refused >= 20


async def test_a_body_that_never_ends_is_given_up() -> None:
    async with serving(NOBODY, lambda: LACKING, "127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{")
        async with asyncio.timeout(request_bounds.REQUEST_S + 10):
            answer = await reader.readline()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 408 ")
