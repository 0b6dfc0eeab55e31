"""Leader election with a Lease, as in client-go. Pure.

Source: k8s.io/client-go, tools/leaderelection. A lease expires when it was not renewed for its duration, by the
    observer's clock; the times in it are informative. One difference: each acquisition counts as a transition, also by
    the former holder, so that no two terms share a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from slacktide.schemas.bounds import INT32_MAX


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
