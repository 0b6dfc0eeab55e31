"""Leader election with a Lease, as in client-go; runs the leader's work while the lease is held.

Source: k8s.io/client-go, tools/leaderelection. A lease expires when it was not renewed for its duration, by the
    observer's clock; the times in it are informative. One difference: each acquisition counts as a transition, also by
    the former holder, so that no two terms share a number.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import CONFLICT, LEASES, NOT_FOUND, ApiError, ApiRefusedError, IgnoreStatus
from slacktide.schemas.bounds import INT32_MAX
from slacktide.streams.tasks import ended, given_up

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Durations of the lease, in seconds."""

    duration_s: int = 15
    renew_deadline_s: float = 10.0
    """A leader that cannot renew within this time stops, before another may lead."""
    retry_s: float = 2.0


TIMING = Timing()


class LeaseSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The used fields of a Lease's spec."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The used metadata, with the resource version against concurrent writes."""

    name: str
    namespace: str
    resource_version: str = ""


class Lease(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Lease."""

    metadata: LeaseMetadata
    spec: LeaseSpec = LeaseSpec()
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The lease when it last changed."""

    spec: LeaseSpec
    at_s: float
    """Monotonic."""


def seen(before: Seen | None, spec: LeaseSpec, now_s: float) -> Seen:
    """Update the observation."""
    return before if before is not None and before.spec == spec else Seen(spec=spec, at_s=now_s)


def is_held(seen: Seen, me: str, now_s: float) -> bool:
    """Return whether another replica leads."""
    holder = seen.spec.holder_identity
    duration_s = seen.spec.lease_duration_seconds or TIMING.duration_s
    return bool(holder) and holder != me and now_s < seen.at_s + duration_s


def gained(spec: LeaseSpec | None, me: str, wall_ms: int, duration_s: int) -> LeaseSpec:
    """Return the spec to write to acquire the lease; ``spec`` None: there is no lease yet."""
    transitions = 0 if spec is None else (spec.lease_transitions or 0) + 1
    now = micro_time(wall_ms)
    return LeaseSpec(
        holder_identity=me,
        lease_duration_seconds=duration_s,
        acquire_time=now,
        renew_time=now,
        lease_transitions=transitions,
    )


def renewed(spec: LeaseSpec, wall_ms: int, transitions: int) -> LeaseSpec:
    """Return the spec to write to renew the lease."""
    return msgspec.structs.replace(spec, renew_time=micro_time(wall_ms), lease_transitions=transitions)


def released(spec: LeaseSpec, wall_ms: int) -> LeaseSpec:
    """Return the spec to write to release the lease."""
    return msgspec.structs.replace(spec, holder_identity="", lease_duration_seconds=1, renew_time=micro_time(wall_ms))


def epoch_of(transitions: int, epoch_in_log: int) -> int:
    """Return the writer epoch of a term: above all epochs in Kafka, even if the lease was deleted.

    ``epoch_in_log``: the highest epoch in policy and inventory records; 0 is a writer without Kubernetes.
    """
    return min(max(transitions, epoch_in_log) + 1, INT32_MAX)


def micro_time(wall_ms: int) -> str:
    """UTC as Kubernetes' MicroTime."""
    when = datetime.fromtimestamp(wall_ms / 1_000, UTC)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


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
        self.transitions = 0
        """Of the lease while it is held."""
        self._me, self._clock, self._timing = me, clock, timing
        self._seen: Seen | None = None
        self._held: Lease | None = None
        self._writing = asyncio.Lock()

    async def count_from(self, transitions: int) -> None:
        """Raise the number of transitions while leading. Raises ApiError if the write failed."""
        self.transitions = max(self.transitions, transitions)
        await self._renew()

    async def run(self, stop: asyncio.Event, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the lease and run ``lead`` while it is held, repeatedly until ``stop`` is set.

        Raises:
            Exception: whatever ``lead`` raised; the lease is released first.
        """
        try:
            while not stop.is_set():
                if await self._gain():
                    log.info("leading", extra={"lease": self._metadata.name, "transitions": self.transitions})
                    await self._lead(stop, lead)
                stopping = asyncio.ensure_future(stop.wait())
                await asyncio.wait({stopping}, timeout=self._timing.retry_s)
                given_up(stopping)
        finally:
            await self._release()

    async def _gain(self) -> bool:
        lease: Lease | None = None
        try:
            with IgnoreStatus(NOT_FOUND):
                lease = await self._api.get(LEASES, self._metadata.name, Lease, namespace=self._metadata.namespace)
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
        self.transitions = spec.lease_transitions or 0
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
                given_up(stopping)
                left_s = renewed_s + self._timing.renew_deadline_s - mono_s(self._clock)
                if left_s <= 0 or self._held is None:
                    log.warning("lost the lease", extra={"lease": self._metadata.name, "why": self.trouble})
                    self.leader = ""
                    return
                if await self._renewed_within(left_s):
                    renewed_s = mono_s(self._clock)
        finally:
            self.leading = False
            await ended(leading)
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
            spec = renewed(self._held.spec, self._clock.wall_ms(), self.transitions)
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
