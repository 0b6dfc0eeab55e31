"""Assigns flavors to a workload, with preemption targets and with a reduced pod count if necessary.

Reading: kueue v0.19.2, pkg/scheduler/flavorassigner (flavorassigner.go, podset_reducer.go), preemption_oracle.go,
scheduler.go (getInitialAssignments).
"""

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

from slacktide.streams.decisions.queue.flavor_match import NodeFlavor, NodeNeeds, PodGroup, Room, matches, pod_groups
from slacktide.streams.decisions.queue.preempt import (
    Holders,
    Preemption,
    Preemptor,
    Target,
    candidates,
    remove,
    targets,
)
from slacktide.streams.decisions.queue.preempt_fair import STRATEGIES, Strategy, fair_targets
from slacktide.streams.decisions.queue.queue_order import Queued, RequeuingTimestamp
from slacktide.streams.decisions.queue.quota_tree import (
    FlavorResource,
    QuotaNode,
    QuotaUsage,
    plus,
    potential_available,
)

NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = range(5)
Mode = Literal["NoFit", "Preempt", "Fit"]
MODES: tuple[Mode, ...] = ("NoFit", "Preempt", "Fit")


class Group(NamedTuple):
    """Resources that share a flavor; flavors in order of preference."""

    resources: frozenset[str]
    flavors: tuple[str, ...]


class Fungibility(NamedTuple):
    """Whether the next flavor is tried."""

    next_when_borrowing: bool = False
    next_when_preempting: bool = True
    borrow_least: bool = False


class Check(NamedTuple):
    """An admission check of a ClusterQueue. Slacktide executes none."""

    name: str
    flavors: frozenset[str] = frozenset()
    """Flavors that it is for. Empty: all workloads."""


class PodSet(NamedTuple):
    """Identical pods."""

    name: str
    pods: int
    min_pods: int | None
    requests: Mapping[str, int]
    nodes: NodeNeeds
    last_tried: Mapping[str, int] = {}


class Cluster(NamedTuple):
    """The inputs of a flavor assignment."""

    queue: QuotaNode
    groups: tuple[Group, ...]
    flavors: Mapping[str, NodeFlavor]
    fungibility: Fungibility
    policies: Preemption
    holders: Holders
    usage: QuotaUsage
    fair_sharing: bool = False
    strategies: Sequence[Strategy] = STRATEGIES
    now_s: int = 0
    requeuing: RequeuingTimestamp = "Eviction"
    corrected: bool = False
    """Correct known errors of the reference; docs/queue-rules.md lists them."""
    chosen_before: Mapping[str, str] = {}
    """Reasons of the workload's targets in the previous cycle, by uid."""
    preempted_before: frozenset[str] = frozenset()
    """Uids of workloads that it preempted and that are back, with nothing finished since. If corrected, it waits."""
    room: Room | None = None
    """Free capacity of nodes; None: only quota counts."""
    compares: bool = True
    """Compute how many more workloads the reference would preempt, by a second search."""
    checks: tuple[Check, ...] = ()
    searched: dict[Hashable, list[Target]] | None = None
    """Cached victims of one workload: each resource searches, then all resources together."""


class Rated(NamedTuple):
    """How well a request fits a flavor."""

    mode: int
    height: int


class Assigned(NamedTuple):
    """A resource's flavor."""

    flavor: str
    rated: Rated
    tried_index: int


class PodSetAssignment(NamedTuple):
    """The flavors of a pod set."""

    name: str
    pods: int
    flavors: Mapping[str, Assigned]
    requests: Mapping[str, int]
    mode: Mode


class Assignment(NamedTuple):
    """The flavors of a workload, without pod sets after the first that fails."""

    pod_sets: tuple[PodSetAssignment, ...]
    targets: tuple[Target, ...] = ()
    targets_saved_count: int = 0

    @property
    def mode(self) -> Mode:
        """Return the worst mode of its pod sets."""
        return MODES[min((MODES.index(one.mode) for one in self.pod_sets), default=2)]

    @property
    def works(self) -> bool:
        """Return whether it fits now, or after preemption."""
        return self.mode == "Fit" or bool(self.targets)

    @property
    def height(self) -> int:
        """Return the height in the cohort tree up to which it borrows."""
        return max((each.rated.height for one in self.pod_sets for each in one.flavors.values()), default=0)

    @property
    def pending_flavors(self) -> bool:
        """Return whether untried flavors remain."""
        return any(each.tried_index != -1 for one in self.pod_sets for each in one.flavors.values())

    def groups(self) -> tuple[PodGroup, ...]:
        """Return its pods grouped by flavor."""
        return tuple(
            group
            for one in self.pod_sets
            for group in pod_groups(one.pods, {name: each.flavor for name, each in one.flavors.items()}, one.requests)
        )

    def check(self, checks: Sequence[Check]) -> str:
        """Return the first of the admission checks that its flavors need; "": none."""
        flavors = {each.flavor for one in self.pod_sets for each in one.flavors.values()}
        return next((one.name for one in checks if flavors & (one.flavors or flavors)), "")

    def usage(self) -> dict[FlavorResource, int]:
        """Return the usage that admission would add."""
        used: dict[FlavorResource, int] = {}
        for one in self.pod_sets:
            _add(used, one)
        return used


def assign(workload: Queued, pod_sets: Sequence[PodSet], cluster: Cluster) -> Assignment:
    """Assign all pods if they fit, else the maximum count that fits."""
    cluster = cluster._replace(searched={})
    whole = _with_targets(workload, pod_sets, [one.pods for one in pod_sets], cluster)
    spare = [one.pods - (one.pods if one.min_pods is None else one.min_pods) for one in pod_sets]
    total = sum(spare)
    if whole.works or not total:
        return whole

    def fewer(by: int) -> Assignment:
        counts = [one.pods - each * by // total for one, each in zip(pod_sets, spare, strict=True)]
        return _with_targets(workload, pod_sets, counts, cluster)

    least = bisect_left(range(total + 1), x=True, key=lambda by: fewer(by).works)
    return fewer(least) if least <= total else whole


def exceeds_max_quota(workload: Queued, pod_sets: Sequence[PodSet], cluster: Cluster) -> bool:
    """Return whether it can never be admitted, since it does not fit even without other usage."""
    anew = [one._replace(last_tried={}) for one in pod_sets]
    return assign(workload, anew, cluster._replace(usage=QuotaUsage(), holders=())).mode != "Fit"


def _with_targets(workload: Queued, pod_sets: Sequence[PodSet], counts: Sequence[int], cluster: Cluster) -> Assignment:
    done = _flavors(workload, pod_sets, counts, cluster)
    if done.mode != "Preempt":
        return done
    needed = {
        FlavorResource(each.flavor, resource)
        for one in done.pod_sets
        for resource, each in one.flavors.items()
        if each.rated.mode != FIT
    }
    usage = done.usage()
    request = {of: amount for of, amount in usage.items() if cluster.corrected or of.resource != "pods"}
    for of in needed:
        cluster = cluster._replace(policies=_policies(of, usage[of], cluster) or cluster.policies)
    found = tuple(_victims(workload, request, frozenset(needed), cluster))
    if not (cluster.corrected and cluster.compares and found):
        return done._replace(targets=found)
    reference = _victims(workload, request, frozenset(needed), cluster._replace(corrected=False, chosen_before={}))
    return done._replace(targets=found, targets_saved_count=max(0, len(reference) - len(found)))


def _victims(
    workload: Queued, request: Mapping[FlavorResource, int], needed: frozenset[FlavorResource], cluster: Cluster
) -> list[Target]:
    some = {of: amount for of, amount in request.items() if amount}
    chosen_before = cluster.chosen_before if cluster.corrected else {}
    key = (frozenset(some.items()), needed, cluster.policies, cluster.corrected, bool(chosen_before))
    known = cluster.searched.get(key) if cluster.searched is not None else None
    if known is not None:
        return known
    queue, policies, usage, most = cluster.queue, cluster.policies, cluster.usage, {}
    if policies.no_more_borrowing:
        most = {of: max(queue.quota(of).nominal, usage.usage(queue, of)) for of in needed}
    preemptor = Preemptor(
        workload, queue, some, needed, cluster.now_s, cluster.requeuing, cluster.corrected, chosen_before, most
    )
    if cluster.fair_sharing:
        found = fair_targets(preemptor, policies, cluster.holders, usage, cluster.strategies)
    else:
        found = targets(preemptor, policies, candidates(preemptor, policies, cluster.holders, usage), usage)
    if cluster.searched is not None:
        cluster.searched[key] = found
    return found


def _flavors(workload: Queued, pod_sets: Sequence[PodSet], counts: Sequence[int], cluster: Cluster) -> Assignment:
    used: dict[FlavorResource, int] = {}
    done: list[PodSetAssignment] = []
    for pod_set, pods in zip(pod_sets, counts, strict=True):
        requests = {resource: amount * pods for resource, amount in pod_set.requests.items()}
        if any("pods" in group.resources for group in cluster.groups):
            requests["pods"] = pods
        one = _pod_set(workload, pod_set, pods, requests, used, cluster)
        done.append(one)
        if requests and not one.flavors and not (cluster.corrected and one.mode == "Fit"):
            break
        _add(used, one)
    return Assignment(tuple(done))


def _pod_set(
    workload: Queued,
    pod_set: PodSet,
    pods: int,
    requests: Mapping[str, int],
    used: Mapping[FlavorResource, int],
    cluster: Cluster,
) -> PodSetAssignment:
    flavors: dict[str, Assigned] = {}
    clean = True
    for resource in sorted(requests):
        if resource in flavors:
            continue
        group = next((one for one in cluster.groups if resource in one.resources), None)
        if group is None and not requests[resource]:
            continue
        part = {key: amount for key, amount in requests.items() if group is not None and key in group.resources}
        found = None if group is None else _find(workload, pod_set, group, part, used, cluster)
        if found is None:
            return PodSetAssignment(pod_set.name, pods, {}, requests, "NoFit")
        flavors |= found[0]
        clean = clean and found[1]
    return PodSetAssignment(pod_set.name, pods, flavors, requests, "Fit" if clean else "Preempt")


def _find(
    workload: Queued,
    pod_set: PodSet,
    group: Group,
    part: Mapping[str, int],
    used: Mapping[FlavorResource, int],
    cluster: Cluster,
) -> tuple[dict[str, Assigned], bool] | None:
    """Find a flavor for all resources of a group; return also whether the request fits."""
    best: tuple[str, dict[str, Rated], Rated] | None = None
    fungibility = cluster.fungibility
    index = start = max(pod_set.last_tried.get(resource, -1) for resource in part) + 1
    for index in range(start, len(group.flavors)):
        flavor = group.flavors[index]
        if not matches(pod_set.nodes, cluster.flavors.get(flavor, NodeFlavor())):
            continue
        rated = {key: _rate(workload, FlavorResource(flavor, key), used, part[key], cluster) for key in part}
        if cluster.corrected:
            worst = Rated(min(one.mode for one in rated.values()), max(one.height for one in rated.values()))
        else:
            worst = min(rated.values(), key=lambda one: _preference(one, fungibility))
        if not _goes_on(worst, fungibility):
            best = (flavor, rated, worst)
            break
        if worst.mode != NO_FIT and (
            best is None or _preference(worst, fungibility) > _preference(best[2], fungibility)
        ):
            best = (flavor, rated, worst)
    if best is None:
        return None
    tried = -1 if index == len(group.flavors) - 1 else index
    return {key: Assigned(best[0], each, tried) for key, each in best[1].items()}, best[2].mode == FIT


def _goes_on(one: Rated, fungibility: Fungibility) -> bool:
    if one.mode in {NO_FIT, NO_CANDIDATES} or (one.mode != FIT and fungibility.next_when_preempting):
        return True
    return bool(one.height) and fungibility.next_when_borrowing


def _preference(one: Rated, fungibility: Fungibility) -> tuple[int, int, int]:
    rank = (-one.height, one.mode) if fungibility.borrow_least else (one.mode, -one.height)
    return min(one.mode, PREEMPT), *rank


def _rate(
    workload: Queued, of: FlavorResource, used: Mapping[FlavorResource, int], amount: int, cluster: Cluster
) -> Rated:
    total, queue, usage = plus(used.get(of, 0), amount), cluster.queue, cluster.usage
    lowest = usage.lowest_fit(queue, of, total)
    if total > potential_available(queue, of):
        return Rated(NO_FIT, lowest.height)
    if usage.fits(queue, of, total):
        return Rated(FIT, lowest.height)
    policies = _policies(of, total, cluster)
    if policies is None:
        return Rated(NO_FIT, lowest.height)
    found = _victims(workload, {of: total}, frozenset({of}), cluster._replace(policies=policies))
    if not found:
        return Rated(NO_FIT if policies.no_more_borrowing else NO_CANDIDATES, lowest.height)
    without = usage.copy()
    for one in found:
        remove(without, one.holder)
    mode = PREEMPT if any(one.holder.queue is queue for one in found) else RECLAIM
    return Rated(mode, without.lowest_fit(queue, of, total).height)


def _policies(of: FlavorResource, total: int, cluster: Cluster) -> Preemption | None:
    """Return the policies to preempt by for an amount; None: it may not preempt, because it would borrow.

    Corrected, it may still take the place of workloads of its own ClusterQueue, without borrowing more than now.
    """
    policies = cluster.policies
    fair = cluster.fair_sharing and policies.reclaim_within_cohort != "Never"
    own = cluster.queue.quota(of).nominal >= total
    if own or policies.borrow_within_cohort or fair or cluster.usage.lowest_fit(cluster.queue, of, total).below_root:
        return policies
    if not cluster.corrected or policies.within_cluster_queue == "Never":
        return None
    return policies._replace(reclaim_within_cohort="Never", no_more_borrowing=True)


def _add(used: dict[FlavorResource, int], one: PodSetAssignment) -> None:
    for resource, each in one.flavors.items():
        of = FlavorResource(each.flavor, resource)
        used[of] = plus(used.get(of, 0), one.requests[resource])
