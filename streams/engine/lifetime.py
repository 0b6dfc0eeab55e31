"""What a session shares with all that runs an app: it lasts until it fails, or is asked to stop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from slacktide.streams.tasks import ended


class Lifetime:
    """The time until the first error."""

    def __init__(self) -> None:
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it has failed; it never has a result."""

    @property
    def failed(self) -> bool:
        """Check whether it has failed, and answers nothing more."""
        return self.failure.done()

    def fail(self, error: BaseException) -> None:
        """End because of an error in one of its tasks; the first one counts."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def forget_failure(self) -> None:
        """Note that the error was logged, or preceded by another one."""
        if not self.failure.cancel():
            self.failure.exception()

    async def until(self, stop: asyncio.Event, work: Coroutine[Any, Any, Any] | None = None) -> bool:
        """Run ``work`` until it ends, ``stop`` is set, or an error comes. Without ``work``, only wait.

        Returns whether ``work`` is done. Raises the error, LogError if Kafka has failed; or any error of ``work``.
        """
        stopped = asyncio.ensure_future(stop.wait())
        working = asyncio.ensure_future(work) if work else None
        waited = [task for task in (stopped, working, self.failure) if task]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(*(task for task in (stopped, working) if task))
        if self.failure.done():
            self.failure.result()
        if working and working.done() and not working.cancelled():
            working.result()
            return True
        return False
