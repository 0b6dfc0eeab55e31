"""No eviction without credit, none beyond a budget, none of the same pod twice."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy.strategies import EvictionBudget
from slacktide.schemas.topics import CREDIT
from testbed.history.records import History
from testbed.history.verdict import Verdict, verdict

SPENDS = frozenset({"applied", "failed"})


@dataclass(frozen=True, slots=True)
class Eviction:
    at_ms: int
    node: str
    namespace: str


def most_within(times: Iterable[tuple[int, Hashable]], interval_ms: int) -> dict[Hashable, int]:
    """By group the most events within any interval of this length, its beginning excluded."""
    by_group: dict[Hashable, list[int]] = defaultdict(list)
    for at_ms, group in times:
        by_group[group].append(at_ms)
    return {
        group: max(sum(end_ms - interval_ms < at_ms <= end_ms for at_ms in found) for end_ms in found)
        for group, found in by_group.items()
    }


def spending(history: History) -> dict[str, list[NodeOutcome]]:
    """By node the outcomes of evictions that were begun, one per spent credit."""
    found: dict[str, list[NodeOutcome]] = {}
    for node, outcomes in history.outcomes.items():
        first: dict[tuple[str, int], NodeOutcome] = {}
        for each in outcomes:
            if each.spent is not None and each.result in SPENDS:
                first.setdefault((each.boot_id, each.spent.evictions), each)
        found[node] = list(first.values())
    return found


def within_credit(history: History) -> Verdict:
    """Each boot's count of evictions stays within the highest lease that it was granted."""
    granted: Counter[tuple[str, str]] = Counter()
    for entry in history.of(CREDIT, EvictionCredit):
        lease = entry.body
        granted[lease.node, lease.boot_id] = max(granted[lease.node, lease.boot_id], lease.granted)
    checked, broken = 0, list[str]()
    for node, outcomes in spending(history).items():
        for each in outcomes:
            assert each.spent is not None
            checked += 1
            if each.spent.evictions > granted[node, each.boot_id]:
                most = granted[node, each.boot_id]
                broken.append(f"{node}: {each.boot_id} made eviction {each.spent.evictions} of {most}")
    return verdict("evictions within credit", checked, broken)


def within_budget(history: History, budget: EvictionBudget) -> Verdict:
    """In any interval, per node, per namespace and in all. A lease that outlasts an outage allows a node one more."""
    found = [
        Eviction(each.acted_ms, node, each.pod.namespace if each.pod else "")
        for node, outcomes in spending(history).items()
        for each in outcomes
    ]
    interval_ms, nodes = budget.interval_s * 1_000, len({one.node for one in found})
    limits = {
        "node": (budget.node_max + 1, ((one.at_ms, one.node) for one in found)),
        "namespace": (budget.namespace_max + nodes, ((one.at_ms, one.namespace) for one in found)),
        "cluster": (budget.cluster_max + nodes, ((one.at_ms, "all") for one in found)),
    }
    broken = [
        f"{kind} {group}: {count} within {budget.interval_s} s, allowed {most}"
        for kind, (most, times) in limits.items()
        for group, count in most_within(times, interval_ms).items()
        if count > most
    ]
    return verdict("evictions within the budget", len(found), broken)


def evicted_once(history: History) -> Verdict:
    """A pod is asked to go once; a restarted agent goes on with what it began."""
    checked, broken = 0, list[str]()
    for node, outcomes in spending(history).items():
        asked = Counter(each.target for each in outcomes if each.result == "applied")
        checked += len(asked)
        broken += [f"{node}: {target} {times} times" for target, times in asked.items() if times > 1]
    return verdict("no pod evicted twice", checked, broken)
