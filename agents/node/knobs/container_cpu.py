"""What one look at containers shows of their CPU."""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.schemas.sample import Missing

UNLIMITED_US = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCpu:
    """One container's CPU: what it may use now, and what it did since the previous look."""

    pod: str
    container: str
    quota_us: int
    """Per 100 ms; -1: unlimited."""
    pod_quota_us: int
    """The same of its pod."""
    used_milli: int | None = None
    """None: not known, as in a first look."""
    periods: int | None = None
    throttled_periods: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainersLook:
    """The containers that are there, and what could not be read."""

    containers: list[ContainerCpu]
    missing: list[Missing]
    calm: frozenset[str] = frozenset()
    """Uids of pods none of whose containers was throttled or held more than its limit for a while: left out."""
