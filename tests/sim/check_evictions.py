"""What must hold of each pod that goes: best-effort, wanted by the rule, in its time, paid for, and counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.policies import BUDGET
from sim.trace import Checks
from slacktide.deploy.virtual.machine import BEST_EFFORT
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.inventory import Pod
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.sample import NodeSample

if TYPE_CHECKING:
    from sim.node import Node
    from sim.world import World

COOL_MS = 4_000


@dataclass(frozen=True, slots=True)
class Evicted:
    at_ms: int
    node: str
    outlasted: bool
    """By a lease that was over, with the log away: one to a node, beside the budget."""
    incarnation: int
    """Of the log: one that was made anew has forgotten what was spent before."""


class BudgetChecks(Checks):
    """Never more evictions in any while than the policy's budget, whatever governors and agents say of them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._recent: deque[Evicted] = deque()

    def evicts(self, node: str, *, outlasted: bool) -> None:
        log = self._world.log
        self._recent.append(Evicted(self._now_ms, node, outlasted, log.incarnation))
        while self._recent[0].at_ms <= self._now_ms - BUDGET["intervalSeconds"] * 1_000:
            self._recent.popleft()
        paid = [one for one in self._recent if one.incarnation == log.incarnation and not one.outlasted]
        self._must(len(paid) <= BUDGET["clusterMax"], "more evictions than the cluster's budget", *paid)
        mine = [one for one in paid if one.node == node]
        self._must(len(mine) <= BUDGET["nodeMax"], f"{node}: more evictions than a node's budget", *mine)


@dataclass(slots=True)
class Asked:
    since_ms: int
    seq: int


class EvictionChecks(Checks):
    """Judges one node's evictions by its machine, and by the leases that its agent heard."""

    def __init__(self, node: Node, budget: BudgetChecks) -> None:
        super().__init__(node.world, node.name)
        self._node = node
        self._budget = budget
        self._meant: dict[str, NodeOutcome] = {}
        self._asked: dict[str, Asked] = {}
        self._grace_ms: dict[str, int] = {}
        self.evicted = 0
        self.frozen = 0
        self.booted("")

    def booted(self, boot_id: str) -> None:
        """A new agent: it has no credit yet, and knows of evictions only what its spool tells it."""
        self._boot_id = boot_id
        self._spent = 0
        self._lease: EvictionCredit | None = None
        self._until_ms = 0
        self._outlasted = False
        self._last: Asked | None = None

    def told(self, pods: Sequence[Pod]) -> None:
        self._grace_ms |= {pod.uid: pod.grace_s * 1_000 for pod in pods}

    @property
    def dying(self) -> set[str]:
        return {uid for uid in self._asked if uid in self._node.machine.pods}

    def hears(self, credit: EvictionCredit, since_ms: int) -> None:
        """A lease, of the governor's last term or the one before it."""
        lease = self._lease
        if lease is not None and (credit.epoch, credit.number) <= (lease.epoch, lease.number):
            return
        self._lease = credit
        if credit.boot_id == self._boot_id:
            self._until_ms, self._outlasted = since_ms + credit.ttl_ms, False

    def says(self, sample: NodeSample) -> None:
        """What a sample tells of evictions is so."""
        before = {uid for uid in self.dying if self._asked[uid].seq != sample.seq}
        self._must(set(sample.evict.dying) == before, "others are dying than it says", sample.evict, before)
        self._must(not sample.evict.stuck, "nobody is stuck here", sample.evict)
        if self._last is not None and self._last.seq != sample.seq:
            since_ms = self._now_ms - self._last.since_ms
            self._must(sample.evict.since_mem_ms == since_ms, "the last eviction was not then", sample.evict, since_ms)

    def intended(self, outcome: NodeOutcome) -> None:
        """A pod is to go, or to be frozen: the first is what credit is for."""
        if outcome.spent is not None:
            self._must(outcome.spent.evictions == self._spent + 1, "miscounts what it spent", outcome, self._spent)
            self._meant[_uid(outcome)] = outcome

    def meant(self, uid: str) -> NodeOutcome | None:
        return self._meant.get(uid)

    def terminates(self, uid: str, samples: Mapping[int, NodeSample]) -> None:
        """A pod is asked to end: once, but for an agent that goes on with what the one before it began."""
        meant = self._meant.get(uid)
        self._touches(uid)
        self._must(meant is not None, "asks a pod to end without an intent", uid)
        mine = meant.boot_id == self._boot_id
        self._must(not mine or uid not in self._asked, "asks a pod to end twice", uid)
        if mine:
            self._spent += 1
            sample = samples.get(meant.seq)
            self._must(sample is not None, "evicts by a sample that was never taken", meant)
            self._budget.evicts(self._node.name, outlasted=self._paid_for(meant))
            last = self._last
            if last is not None and last.seq != meant.seq:
                since_ms = self._now_ms - last.since_ms
                self._must(since_ms >= COOL_MS, "evicts again too soon: milliseconds since the last", since_ms)
            self._wanted(uid, sample)
            self.evicted += 1
        asked = self._asked[uid] = Asked(self._now_ms, meant.seq)
        if mine:
            self._last = asked

    def kills(self, uid: str) -> None:
        """A pod that did not end by itself, in the time that it has for that."""
        self._touches(uid)
        asked = self._asked.get(uid)
        self._must(asked is not None, "kills whom it never asked to end", uid)
        waited_ms = self._now_ms - asked.since_ms
        self._must(waited_ms >= self._grace_ms[uid], "kills before the grace is over", uid, waited_ms)

    def freezes(self, uid: str) -> None:
        """A pod is stopped, for want of credit."""
        self._touches(uid)
        self._must(uid not in self.dying, "freezes who is dying", uid)
        self.frozen += 1

    def ended(self, outcome: NodeOutcome) -> None:
        """A second outcome says that a pod is gone."""
        if outcome.bound in {"ended", "killed"} and outcome.result == "applied":
            self._must(_uid(outcome) not in self._node.machine.pods, "says that it is gone, and it is there", outcome)

    def finished(self) -> None:
        """After the quiet time nobody is on the way out, and nobody is held back."""
        self._must(not self.dying, "still dying", self.dying)
        frozen = [pod.uid for pod in self._node.machine.pods.values() if pod.frozen]
        self._must(not frozen, "frozen and forgotten", frozen)

    def _touches(self, uid: str) -> None:
        group = self._node.machine.pods.get(uid)
        inside = group is None or group.path.startswith(f"{BEST_EFFORT}/")
        self._must(inside, "touches a pod that is not best-effort", uid)

    def _paid_for(self, meant: NodeOutcome) -> bool:
        """Whether it is the one eviction that a lease allows which is over while Kafka is unreachable."""
        lease, pod = self._lease, meant.pod
        self._must(lease is not None and pod is not None, "evicts without credit", meant)
        self._must(lease.boot_id == self._boot_id, "evicts on another boot's credit", meant, lease)
        self._must(self._spent <= lease.granted, "evicts without credit", meant, lease, self._spent)
        self._must(pod.namespace not in lease.spared_namespaces, "evicts of a spared namespace", meant, lease)
        outlasted = self._now_ms >= self._until_ms
        if outlasted:
            away = self._node.log_away and not self._outlasted
            self._must(away, "evicts on a lease that is over", meant, self._now_ms - self._until_ms)
            self._outlasted = True
        return outlasted

    def _wanted(self, uid: str, sample: NodeSample) -> None:
        """By the rule's own arithmetic: more was to be released than is on its way."""
        node = self._node
        pod = next((one for one in node.pods if one.uid == uid), None)
        best_effort = pod is not None and pod.qos_label == "BE" and not pod.unheld
        self._must(best_effort, "evicts who is not best-effort", uid)
        threshold = resource_threshold_on(node.policy, node.facts)
        used_bytes, capacity_bytes = sample.use.mem_bytes or 0, node.facts.capacity.mem_bytes or 0
        used_pct, threshold_pct = used_bytes * 100 // capacity_bytes, threshold.mem_evict_threshold_pct
        wants = threshold.enable and threshold_pct is not None and used_pct >= threshold_pct
        self._must(wants, "evicts where no policy wants it", used_pct, threshold_pct)
        lower_pct = threshold_pct - 2 if threshold.mem_evict_lower_pct is None else threshold.mem_evict_lower_pct
        wanted_bytes = capacity_bytes * (used_pct - lower_pct) // 100
        coming_bytes = sum(use.mem_bytes or 0 for use in sample.pod_use if use.uid in self.dying)
        self._must(coming_bytes < wanted_bytes, "evicts although enough is dying", uid, coming_bytes, wanted_bytes)


def _uid(outcome: NodeOutcome) -> str:
    return outcome.target.removeprefix("pod/")
