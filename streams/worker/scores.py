"""The terms that load-aware scheduling needs of a node, for any pod.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/pod_assign_cache.go. There, each scheduler computes them
from NodeMetric, a minute old; here, every report of the node has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.inventory import ENDED_PHASES, NodeFacts, Pod
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on, resource_threshold_on
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.schemas.score import NOTHING, NodeScore, Statistic, use_of
from slacktide.streams.decisions.evict.node_evict import mem_below_line
from slacktide.streams.decisions.known_pods import KnownPods, known
from slacktide.streams.decisions.load.load_aware_estimator import LoadAwareArgs, LoadAwarePod, estimate
from slacktide.streams.decisions.load.load_aware_existing import is_prod

CPU_SUPPRESSED = "cpu_suppressed"
MEM_OVER_LINE = "mem_over_line"
EVICTING = "evicting"


def node_score(
    metric: NodeMetric,
    allocatable: NodeAllocatable,
    sample: NodeSample,
    facts: NodeFacts,
    pods: Sequence[Pod],
    policy: Policy,
    *,
    own_facts: NodeFacts | None = None,
) -> NodeScore:
    """Compute a node's load, in millicores and bytes; terminated pods do not count.

    ``sample``: the newest, with the limits in force. Suppression and eviction use ``own_facts``, the sample's; None:
    ``facts``.
    """
    listed = known(pods)
    expected_more, prod_expected_more = _expected_more(metric, listed, facts, policy)
    return NodeScore(
        node=metric.node,
        boot_id=metric.boot_id,
        seq=metric.seq,
        observed_ms=metric.observed_ms,
        policy_version=metric.policy_version,
        facts_revision=metric.facts_revision,
        pods_revision=metric.pods_revision,
        allocatable=Use(cpu_milli=facts.allocatable.cpu_milli or 0, mem_bytes=facts.allocatable.mem_bytes or 0),
        use=metric.node_use,
        system_use=metric.system_use,
        prod_use=_prod_use(metric, listed.there),
        expected_more=expected_more,
        prod_expected_more=prod_expected_more,
        statistics=[
            Statistic(
                window_ms=one.window_ms,
                covered_ms=one.covered_ms,
                cpu_milli=one.node_cpu_milli,
                mem_bytes=one.node_mem_bytes,
            )
            for one in metric.aggregates
        ],
        batch_asked=listed.batch_asked,
        batch_left=_left(allocatable.batch_cpu_milli, allocatable.batch_mem_bytes, listed.batch_asked),
        mid_asked=listed.mid_asked,
        mid_left=_left(allocatable.mid_cpu_milli, allocatable.mid_mem_bytes, listed.mid_asked),
        free_asked=listed.free_asked,
        free_left=_left(allocatable.free_cpu_milli, allocatable.free_mem_bytes, listed.free_asked),
        pressure=list(_pressure(sample, own_facts or facts, policy, listed.batch_asked.cpu_milli)),
        inventory_revision=allocatable.inventory_revision,
    )


def _left(milli: int | None, mem_bytes: int | None, asked: Use) -> Use:
    """Return what is published minus what is requested; 0 where nothing is published."""
    return use_of(max(0, (milli or 0) - asked.cpu_milli), max(0, (mem_bytes or 0) - asked.mem_bytes))


def _prod_use(metric: NodeMetric, there: AbstractSet[str]) -> Use:
    uses = [one.use for one in metric.pods if one.priority_class == "koord-prod" and one.uid in there]
    return Use(cpu_milli=sum([use.cpu_milli for use in uses]), mem_bytes=sum([use.mem_bytes for use in uses]))


def _expected_more(metric: NodeMetric, pods: KnownPods, facts: NodeFacts, policy: Policy) -> tuple[Use, Use]:
    """Return the expected use of pods without an average, of all pods and of production pods."""
    unmeasured = pods.there - {one.uid for one in metric.pods}
    if not unmeasured:  # usual
        return NOTHING, NOTHING
    new = [LoadAwarePod(pod=pod) for pod in pods if pod.uid in unmeasured and pod.phase not in ENDED_PHASES]
    args = LoadAwareArgs(free_class_enable=colocation_on(policy, facts).free_class_enable)
    return _estimated(new, args), _estimated([one for one in new if is_prod(one)], args)


def _estimated(new: Sequence[LoadAwarePod], args: LoadAwareArgs) -> Use:
    amounts = [estimate(one, args).amounts for one in new]
    return Use(cpu_milli=sum(one.cpu_milli for one in amounts), mem_bytes=sum(one.mem_bytes for one in amounts))


def _pressure(sample: NodeSample, facts: NodeFacts, policy: Policy, batch_asked_milli: int) -> Iterator[str]:
    allowed_milli = _allowed_milli(sample.limits)
    if allowed_milli is not None and allowed_milli < batch_asked_milli:
        yield CPU_SUPPRESSED
    threshold = resource_threshold_on(policy, facts)
    if threshold.enable and not mem_below_line(sample, facts, threshold):
        yield MEM_OVER_LINE
    if sample.evict.dying:
        yield EVICTING


def _allowed_milli(limits: Limits | None) -> int | None:
    """Return the CPU limit of best-effort pods; None: unlimited or unknown."""
    if limits is None or limits.be_cfs_period_us <= 0:
        return None
    by_quota = None if limits.be_cfs_quota_us is None else limits.be_cfs_quota_us * 1_000 // limits.be_cfs_period_us
    by_cpuset = None if limits.be_cpuset is None else len(limits.be_cpuset) * 1_000
    return min((one for one in (by_quota, by_cpuset) if one is not None), default=None)
