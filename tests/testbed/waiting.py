"""Waiting for what comes about on its own: never without an end, and a failure shows what came instead."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from testbed.parts import Part

T = TypeVar("T")
SHOWN_CHARS = 2_000


async def soon(
    ask: Callable[[], Awaitable[T]],
    what: str,
    within_s: float = 60.0,
    *,
    enough: Callable[[T], object] = bool,
    part: Part | None = None,
) -> T:
    """Ask until it is enough; returns that answer.

    Args:
        ask: what is asked each tenth of a second.
        what: is waited for.
        within_s: how long.
        enough: whether an answer will do.
        part: that it depends on: once it has ended nobody waits any longer.

    Raises:
        AssertionError: it does not come; with the last answer, and the end of the part's log.

    """
    until_s = time.monotonic() + within_s
    while not enough(answer := await ask()):
        seen = f"{what}: last seen: {_ends(str(answer))}"
        if part is not None:
            assert part.running, f"{seen}\n{part.name} ended:\n{part.last_words()}"
            seen += f"\n{part.name} runs:\n{part.last_words()}"
        assert time.monotonic() < until_s, f"not within {within_s:g} s: {seen}"
        await asyncio.sleep(0.1)
    return answer


def _ends(text: str) -> str:
    """Begin and end of a long text: what came last tells most."""
    half = SHOWN_CHARS // 2
    return text if len(text) <= SHOWN_CHARS else f"{text[:half]} ... {text[-half:]}"
