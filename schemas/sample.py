"""One enriched sample of a node. Topic slacktide.node.sample.v1, key: node. Agent to streams."""

import re
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
"""Interval of keyframes: samples that carry facts and pods even if unchanged."""
LISTED_MS = KEYFRAME_MS + 10_000
"""Facts and pods that a sample refers to are in a sample at most this much older. A keyframe may be late."""

LOOKS_MAX = 256
"""Most looks in one sample. The oldest are left out."""
PAUSE_MS_MIN, PAUSE_MS_MAX = 500, 8_000
"""How long rule ``cpu_pressure`` pauses after a cut that did not help."""


class Pressure(Message, frozen=True, kw_only=True):
    """PSI averages over 10 s, percent of time stalled."""

    cpu_some_pct: PressurePercent | None = None
    mem_some_pct: PressurePercent | None = None
    mem_full_pct: PressurePercent | None = None
    io_some_pct: PressurePercent | None = None
    io_full_pct: PressurePercent | None = None


class PodPressure(Pressure, frozen=True, kw_only=True):
    """PSI averages over 10 s of one pod's cgroup, percent of time stalled."""

    uid: Name
    cpu_full_pct: PressurePercent | None = None


class NodeUse(Message, frozen=True, kw_only=True):
    """Resource use of the whole node."""

    cpu_milli: Amount | None = None
    """Average since the previous sample; None: unknown (see ``missing``)."""
    mem_bytes: Amount | None = None
    """Working set: without memory that could be reclaimed at once."""
    pressure: Pressure = Pressure()


class PodUse(Message, frozen=True, kw_only=True):
    """Resource use of one pod's cgroup."""

    uid: Name
    cpu_milli: Amount | None = None
    mem_bytes: Amount | None = None
    periods: Count | None = None
    """CFS periods since the previous sample; None: no limit or unknown."""
    throttled_periods: Count | None = None
    best_effort_group: bool = False
    """Whether the pod's cgroup is below the best-effort cgroup."""


CpuSet = Annotated[list[Cpu], Meta(max_length=CPUS_MAX)]


class Limits(Message, frozen=True, kw_only=True):
    """Limits of best-effort pods in the kernel. Unlimited is null, never -1."""

    be_cfs_quota_us: QuotaUs | None
    be_cfs_period_us: PeriodUs = 100_000
    be_cpuset: CpuSet | None = None
    """CPU ids, ascending. None: unknown, for example without cpuset controller; then it is not changed."""


class BeCpu(Message, frozen=True, kw_only=True):
    """CPU of all best-effort pods, at one time or on average."""

    usage_milli: Measured
    request_milli: Measured
    limit_milli: Measured


class BeCpuWindow(Message, frozen=True, kw_only=True):
    """CPU of best-effort pods over a recent window, and the number of measurements."""

    average: BeCpu
    current: BeCpu
    samples: Count
    interval_s: Count
    node_usage_milli: Measured | None = None
    """Average use of the whole node over the same window."""


class EvictState(Message, frozen=True, kw_only=True):
    """State of evictions on the node."""

    since_mem_ms: TimeMs | None = None
    """Monotonic time since a pod was last evicted for memory; None: not since the agent's start."""
    since_cpu_ms: TimeMs | None = None
    """The same for CPU, or since the agent's start; None: longer than the longest cool-down."""
    dying: Annotated[list[str], Meta(max_length=PODS_MAX)] = []
    """Uids of evicted pods that still exist. Their use counts as released."""
    stuck: Annotated[list[str], Meta(max_length=PODS_MAX)] = []
    """Uids of pods that did not end after SIGKILL: they are no victims, and their use does not count as released."""
    kept: Annotated[list[str], Meta(max_length=PODS_MAX)] = []
    """Uids of pods whose eviction the API server just refused, as for a PodDisruptionBudget: they are evicted last."""
    be_cpu: BeCpuWindow | None = None
    """Present if a rule needs it."""


class ContainerBurst(Message, frozen=True, kw_only=True):
    """A container whose CPU quota may change: it was throttled, or its quota is above its limit."""

    pod: str
    """Uid."""
    container: str
    """Name."""
    quota_us: QuotaUs
    """Current quota per 100 ms; -1: unlimited."""
    pod_quota_us: QuotaUs
    """Its pod's quota, likewise."""
    throttled_ratio: Ratio | None = None
    """Share of throttled periods since the previous look, a second ago; None: unknown."""
    used_milli: Amount | None = None
    tokens: Int64 | None = None
    """Tokens in its bucket after the previous decision; None: a new bucket."""
    capacity_tokens: Int64 | None = None
    start_tokens: Int64 = 0
    """Tokens of a new bucket, drawn from the node's name and boot."""
    elapsed_s: Count = 0
    """Whole seconds since the limiter's previous decision."""


class Drift(Message, frozen=True, kw_only=True):
    """A knob whose value differs from the wanted one."""

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
    """Stalls of latency-sensitive cgroups between two looks, about 100 ms apart, and CPU use meanwhile."""

    span_us: Count
    """Monotonic time since the previous look."""
    ls_cpu_us: Count
    """CPU time of all pods outside the best-effort cgroup; without PSI of cgroups, of those threads that were read."""
    be_cpu_us: Count
    """CPU time of the best-effort cgroup."""
    idle_us: Count
    """Idle time of all CPUs together."""
    cpu_stall_us: Count
    """PSI ``some`` for CPU: time in which a process of latency-sensitive cgroups waited.

    Without PSI of cgroups: the time that the busiest threads waited in run queues, all together.
    """
    mem_stall_us: Count = 0
    """PSI ``some`` for memory of the same cgroups."""
    throttled_us: Count = 0
    """Time for which their own quotas throttled them. PSI counts it as stall."""


class PressureGate(Message, frozen=True, kw_only=True):
    """State of rule ``cpu_pressure`` between looks."""

    base_permille: Count = 0
    """The learned baseline: stall of latency-sensitive cgroups per CPU time, without best-effort work."""
    closed: bool = False
    """Whether best-effort pods must stop."""
    closed_ms: Count = 0
    proof_looks: Count = 0
    """Looks since the cut with best-effort pods stopped."""
    cut_permille: Count = 0
    """Stall that caused the cut."""
    be_permille: Count = 0
    """CPU that best-effort pods used at the cut, in thousandths of a CPU."""
    pause_ms: Annotated[int, Meta(ge=0, le=PAUSE_MS_MAX)] = PAUSE_MS_MIN
    """Pause after the next cut that does not help."""
    wait_ms: Annotated[int, Meta(ge=0, le=PAUSE_MS_MAX)] = 0
    """Time left of the current pause."""


class LsPressure(Message, frozen=True, kw_only=True):
    """The gate at the previous sample, and the looks since."""

    gate: PressureGate
    looks: Annotated[list[PressureLook], Meta(max_length=LOOKS_MAX)]
    """The oldest first."""


class NodeSample(Message, frozen=True, kw_only=True):
    """Everything about a node that a decision needs, and the policy version."""

    node: Name
    boot_id: Revision
    """``<start counter, 12 digits>-<random>``. Compared as text; the highest is the newest start."""
    seq: Count
    clock_epoch: Count = 0
    observed_ms: TimeMs
    """Event time, UTC epoch: an anchor plus the node's monotonic clock."""
    interval_ms: TimeMs
    """Monotonic time since the previous sample; 0 for the first one."""
    policy_version: Revision
    """The policy in force on the agent."""
    facts_revision: Revision
    pods_revision: Revision
    use: NodeUse
    pod_use: Annotated[list[PodUse], Meta(max_length=PODS_MAX)]
    limits: Limits | None
    """None: the best-effort cgroup's limit could not be read."""
    since_raise_ms: TimeMs | None = None
    """Monotonic time since the agent last raised the limit; None: not since its start."""
    facts: NodeFacts | None = None
    """Present if changed, and in a keyframe."""
    pods: Pods | None = None
    """Present if changed, and in a keyframe."""
    missing: list[Missing] = []
    evict: EvictState = EvictState()
    drift: list[Drift] = []
    burst: list[ContainerBurst] = []
    pod_pressure: Annotated[list[PodPressure], Meta(max_length=PODS_MAX)] = []
    """Each 10 s, if the agent reads it."""
    ls_lately_cpu_milli: Amount | None = None
    """CPU use of pods outside the best-effort cgroup since the last look, if its rise caused this sample.

    Rates since the previous sample are mostly from before that rise.
    """
    ls_pressure: LsPressure | None = None
    """Present if the policy uses pressure and the kernel reports it."""


AHEAD_S = 86_400
"""An agent that lost its counter starts at its clock's seconds: one further ahead of Kafka's clock is invented."""
_BOOT_ID = re.compile(r"[0-9]{12}-[0-9a-f]{8}")
_SHOWN = 40


def boot_problem(boot_id: str, appended_ms: int) -> str:
    """Return why no agent can have this boot id; "" if one can. A boot id counts the starts of a node's agent.

    Args:
        boot_id: of a sample.
        appended_ms: when Kafka appended the sample, UTC epoch milliseconds.
    """
    if not _BOOT_ID.fullmatch(boot_id):
        return f"boot id {boot_id[:_SHOWN]!r} is not 12 digits, a dash and 8 hexadecimal digits"
    latest = appended_ms // 1_000 + AHEAD_S
    if int(boot_id[:12]) > latest:
        return f"boot id {boot_id!r}: the start counter is above {latest}, the time of its record in seconds and a day"
    return ""
