"""One enriched sample of a node. Topic slacktide.node.sample.v1, key: node. Agent to streams."""

from __future__ import annotations

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.message import Count, Message


class Pressure(Message, frozen=True, kw_only=True):
    """PSI averages over 10 s, percent of time stalled."""

    cpu_some_pct: float | None = None
    mem_some_pct: float | None = None
    mem_full_pct: float | None = None
    io_some_pct: float | None = None
    io_full_pct: float | None = None


class NodeUse(Message, frozen=True, kw_only=True):
    """What the whole node used."""

    cpu_milli: int | None = None
    """Average since the previous sample; None: not known (see ``missing``)."""
    mem_bytes: int | None = None
    """Working set: what could be dropped at once does not count."""
    pressure: Pressure = Pressure()


class PodUse(Message, frozen=True, kw_only=True):
    """What one pod's cgroup used."""

    uid: str
    cpu_milli: int | None = None
    mem_bytes: int | None = None
    periods: int | None = None
    """CFS periods since the previous sample; None: no limit or not known."""
    throttled_periods: int | None = None
    best_effort_group: bool = False
    """Whether the pod's cgroup lies under the best-effort group."""


class Limits(Message, frozen=True, kw_only=True):
    """What the kernel holds for best-effort pods. Unlimited is null, never -1."""

    be_cfs_quota_us: int | None
    be_cfs_period_us: int = 100_000
    be_cpuset: list[int] | None = None
    """CPU ids, ascending. None: not known here, as where the cpuset controller is absent; it stays as it is."""


class Missing(Message, frozen=True, kw_only=True):
    """A figure that could not be read, and why."""

    what: str
    why: str


class NodeSample(Message, frozen=True, kw_only=True):
    """All that a decision needs that only the node knows, and what it decides by."""

    node: str
    boot_id: str
    """``<start counter, 12 digits>-<random>``: compares as text, the higher start wins."""
    seq: Count
    clock_epoch: Count = 0
    observed_ms: Count
    """Event time, UTC epoch: an anchor plus the node's monotonic clock."""
    interval_ms: Count
    """Monotonic time since the previous sample; 0 for the first one."""
    policy_version: str
    """The policy that the agent holds; it decides by this one."""
    facts_revision: str
    pods_revision: str
    use: NodeUse
    pod_use: list[PodUse]
    limits: Limits | None
    """None: the best-effort group's limit could not be read."""
    since_raise_ms: int | None = None
    """Monotonic time since the agent last raised the limit; None: not since its start."""
    facts: NodeFacts | None = None
    """Where they changed, and in a keyframe."""
    pods: list[Pod] | None = None
    """Where they changed, and in a keyframe."""
    missing: list[Missing] = []
