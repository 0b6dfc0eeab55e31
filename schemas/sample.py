"""One enriched sample of a node. Topic slacktide.node.sample.v1, key: node. Agent to streams."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from slacktide.schemas.bounds import (
    CPUS_MAX,
    PODS_MAX,
    Amount,
    Count,
    Cpu,
    Int64,
    KnobValue,
    Measured,
    Name,
    PeriodUs,
    PressurePercent,
    QuotaUs,
    Ratio,
    Revision,
    TimeMs,
)
from slacktide.schemas.inventory import NodeFacts, Pods
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.message import Message

KEYFRAME_MS = 60_000
"""How often a sample carries facts and pods although they did not change: it is a keyframe."""
LISTED_MS = KEYFRAME_MS + 10_000
"""Facts and pods that a sample names are in samples at most so much older, for a keyframe may be late."""

LOOKS_MAX = 256
"""Of a sample. Looks of a longer time are left out, the oldest first."""
PAUSE_MS_MIN, PAUSE_MS_MAX = 500, 8_000
"""How long the rule ``cpu_pressure`` lets best-effort pods be after a cut that did not help."""


class Pressure(Message, frozen=True, kw_only=True):
    """PSI averages over 10 s, percent of time stalled."""

    cpu_some_pct: PressurePercent | None = None
    mem_some_pct: PressurePercent | None = None
    mem_full_pct: PressurePercent | None = None
    io_some_pct: PressurePercent | None = None
    io_full_pct: PressurePercent | None = None


class NodeUse(Message, frozen=True, kw_only=True):
    """What the whole node used."""

    cpu_milli: Amount | None = None
    """Average since the previous sample; None: not known (see ``missing``)."""
    mem_bytes: Amount | None = None
    """Working set: what could be dropped at once does not count."""
    pressure: Pressure = Pressure()


class PodUse(Message, frozen=True, kw_only=True):
    """What one pod's cgroup used."""

    uid: Name
    cpu_milli: Amount | None = None
    mem_bytes: Amount | None = None
    periods: Count | None = None
    """CFS periods since the previous sample; None: no limit or not known."""
    throttled_periods: Count | None = None
    best_effort_group: bool = False
    """Whether the pod's cgroup lies under the best-effort group."""


CpuSet = Annotated[list[Cpu], Meta(max_length=CPUS_MAX)]


class Limits(Message, frozen=True, kw_only=True):
    """What the kernel holds for best-effort pods. Unlimited is null, never -1."""

    be_cfs_quota_us: QuotaUs | None
    be_cfs_period_us: PeriodUs = 100_000
    be_cpuset: CpuSet | None = None
    """CPU ids, ascending. None: not known here, as where the cpuset controller is absent; it stays as it is."""


class BeCpu(Message, frozen=True, kw_only=True):
    """All best-effort pods' CPU, at one time or as an average."""

    usage_milli: Measured
    request_milli: Measured
    limit_milli: Measured


class BeCpuWindow(Message, frozen=True, kw_only=True):
    """What best-effort pods got over the last while, and how often that was measured."""

    average: BeCpu
    current: BeCpu
    samples: Count
    interval_s: Count
    node_usage_milli: Measured | None = None
    """Of the whole node, as an average over the same while."""


class EvictState(Message, frozen=True, kw_only=True):
    """What the node remembers of evictions."""

    since_mem_ms: TimeMs | None = None
    """Monotonic time since a pod was last evicted for memory; None: not since the agent's start."""
    since_cpu_ms: TimeMs | None = None
    """The same for CPU; None: neither that nor the agent's start is within the longest cool-down."""
    dying: Annotated[list[str], Meta(max_length=PODS_MAX)] = []
    """Uids of evicted pods that are still there; what they use counts as released."""
    stuck: Annotated[list[str], Meta(max_length=PODS_MAX)] = []
    """Uids of those who are there although they were killed: nobody's victims, and nothing of theirs is released."""
    kept: Annotated[list[str], Meta(max_length=PODS_MAX)] = []
    """Uids of those whom the API server did not let go just now, as for a PodDisruptionBudget: they go last."""
    be_cpu: BeCpuWindow | None = None
    """Where a rule asks for it."""


class ContainerBurst(Message, frozen=True, kw_only=True):
    """A container whose CPU quota may move: it was throttled, or holds more than its limit."""

    pod: str
    """Uid."""
    container: str
    """Name."""
    quota_us: QuotaUs
    """In force per 100 ms; -1: unlimited."""
    pod_quota_us: QuotaUs
    """The same of its pod."""
    throttled_ratio: Ratio | None = None
    """Share of periods since it was looked at before, a second ago, in which it was throttled; None: not known."""
    used_milli: Amount | None = None
    tokens: Int64 | None = None
    """In the limiter's bucket after the previous decision; None: it is new."""
    capacity_tokens: Int64 | None = None
    start_tokens: Int64 = 0
    """What a new bucket begins with, drawn from the node's name and boot."""
    elapsed_s: Count = 0
    """Whole seconds since the limiter's previous decision."""


class Drift(Message, frozen=True, kw_only=True):
    """A knob that holds something else than what is wanted of it."""

    group: str
    """``pod/<uid>``, ``pod/<uid>/<container name>`` or a tier's, such as ``tier/besteffort``."""
    knob: Knob
    held: KnobValue | None
    """None: unlimited."""


class Missing(Message, frozen=True, kw_only=True):
    """A figure that could not be read, and why."""

    what: str
    why: str


class PressureLook(Message, frozen=True, kw_only=True):
    """What latency-sensitive groups waited between two looks, about 100 ms, and what ran meanwhile."""

    span_us: Count
    """Monotonic time since the look before."""
    ls_cpu_us: Count
    """CPU time of all pods outside the best-effort group."""
    be_cpu_us: Count
    """CPU time of the best-effort group."""
    idle_us: Count
    """Idle time of all CPUs together."""
    cpu_stall_us: Count
    """PSI ``some`` for CPU: time in which a process of latency-sensitive groups waited."""
    mem_stall_us: Count = 0
    """PSI ``some`` for memory of the same groups."""
    throttled_us: Count = 0
    """Time for which their own quotas stopped them: PSI counts it as stall."""


class PressureGate(Message, frozen=True, kw_only=True):
    """What the rule ``cpu_pressure`` remembers from look to look."""

    base_permille: Count = 0
    """The learned baseline: stall of latency-sensitive groups per time that they run, without best-effort work."""
    closed: bool = False
    """Whether best-effort pods shall stop."""
    closed_ms: Count = 0
    proof_looks: Count = 0
    """Looks at stopped best-effort pods since the cut."""
    cut_permille: Count = 0
    """Stall that the cut was made for."""
    be_permille: Count = 0
    """CPU of the node that best-effort pods used at the cut."""
    pause_ms: Annotated[int, Meta(ge=0, le=PAUSE_MS_MAX)] = PAUSE_MS_MIN
    """No cut for so long after the next one that does not help."""
    wait_ms: Annotated[int, Meta(ge=0, le=PAUSE_MS_MAX)] = 0
    """No cut for so long."""


class LsPressure(Message, frozen=True, kw_only=True):
    """The gate as the sample before left it, and the looks since."""

    gate: PressureGate
    looks: Annotated[list[PressureLook], Meta(max_length=LOOKS_MAX)]
    """The oldest first."""


class NodeSample(Message, frozen=True, kw_only=True):
    """All that a decision needs that only the node knows, and what it decides by."""

    node: Name
    boot_id: Revision
    """``<start counter, 12 digits>-<random>``: compares as text, the higher start wins."""
    seq: Count
    clock_epoch: Count = 0
    observed_ms: TimeMs
    """Event time, UTC epoch: an anchor plus the node's monotonic clock."""
    interval_ms: TimeMs
    """Monotonic time since the previous sample; 0 for the first one."""
    policy_version: Revision
    """The policy that the agent holds; it decides by this one."""
    facts_revision: Revision
    pods_revision: Revision
    use: NodeUse
    pod_use: Annotated[list[PodUse], Meta(max_length=PODS_MAX)]
    limits: Limits | None
    """None: the best-effort group's limit could not be read."""
    since_raise_ms: TimeMs | None = None
    """Monotonic time since the agent last raised the limit; None: not since its start."""
    facts: NodeFacts | None = None
    """Where they changed, and in a keyframe."""
    pods: Pods | None = None
    """Where they changed, and in a keyframe."""
    missing: list[Missing] = []
    evict: EvictState = EvictState()
    drift: list[Drift] = []
    burst: list[ContainerBurst] = []
    ls_lately_cpu_milli: Amount | None = None
    """What pods outside the best-effort group used within the last moment, where its rise is why the sample was taken.

    The rates since the previous sample are mostly of before that rise.
    """
    ls_pressure: LsPressure | None = None
    """Where the policy goes by pressure and the kernel reports it."""
