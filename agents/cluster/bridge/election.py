"""Acquires and renews the lease, and runs the leader's work while it is held."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.bridge.lease import (
    TIMING,
    Lease,
    LeaseMetadata,
    LeaseSpec,
    Seen,
    Timing,
    gained,
    is_held,
    released,
    renewed,
    seen,
)
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import CONFLICT, LEASES, NOT_FOUND, ApiError, ApiRefusedError, IgnoreStatus

log = logging.getLogger(__name__)


class Election:
    """One replica's part in leader election. ``me`` is its unique name."""

    def __init__(
        self, api: ApiServer, *, namespace: str, name: str, me: str, clock: Clock, timing: Timing = TIMING
    ) -> None:
        self.trouble = "the lease has not been read yet"
        """Why the lease is unknown; "": it is known."""
        self.leader = ""
        self._api = api
        self._metadata = LeaseMetadata(namespace=namespace, name=name)
        self.leading = False
        self._me, self._clock, self._timing = me, clock, timing
        self._seen: Seen | None = None
        self._held: Lease | None = None
        self._transitions = 0
        self._writing = asyncio.Lock()

    @property
    def transitions(self) -> int:
        """Transitions of the lease while it is held."""
        return self._transitions

    async def count_from(self, transitions: int) -> None:
        """Raise the number of transitions while leading. Raises ApiError if the write failed."""
        self._transitions = max(self._transitions, transitions)
        await self._renew()

    async def run(self, stop: asyncio.Event, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the lease and run ``lead`` while it is held, repeatedly until ``stop`` is set.

        Raises:
            Exception: whatever ``lead`` raised; the lease is released first.
        """
        try:
            while not stop.is_set():
                if await self._gain():
                    log.info("leading", extra={"lease": self._metadata.name, "transitions": self._transitions})
                    await self._lead(stop, lead)
                await _rest(stop, self._timing.retry_s)
        finally:
            await self._release()

    async def _gain(self) -> bool:
        try:
            lease = await self._read()
            now_s = mono_s(self._clock)
            if lease is not None:
                self._seen = seen(self._seen, lease.spec, now_s)
                self.leader, self.trouble = lease.spec.holder_identity or "", ""
                if is_held(self._seen, self._me, now_s):
                    return False
            spec = gained(
                None if lease is None else lease.spec, self._me, self._clock.wall_ms(), self._timing.duration_s
            )
            self._held = await self._write(self._metadata if lease is None else lease.metadata, spec)
        except ApiError as exc:
            self._failed(exc)
            return False
        self._transitions = spec.lease_transitions or 0
        self.leader, self.trouble = self._me, ""
        return True

    async def _lead(self, stop: asyncio.Event, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Work until ``stop`` is set, the work ends, or the lease could not be renewed in time."""
        leading = asyncio.create_task(lead())
        self.leading = True
        renewed_s = mono_s(self._clock)
        try:
            while not stop.is_set() and not leading.done():
                await asyncio.wait({leading, stopping := asyncio.ensure_future(stop.wait())},
                                   timeout=self._timing.retry_s, return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
                stopping.cancel()
                left_s = renewed_s + self._timing.renew_deadline_s - mono_s(self._clock)
                if left_s <= 0 or self._held is None:
                    log.warning("lost the lease", extra={"lease": self._metadata.name, "why": self.trouble})
                    self.leader = ""
                    return
                if await self._renewed_within(left_s):
                    renewed_s = mono_s(self._clock)
        finally:
            self.leading = False
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
        if not stop.is_set():
            leading.result()

    async def _renewed_within(self, left_s: float) -> bool:
        try:
            async with asyncio.timeout(left_s):
                await self._renew()
        except ApiError as exc:
            self._failed(exc)
            if isinstance(exc, ApiRefusedError) and exc.status in {NOT_FOUND, CONFLICT}:
                self._held = None  # another replica wrote it, or it was deleted
            return False
        except TimeoutError:
            self.trouble = "the lease could not be renewed in time"
            return False
        self.trouble = ""
        return True

    async def _renew(self) -> None:
        async with self._writing:  # one at a time: each needs the resource version of the previous write
            assert self._held is not None, "leading"
            spec = renewed(self._held.spec, self._clock.wall_ms(), self._transitions)
            self._held = await self._write(self._held.metadata, spec)

    async def _release(self) -> None:
        """Release the lease, if held, so that another replica need not wait for its expiry."""
        held, self._held = self._held, None
        if held is None or held.spec.holder_identity != self._me:
            return
        try:
            await self._write(held.metadata, released(held.spec, self._clock.wall_ms()))
        except ApiError as exc:
            log.info("cannot release the lease; it will expire", extra={"why": str(exc)})

    async def _read(self) -> Lease | None:
        with IgnoreStatus(NOT_FOUND):
            return await self._api.get(LEASES, self._metadata.name, Lease, namespace=self._metadata.namespace)
        return None

    async def _write(self, metadata: LeaseMetadata, spec: LeaseSpec) -> Lease:
        lease = Lease(metadata=metadata, spec=spec)
        if not metadata.resource_version:
            return await self._api.create(LEASES, lease, Lease, namespace=metadata.namespace)
        return await self._api.replace(LEASES, metadata.name, lease, Lease, namespace=metadata.namespace)

    def _failed(self, exc: ApiError) -> None:
        if isinstance(exc, ApiRefusedError) and exc.status == CONFLICT:
            return  # another replica was faster
        if not self.trouble:
            log.warning("cannot reach the lease", extra={"why": str(exc)})
        self.trouble = str(exc)


async def _rest(stop: asyncio.Event, for_s: float) -> None:
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({stopping}, timeout=for_s)
    stopping.cancel()
