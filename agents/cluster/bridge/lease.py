"""Who of several replicas leads: what one does about the Lease that it sees. As client-go's leader election does it.

Reading: k8s.io/client-go, tools/leaderelection. A lease is over when nobody has renewed it for its duration, by the
clock of whoever looks: the times in it are for people. Ours differs in one thing: each gain counts as a transition,
also by whoever held it before, so that no two terms share a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from slacktide.schemas.bounds import INT32_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a lease holds, in seconds."""

    duration_s: int = 15
    renew_deadline_s: float = 10.0
    """Whoever could not renew for so long leads no more: well before another may."""
    retry_s: float = 2.0


TIMING = Timing()


class LeaseSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What of a Lease's spec is read and written."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What of its metadata is: a version, so that two who write at once do not both succeed."""

    name: str
    namespace: str
    resource_version: str = ""


class Lease(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The object."""

    metadata: LeaseMetadata
    spec: LeaseSpec = LeaseSpec()
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The lease as it was when it last looked different."""

    spec: LeaseSpec
    at_s: float
    """Monotonic."""


def seen(before: Seen | None, spec: LeaseSpec, now_s: float) -> Seen:
    """Look at it once more."""
    return before if before is not None and before.spec == spec else Seen(spec=spec, at_s=now_s)


def is_held(seen: Seen, me: str, now_s: float) -> bool:
    """Whether another one leads."""
    holder = seen.spec.holder_identity
    duration_s = seen.spec.lease_duration_seconds or TIMING.duration_s
    return bool(holder) and holder != me and now_s < seen.at_s + duration_s


def gained(spec: LeaseSpec | None, me: str, wall_ms: int, duration_s: int) -> LeaseSpec:
    """What to write to lead from now on; None: there is no lease yet."""
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
    """What to write to go on leading, in the term of this number."""
    return msgspec.structs.replace(spec, renew_time=micro_time(wall_ms), lease_transitions=transitions)


def released(spec: LeaseSpec, wall_ms: int) -> LeaseSpec:
    """What to write so that another may lead at once."""
    return msgspec.structs.replace(spec, holder_identity="", lease_duration_seconds=1, renew_time=micro_time(wall_ms))


def epoch_of(transitions: int, epoch_in_log: int) -> int:
    """The writer epoch of a term: above all that the log has seen, also where the lease itself was deleted.

    Args:
        transitions: of the lease, as gained.
        epoch_in_log: the highest that any record of policy or inventory carries; 0 is a writer without Kubernetes.

    """
    return min(max(transitions, epoch_in_log) + 1, INT32_MAX)


def micro_time(wall_ms: int) -> str:
    """UTC as Kubernetes' MicroTime writes it."""
    when = datetime.fromtimestamp(wall_ms / 1_000, UTC)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")
