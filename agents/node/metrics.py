"""All metrics of a node agent. One process may have several simulated nodes."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import msgspec
from prometheus_client import Counter, Gauge, Histogram

from slacktide.agents.node.evict.victims import Standing
from slacktide.agents.node.state import By
from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import ResourceThreshold
from slacktide.schemas.qos import claims_in_vain, is_best_effort
from slacktide.schemas.sample import NodeSample, PodPressure
from slacktide.schemas.topics import read_by, written_by
from slacktide.streams.decisions.suppress.cpu_suppress import RULE, allowed_milli

SAMPLES = Counter("slacktide_agent_samples", "Samples taken.", ["node"])
EARLY = Counter("slacktide_agent_samples_early", "Samples taken before their tick, by cause.", ["node", "cause"])
PRESSED = Counter("slacktide_agent_pressure_fired", "Samples taken early because pods stalled.", ["node", "kind"])
PRESSURE_TRIGGERS = Gauge(
    "slacktide_agent_pressure_triggers", "PSI triggers, by result: set or refused.", ["node", "kind", "result"]
)
SENT = Counter("slacktide_agent_samples_sent", "Samples that Kafka acknowledged.", ["node"])
DROPPED = Counter("slacktide_agent_samples_dropped", "Samples dropped because too many waited for Kafka.", ["node"])
WAITING = Gauge("slacktide_agent_samples_waiting", "Samples of an outage that are not backfilled yet.", ["node"])
BACKFILLED = Counter("slacktide_agent_samples_backfilled", "Samples of an outage that were backfilled.", ["node"])
SKIPPED = Counter(
    "slacktide_agent_ticks_skipped", "Ticks skipped because the previous one was still running.", ["node"]
)
TICK = Histogram(
    "slacktide_agent_tick_seconds",
    "Seconds to read the kernel and decide.",
    ["node"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1),
)
CPU = Gauge(
    "slacktide_agent_cpu_milli",
    "The node's CPU by its last sample, in thousandths of a CPU. By `of`: capacity, requests and use of "
    "latency-sensitive pods, use of best-effort pods and of all, best-effort limit (NaN: none), threshold for all.",
    ["node", "of"],
)
MEMORY = Gauge(
    "slacktide_agent_memory_percent",
    "The node's memory in its last sample, in percent of capacity: used, and the threshold above which "
    "best-effort pods are evicted (NaN: none).",
    ["node", "of"],
)
POD_PRESSURE = Gauge(
    "slacktide_agent_pod_pressure_percent",
    "Percent of the last 10 s in which some or all (full) processes of a pod waited for cpu, memory or io. Absent "
    "without `--pod-pressure`.",
    ["node", "namespace", "pod", "resource", "degree"],
)
SERVICE_MINUTES = Counter(
    "slacktide_agent_service_minutes", "Minutes of services on this node that Kafka acknowledged.", ["node"]
)
SERVICE_MINUTES_DROPPED = Counter(
    "slacktide_agent_service_minutes_dropped",
    "Minutes of services dropped because Kafka refused them, or did not acknowledge them at once.",
    ["node"],
)
MISSING = Counter("slacktide_agent_missing_figures", "Figures that could not be read.", ["node", "what"])
DECIDED = Counter("slacktide_agent_decided", "Samples, by the part that decided: stream or guard.", ["node", "by"])
OUTCOMES = Counter(
    "slacktide_agent_outcomes", "Outcomes of answers and actions, by origin and result.", ["node", "origin", "result"]
)
ACT_AGE = Histogram(
    "slacktide_agent_act_age_seconds",
    "Seconds from taking a sample to reading its limit back from the kernel.",
    ["node"],
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 5, 10),
)
LIMITS = Counter(
    "slacktide_agent_limits", "Samples, by the term that determined their best-effort limit.", ["node", "bound"]
)
POLICY_PUBLISHED = Gauge(
    "slacktide_agent_policy_published_timestamp_seconds", "When the policy in force was last published.", ["node"]
)
POLICY_REFUSED = Gauge(
    "slacktide_agent_policy_refused", "1 while the newest record of the policy topic is rejected or null.", ["node"]
)
GUARD = Gauge("slacktide_agent_guard_in_charge", "1 while the node decides without the stream.", ["node"])
SPOOL_BYTES = Gauge("slacktide_agent_spool_bytes", "Bytes of the outcomes in the spool.", ["node"])
SPOOL_WAITING = Gauge("slacktide_agent_spool_outcomes", "Outcomes that Kafka has not acknowledged yet.", ["node"])
SPOOL_FAILURES = Gauge("slacktide_agent_spool_failures", "Failed reads and writes since the start.", ["node"])
SPOOL_TORN = Gauge(
    "slacktide_agent_spool_torn_lines", "Unreadable records and damaged databases since the start.", ["node"]
)
KNOBS_LACKING = Gauge(
    "slacktide_agent_knobs_lacking", "Control groups without a file that the policy needs.", ["node", "knob"]
)
EVICTIONS = Counter(
    "slacktide_agent_evictions", "Evictions that a rule selected, by result.", ["node", "rule", "result"]
)
OUTSIDE = Gauge(
    "slacktide_agent_pods_outside",
    "Best-effort pods outside the best-effort control group, which are not limited.",
    ["node"],
)
DYING = Gauge("slacktide_agent_pods_dying", "Evicted pods that still exist.", ["node"])
STUCK = Gauge("slacktide_agent_pods_stuck", "Evicted pods that still exist after SIGKILL.", ["node"])
FROZEN = Gauge("slacktide_agent_pods_frozen", "Pods frozen because there is no eviction credit.", ["node"])
THROTTLED = Gauge(
    "slacktide_agent_throttled", "1 while best-effort pods are throttled because there is no eviction credit.", ["node"]
)
RECLAIMED = Counter(
    "slacktide_agent_reclaimed_bytes", "Memory reclaimed from best-effort pods before any was evicted.", ["node"]
)
RECLAIM_ASKED = Counter(
    "slacktide_agent_reclaim_asked_bytes", "Memory that the kernel was asked to reclaim from these pods.", ["node"]
)
RECLAIM_SWAPPED = Counter("slacktide_agent_reclaim_swapped_bytes", "Reclaimed memory that went to swap.", ["node"])
RECLAIM_PAUSED = Gauge("slacktide_agent_reclaim_paused", "1 while pressure holds back reclaim.", ["node"])
FREEZES = Gauge("slacktide_agent_freezes", "1 where the node's kernel can freeze best-effort pods.", ["node"])
REFUSED = Counter("slacktide_agent_records_refused", "Records that could not be processed.", ["node", "topic"])
REFUSED_BY_KAFKA = Counter(
    "slacktide_agent_sends_refused", "Records that Kafka rejected for their size or content.", ["node", "topic"]
)
CONNECTIONS = Counter("slacktide_agent_connections", "Connections made to Kafka.", ["node", "to"])
PROOF_EXPIRES = Gauge(
    "slacktide_agent_proof_expires_seconds",
    "Seconds until the key that signs this node's records expires. 0: no key. Absent if the agent does not enrol.",
    ["node"],
)
ZONES_UNREAD = Gauge(
    "slacktide_agent_zones_unread",
    "1 while a source of the node's NUMA zones cannot be read. Absent if the agent publishes no zones.",
    ["node", "what"],
)

SUSPENDED = Gauge(
    "slacktide_agent_suspended",
    "1 while the node is suspended: no limit is in force, and no pod is evicted.",
    ["node", "by"],
)

Cause = Literal["tick", "keyframe", "cpu", "memory", "use", "stall"]
"""What triggered a sample: the tick, a keyframe, pressure by resource, a rise of CPU use, or a stall."""
KEPT = "kept"
"""The ``bound`` of a command that changes nothing and has no terms."""
RESOURCES = {"mem": "memory"}
ACTED = frozenset({"applied", "unchanged", "failed", "dry-run"})


def cpu_of(sample: NodeSample, capacity_milli: int | None) -> dict[str, float | None]:
    """Return a node's CPU figures by kind; None: keep the value of the last sample.

    ``capacity_milli``: of the last sample with facts.
    """
    best_effort = sum(pod.cpu_milli or 0 for pod in sample.pod_use if pod.best_effort_group)
    others = sum(pod.cpu_milli or 0 for pod in sample.pod_use if not pod.best_effort_group)
    pods, limits = sample.pods, sample.limits
    asked = None if pods is None else [pod for pod in pods if pod.phase in LIVE_PHASES and not is_best_effort(pod)]
    allowed = None if limits is None else allowed_milli(limits, capacity_milli)
    return {
        "capacity": None if sample.facts is None else sample.facts.capacity.cpu_milli,
        "ls_requested": None if asked is None else sum(pod.requests.cpu_milli or 0 for pod in asked),
        "ls_used": others,
        "be_used": best_effort,
        "be_limit": math.nan if allowed is None else allowed,
        "used": sample.use.cpu_milli,
    }


def memory_of(
    sample: NodeSample, facts: NodeFacts, threshold: ResourceThreshold, *, dry_run: bool = False
) -> dict[str, float]:
    """Memory use and eviction threshold, in percent of the capacity; NaN: unknown, or nothing is evicted."""
    used, capacity, at_pct = sample.use.mem_bytes, facts.capacity.mem_bytes, threshold.mem_evict_threshold_pct
    none = not threshold.enable or threshold.mem_evict_dry_run or dry_run
    return {
        "used": math.nan if used is None or not capacity else 100 * used / capacity,
        "threshold": math.nan if at_pct is None or none else at_pct,
    }


class AgentMetrics:
    """The metrics of one node."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.skipped = SKIPPED.labels(node)
        self.dropped = DROPPED.labels(node)
        self.sent = SENT.labels(node)
        self.waiting = WAITING.labels(node)
        self.backfilled = BACKFILLED.labels(node)
        self.minutes_sent = SERVICE_MINUTES.labels(node)
        self.minutes_dropped = SERVICE_MINUTES_DROPPED.labels(node)
        self._samples = SAMPLES.labels(node)
        self._tick = TICK.labels(node)
        self._act_age = ACT_AGE.labels(node)
        self._guard = GUARD.labels(node)
        self._policy_refused = POLICY_REFUSED.labels(node)
        self._spool = [gauge.labels(node) for gauge in (SPOOL_BYTES, SPOOL_WAITING, SPOOL_FAILURES, SPOOL_TORN)]
        self._evicting = [gauge.labels(node) for gauge in (DYING, STUCK, FROZEN, THROTTLED, FREEZES, RECLAIM_PAUSED)]
        self._lacking: set[Knob] = set()
        self._pods_pressed: set[tuple[str, str, str, str, str]] = set()
        self._capacity_milli: int | None = None
        for by in ("stream", "guard"):
            DECIDED.labels(node, by)
        for topic in read_by("agent"):
            REFUSED.labels(node, topic.name)
        for topic in written_by("agent"):
            REFUSED_BY_KAFKA.labels(node, topic.name)

    def taken(self, sample: NodeSample, cause: Cause, tick_ns: int) -> None:
        """Count a sample, and the time it took."""
        self._samples.inc()
        if cause != "tick":
            EARLY.labels(self.node, cause).inc()
        self._tick.observe(tick_ns / 1e9)
        if sample.facts is not None:
            self._capacity_milli = sample.facts.capacity.cpu_milli
        for of, milli in cpu_of(sample, self._capacity_milli).items():
            if milli is not None:
                CPU.labels(self.node, of).set(milli)
        if sample.pods is not None:
            live = [pod for pod in sample.pods if pod.phase in LIVE_PHASES]
            OUTSIDE.labels(self.node).set(sum(map(claims_in_vain, live)))
        for one in sample.missing:
            # The file name without its path, which has pod uids.
            MISSING.labels(self.node, one.what.rpartition("/")[2].partition(" ")[0]).inc()

    def memory(self, figures: Mapping[str, float]) -> None:
        """Set the figures of ``memory_of``."""
        for of, percent in figures.items():
            MEMORY.labels(self.node, of).set(percent)

    def pod_pressure(self, figures: Sequence[PodPressure], pods: Sequence[Pod]) -> None:
        """Set the pressure of these pods, and remove that of others."""
        known, before, self._pods_pressed = {pod.uid: pod for pod in pods}, self._pods_pressed, set()
        for one in figures:
            pod = known[one.uid]
            for name, percent in msgspec.structs.asdict(one).items():
                if name != "uid" and percent is not None:
                    resource, degree, _ = name.split("_")
                    labels = self.node, pod.namespace, pod.name, RESOURCES.get(resource, resource), degree
                    POD_PRESSURE.labels(*labels).set(percent)
                    self._pods_pressed.add(labels)
        for labels in before - self._pods_pressed:
            POD_PRESSURE.remove(*labels)

    def proof_expires_s(self, left_s: int) -> None:
        """Set the remaining life of the node's key."""
        PROOF_EXPIRES.labels(self.node).set(left_s)

    def zones_unread(self, sources: Mapping[str, bool]) -> None:
        """Set for each source of NUMA zones whether it is unreadable."""
        for what, unread in sources.items():
            ZONES_UNREAD.labels(self.node, what).set(unread)

    def suspended(self, by: By | None) -> None:
        """Set what suspends the node."""
        for one in get_args(By):
            SUSPENDED.labels(self.node, one).set(one == by)

    def concluded(self, outcome: NodeOutcome) -> None:
        """Count an outcome."""
        OUTCOMES.labels(self.node, outcome.origin, outcome.result).inc(outcome.count)
        if outcome.result in ACTED and outcome.origin != "agent" and outcome.rule == RULE:
            DECIDED.labels(self.node, outcome.origin).inc()
            LIMITS.labels(self.node, outcome.bound).inc()
            if outcome.bound != KEPT:
                CPU.labels(self.node, "threshold").set(outcome.terms.get("ceiling_milli", math.nan))
        if outcome.result == "applied" and outcome.after is not None:
            self._act_age.observe(outcome.age_ms / 1_000)
        if outcome.spent is not None:
            EVICTIONS.labels(self.node, outcome.rule, outcome.result).inc(outcome.count)
        if outcome.reclaimed is not None and outcome.result != "dry-run":
            RECLAIMED.labels(self.node).inc(outcome.reclaimed.freed_bytes)
            RECLAIM_ASKED.labels(self.node).inc(outcome.reclaimed.asked_bytes)
            RECLAIM_SWAPPED.labels(self.node).inc(outcome.reclaimed.swapped_bytes)

    def policy_published(self, published_ms: int) -> None:
        """Set when the policy in force was last published."""
        POLICY_PUBLISHED.labels(self.node).set(published_ms / 1_000)

    def policy_refused(self, *, refused: bool) -> None:
        """Set whether the newest policy record is refused."""
        self._policy_refused.set(refused)

    def stands(self, *, guard: bool, spool: tuple[int, int, int, int]) -> None:
        """Set who is in charge, and the spool's bytes, outcomes, failures and unreadable records."""
        self._guard.set(guard)
        for gauge, value in zip(self._spool, spool, strict=True):
            gauge.set(value)

    def evicting(self, standing: Standing) -> None:
        """Set how many pods are terminating or held back."""
        figures = (
            standing.dying,
            standing.stuck,
            standing.frozen,
            standing.throttled,
            standing.freezes,
            standing.reclaim_paused,
        )
        for gauge, value in zip(self._evicting, figures, strict=True):
            gauge.set(value)

    def pressed(self, kind: str) -> None:
        """Count a pressure event for this resource."""
        PRESSED.labels(self.node, kind).inc()

    def triggers(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Set how many triggers of each kind are set or were refused."""
        for kind in ("cpu", "memory"):
            for result in ("set", "refused"):
                PRESSURE_TRIGGERS.labels(self.node, kind, result).set(counts.get((kind, result), 0))

    def lacks(self, knobs: Mapping[Knob, int]) -> None:
        """Set how many cgroups lack each knob."""
        for knob in get_args(Knob):
            if knob in knobs or knob in self._lacking:
                self._lacking.add(knob)
                KNOBS_LACKING.labels(self.node, knob).set(knobs.get(knob, 0))

    def refused(self, topic: str) -> None:
        """Count an unusable record."""
        REFUSED.labels(self.node, topic).inc()

    def refused_by_kafka(self, topic: str) -> None:
        """Count a record that Kafka refused."""
        REFUSED_BY_KAFKA.labels(self.node, topic).inc()

    def connected(self, to: str) -> None:
        """Count a new connection to Kafka."""
        CONNECTIONS.labels(self.node, to).inc()
