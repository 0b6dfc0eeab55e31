"""Evicts pods as far as credit allows, and holds back the others. Uses the Eviction API in a cluster, else cgroups."""

from collections.abc import Sequence

import msgspec

from slacktide.agents.credit_account import CreditAccount
from slacktide.agents.node.evict.eviction_api import EvictionRequest
from slacktide.agents.node.evict.eviction_client import EvictionApi, Requests
from slacktide.agents.node.evict.holdback import THAWED, Holdback, Starved
from slacktide.agents.node.evict.reclaimer import Reclaimer
from slacktide.agents.node.evict.victims import INTERRUPTED, Standing, Victims
from slacktide.agents.node.interfaces import Reading
from slacktide.agents.node.protocol import Taken
from slacktide.agents.node.reporter import Doors, Paced, ends_or_stops, pod_of
from slacktide.schemas.credit import NO_CREDIT
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.outcome import NodeOutcome, Origin, Result, Spent
from slacktide.schemas.policy import Policy, ResourceThreshold
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.sample import BeCpuWindow, EvictState
from slacktide.streams.decisions.evict.be_cpu_history import BeCpuHistory
from slacktide.streams.decisions.evict.node_evict import CPU_RULES, MEMORY_RULES, NOTICE, Eviction

BY_POLICY = "dry run, by the policy"
THROUGH_API = "through the Eviction API"
SECOND_NS = 1_000_000_000
LAPSES_NS = 30_000_000_000
"""A pod not selected by a rule for this long gets a new notice. Rules pause 20 s after another eviction."""


class Notices:
    """Pods with a notice, by uid."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[int, int]] = {}
        """When the notice began, and when a rule last selected the pod."""

    def left_ns(self, uid: str, notice_ns: int, now_ns: int) -> int:
        """Return the notice time left for a selected pod; 0: evict it; all of ``notice_ns``: its notice begins now."""
        self._given = {one: seen for one, seen in self._given.items() if now_ns - seen[1] <= LAPSES_NS}
        given_ns, _ = self._given.get(uid, (now_ns, now_ns))
        self._given[uid] = given_ns, now_ns
        return max(0, given_ns + notice_ns - now_ns)


class Evictor:
    """The one place that ends best-effort pods."""

    def __init__(
        self,
        doors: Doors,
        eviction_client: EvictionApi | None,
        credit_account: CreditAccount,
        *,
        grace_ms_max: int,
        dry_run: bool,
    ) -> None:
        self._doors = doors
        self._credit_account = credit_account
        self._grace_ms_max = grace_ms_max
        self._dry_run = dry_run
        self._victims = Victims(doors)
        self._requests = None if eviction_client is None else Requests(eviction_client, doors)
        self._holdback = Holdback(doors)
        self._reclaimer = Reclaimer(doors, dry_run=dry_run)
        self._threshold = ResourceThreshold()
        self._be_cpu = BeCpuHistory()
        self._window: BeCpuWindow | None = None
        self._may_kill = False
        self._suspended = ""
        self._dry_run_rules: frozenset[str] = frozenset()
        self._notice_s = 0
        self._notices = Notices()
        self._paced = Paced()
        self._mem_ns: int | None = None
        # A node that has just started is busy: no eviction for CPU at once.
        self._cpu_ns = doors.mono_ns()

    @property
    def standing(self) -> Standing:
        """How many pods are terminating or held back."""
        return Standing(
            dying=len(self._victims),
            stuck=len(self._victims.stuck),
            frozen=self._holdback.frozen,
            throttled=self._holdback.throttled,
            freezes=not self._doors.best_effort.freeze_trouble,
            reclaim_paused=self._reclaimer.paused,
        )

    def start(self) -> None:
        """Continue the last run's evictions, and thaw the pods that it froze, also before a dry run."""
        intents = list(filter(ends_or_stops, self._doors.actuator.interrupted()))
        self._holdback.resume(one for one in intents if one.bound == THAWED)
        if self._dry_run:
            return
        ends, begun = self._victims.resume([one for one in intents if one.bound != THAWED])
        for end in ends:
            self._cool(end.rule)
        for begin in begun:
            if self._requests is None or self._suspended:
                failed = msgspec.structs.replace(begin, result="failed", reason=f"{INTERRUPTED}: not started")
                self._doors.actuator.conclude(failed)
                continue
            # Request an eviction again that an earlier run may not have sent.
            assert begin.pod is not None
            pod = Pod(uid=pod_of(begin), namespace=begin.pod.namespace, name=begin.pod.name)
            request, grace_ms = self._request(pod)
            again = msgspec.structs.replace(begin, reason=f"{INTERRUPTED}: {begin.reason}")
            self._requests.ask(request, again, grace_ms, None)

    def state(self, now_ns: int) -> EvictState:
        """Return the state of evictions for a sample at this monotonic time."""
        return EvictState(
            since_mem_ms=None if self._mem_ns is None else (now_ns - self._mem_ns) // 1_000_000,
            since_cpu_ms=(now_ns - self._cpu_ns) // 1_000_000,
            dying=self._victims.dying + ([] if self._requests is None else self._requests.dying),
            stuck=self._victims.stuck,
            kept=[] if self._requests is None else self._requests.patience.kept(self._doors.mono_ns()),
            be_cpu=self._window,
        )

    def look(self) -> None:
        """Check which pods are gone. Called before each reading, so that the sample counts their memory as free."""
        self.settle()
        self._victims.look()
        self._holdback.look()

    def settle(self) -> None:
        """Read the replies of the API server, if there is one."""
        if self._requests is None:
            return
        for asked in self._requests.settle(self._credit_account):
            begin = asked.begin
            self._holdback.release(pod_of(begin))
            self._victims.follow(begin, asked.grace_ms, asked.taken)
            if begin.result == "applied":
                self._cool(begin.rule)
                self._requests.client.report(self._doors.reporter.dated(begin, asked.taken))

    def saw(self, reading: Reading, facts: NodeFacts, pods: Sequence[Pod], policy: Policy, now_ns: int) -> None:
        """Record the CPU that best-effort pods got, and the thresholds in force."""
        self._be_cpu.saw(now_ns, reading, facts, pods)
        threshold = self._threshold = resource_threshold_on(policy, facts)
        self._window = self._be_cpu.window(threshold)
        self._may_kill = threshold.mem_evict_fallback == "kill"
        self._notice_s = threshold.evict_notice_s
        self._dry_run_rules = (MEMORY_RULES if threshold.mem_evict_dry_run else frozenset()) | (
            CPU_RULES if threshold.cpu_evict_dry_run else frozenset()
        )

    def carry_out(self, victims: Sequence[Eviction], taken: Taken, origin: Origin, reason: str) -> None:
        """Evict as far as credit and the API server allow. Hold back the other victims."""
        starved: list[Starved] = []
        refused: list[tuple[str, NodeOutcome]] = []
        dry_run: list[tuple[str, NodeOutcome]] = []
        fed = False
        for victim in victims:
            spent = Spent(evictions=self._credit_account.spent, epoch=self._credit_account.epoch)
            begun = self._doors.reporter.begun_on(victim, taken, origin, reason)
            outcome = msgspec.structs.replace(begun, spent=spent)
            uid = victim.pod.uid
            on_its_way = uid in self._victims or (self._requests is not None and self._requests.open(uid))
            if on_its_way or not self._there(outcome, taken):
                continue
            if self._dry_run:
                self._doors.report(msgspec.structs.replace(outcome, result="dry-run"), taken)
            elif victim.rule in self._dry_run_rules:
                dry_run.append((BY_POLICY, outcome))
            elif left_ns := self._left_ns(victim):
                self._notify(outcome, left_ns, taken)
            elif why := self._refuses(victim):
                starved.append((victim, why))
                refused.append((why, outcome))
            elif why := self._evict(victim, outcome, taken):
                starved.append((victim, why))
            else:
                fed = fed or uid in self._victims
        self._report(refused, "refused", taken)
        self._report(dry_run, "dry-run", taken)
        self._holdback.step(starved, taken, origin, fed=fed)
        self._reclaimer.carry_out(taken, self._threshold, evicting=bool(victims))

    def suspend(self, reason: str) -> None:
        """Thaw held pods and begin no eviction until called with ""."""
        self._suspended = reason
        if reason:
            self._holdback.let_all_go_on(f"suspended by {reason}")

    def close(self) -> None:
        """Thaw held pods. The next start continues with terminating ones."""
        self._holdback.close()
        self._reclaimer.close()

    def _left_ns(self, victim: Eviction) -> int:
        notice_ns = self._notice_s * SECOND_NS
        return self._notices.left_ns(victim.pod.uid, notice_ns, self._doors.mono_ns()) if notice_ns else 0

    def _notify(self, outcome: NodeOutcome, left_ns: int, taken: Taken) -> None:
        """Announce an eviction: for each pod at once, with an Event; then once per second for each namespace."""
        assert outcome.pod is not None
        begins = left_ns == self._notice_s * SECOND_NS
        left_s = -(-left_ns // SECOND_NS)
        kind = outcome.rule, outcome.pod.namespace, NOTICE
        if not begins and not self._paced.count(kind, self._doors.mono_ns()):
            return
        why = f"evicted in {left_s} s, if a rule still selects it then"
        terms = outcome.terms | {"notice_s": self._notice_s, "left_s": left_s}
        reason = f"{outcome.reason}; {why}" if outcome.reason else why
        notice = msgspec.structs.replace(outcome, bound=NOTICE, reason=reason, terms=terms, spent=None)
        self._doors.report(notice, taken)
        if begins and self._requests is not None:
            self._requests.client.report(self._doors.reporter.dated(notice, taken))

    def _refuses(self, victim: Eviction) -> str:
        pod, requests = victim.pod, self._requests
        if requests is not None and not self._by_cgroup(victim) and (why := requests.refuses(pod.uid)):
            return why
        return "" if self._credit_account.ready(self._doors.mono_ns(), pod.namespace) else NO_CREDIT

    def _by_cgroup(self, victim: Eviction) -> bool:
        """Whether to kill a pod through its cgroup: there is no API server, or it is away and the policy allows it."""
        if self._requests is None:
            return True
        if not self._may_kill or victim.rule not in MEMORY_RULES:
            return False
        return self._holdback.exhausted and self._requests.patience.away and not self._requests.asked(victim.pod.uid)

    def _there(self, outcome: NodeOutcome, taken: Taken) -> bool:
        try:
            if self._doors.best_effort.processes(pod_of(outcome)):
                return True
            not_there = msgspec.structs.replace(outcome, reason="it has no processes")
        except CgroupError as exc:
            not_there = msgspec.structs.replace(outcome, result="refused", reason=str(exc))
        self._doors.refusals.add(self._doors.reporter.dated(not_there, taken), self._doors.mono_ns())
        return False

    def _evict(self, victim: Eviction, outcome: NodeOutcome, taken: Taken) -> str:
        """Begin the eviction. Return why the pod must be held back meanwhile; "": it need not be."""
        grace_ms = min(victim.pod.grace_s * 1_000, self._grace_ms_max)
        requests = self._requests
        if requests is not None and not self._by_cgroup(victim):
            trouble = requests.patience.why
            request, grace_ms = self._request(victim.pod)
            begin = self._meant(outcome, f"{THROUGH_API}, {grace_ms} ms to end")
            self._doors.actuator.intend(self._doors.reporter.dated(begin, taken))
            self._credit_account.reserve(self._doors.mono_ns())
            requests.ask(request, begin, grace_ms, taken)  # ``settle`` processes the reply
            return trouble
        begin = self._meant(outcome, f"SIGTERM, and SIGKILL after {grace_ms} ms")
        self._victims.begin(begin, grace_ms, taken, lambda: self._credit_account.spend(self._doors.mono_ns()))
        self._holdback.evicted(victim.pod.uid)
        self._cool(victim.rule)
        if requests is not None:
            requests.client.report(self._doors.reporter.dated(begin, taken))
        return ""

    def _request(self, pod: Pod) -> tuple[EvictionRequest, int]:
        shorter = pod.grace_s * 1_000 > self._grace_ms_max
        grace_s = max(1, -(-self._grace_ms_max // 1_000)) if shorter else pod.grace_s
        request = EvictionRequest(
            uid=pod.uid, namespace=pod.namespace, name=pod.name, grace_s=grace_s if shorter else None
        )
        return request, grace_s * 1_000

    def _meant(self, outcome: NodeOutcome, done: str) -> NodeOutcome:
        return msgspec.structs.replace(
            outcome,
            result="applied",
            reason=f"{outcome.reason}; {done}" if outcome.reason else done,
            spent=Spent(evictions=self._credit_account.spent + 1, epoch=self._credit_account.epoch),
        )

    def _cool(self, rule: str) -> None:
        if rule in MEMORY_RULES:
            self._mem_ns = self._doors.mono_ns()
        else:
            self._cpu_ns = self._doors.mono_ns()

    def _report(self, undone: Sequence[tuple[str, NodeOutcome]], result: Result, taken: Taken) -> None:
        """Report at once, since the governor waits for it, then at most once per second for each namespace."""
        for why, outcome in undone:
            assert outcome.pod is not None
            kind = outcome.rule, outcome.pod.namespace, why
            count = self._paced.count(kind, self._doors.mono_ns())
            if count:
                self._doors.report(msgspec.structs.replace(outcome, result=result, reason=why, count=count), taken)
