"""PURE: the final check before a write: which knobs of which cgroups may be set to which values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT
from slacktide.schemas.inventory import Container, Pod
from slacktide.schemas.knob_table import KNOBS, PAGE_BYTES, GroupKind, Knob
from slacktide.streams.decisions.burst.node_burst import container_quota_us, may_burst, pod_quota_us
from slacktide.streams.decisions.knobs import runs_last


@dataclass(frozen=True, kw_only=True)
class Place:
    """The location and owner of a cgroup."""

    tier: str
    """As in ``hierarchy.TIERS``, by the cgroup's actual location."""
    base: PurePosixPath
    """The tier's or pod's cgroup, relative to each root."""
    inside: PurePosixPath
    """The container's cgroup relative to the pod's; ``.``: the pod or tier itself."""
    pod: Pod | None = None
    """None: a tier."""
    container: Container | None = None
    """None: a whole pod, or a tier."""

    @cached_property
    def path(self) -> PurePosixPath:
        """The cgroup, relative to each root."""
        return self.base / self.inside

    @cached_property
    def text(self) -> str:
        """The path as text."""
        return str(self.path)


def refusal(place: Place, knob: Knob, value: int | None) -> str:
    """Return why this value may not be written there; "": it may."""
    row = KNOBS[knob]
    if _kind(place) not in row.groups:
        return f"{knob} of {_named(place)} is never written"
    if knob == "cpu_idle" and value and place.pod is not None and not runs_last(place.pod):
        return f"{knob} of a pod that runs among best-effort pods, but is not best-effort, is never written"
    if value is None:
        if row.default is None and (place.tier == BEST_EFFORT or knob != "cfs_quota_us"):
            return ""
        return f"{knob} of {_named(place)} is never removed"
    if not row.low <= value <= row.high:
        return f"{knob} {value}: accepted: {row.low} to {row.high}"
    return "" if place.tier == BEST_EFFORT or place.pod is None else _cut(place, place.pod, knob, value)


def _kind(place: Place) -> GroupKind:
    if place.pod is None:
        return "best-effort tier" if place.tier == BEST_EFFORT else "other tier"
    return "best-effort pod" if place.tier == BEST_EFFORT else "other pod"


def _named(place: Place) -> str:
    if place.pod is None:
        return f"the tier {place.tier or 'guaranteed'}"
    return "a best-effort pod" if place.tier == BEST_EFFORT else "a pod that is not best-effort"


def _cut(place: Place, pod: Pod, knob: Knob, value: int) -> str:
    """Return why this is refused, or "". A latency-sensitive pod never gets less than its spec."""
    if knob in {"cfs_quota_us", "cfs_burst_us"} and value and not may_burst(pod):
        return f"{knob} of a pod that is not latency-sensitive is never raised"
    if knob == "cfs_quota_us":
        container = place.container
        own_us = pod_quota_us(pod) if container is None else container_quota_us(container.limits.cpu_milli)
        if own_us is None:
            return "cfs_quota_us of a cgroup without CPU limit is never written, because it would become a limit"
        return f"cfs_quota_us {value} is below its own limit, {own_us}" if value < own_us else ""
    if knob == "mem_high_bytes":
        requests = pod.requests if place.container is None else place.container.requests
        asked_bytes = requests.mem_bytes or 0
        return f"mem_high_bytes {value} is below its request, {asked_bytes}" if value < _whole(asked_bytes) else ""
    return ""


def _whole(size_bytes: int) -> int:
    return size_bytes // PAGE_BYTES * PAGE_BYTES
