"""Carries evictions out as far as credit goes, and remembers them; victims without credit are held back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from slacktide.agents.node.acts import begun_on, cause_of, ends_or_stops, pod_of
from slacktide.agents.node.actuator import Actuator
from slacktide.agents.node.evict.be_cpu import BeCpuHistory
from slacktide.agents.node.evict.best_effort import BestEffortPods
from slacktide.agents.node.evict.credit import NO_CREDIT, Wallet
from slacktide.agents.node.evict.holdback import THAWED, Holdback, Wanted
from slacktide.agents.node.evict.standing import Standing
from slacktide.agents.node.evict.victims import Victims
from slacktide.agents.node.kernel import Reading
from slacktide.agents.node.protocol import Taken
from slacktide.agents.node.refusals import Paced, Refusals
from slacktide.agents.node.reporter import Reporter
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.outcome import NodeOutcome, Origin, Spent
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.sample import BeCpuWindow, EvictState
from slacktide.streams.decisions.node_evict import MEMORY_RULES, Eviction


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Where an eviction acts, and where it is said."""

    best_effort: BestEffortPods
    actuator: Actuator
    reporter: Reporter
    refusals: Refusals
    mono_ns: Callable[[], int]


class Evictor:
    """The one place that ends best-effort pods."""

    def __init__(self, doors: Doors, wallet: Wallet, *, grace_ms_max: int, dry_run: bool) -> None:
        self._doors = doors
        self._wallet = wallet
        self._grace_ms_max = grace_ms_max
        self._dry_run = dry_run
        self._victims = Victims(doors.best_effort, doors.actuator, doors.reporter, doors.mono_ns)
        self._holdback = Holdback(
            best_effort=doors.best_effort,
            actuator=doors.actuator,
            reporter=doors.reporter,
            refusals=doors.refusals,
            mono_ns=doors.mono_ns,
        )
        self._be_cpu = BeCpuHistory()
        self._window: BeCpuWindow | None = None
        self._paced = Paced()
        self._mem_ns: int | None = None
        # A node that has just come up is busy: by CPU nobody goes at once.
        self._cpu_ns = doors.mono_ns()

    @property
    def standing(self) -> Standing:
        """How many are on their way out or held back now."""
        return Standing(
            dying=len(self._victims),
            stuck=len(self._victims.stuck),
            frozen=self._holdback.frozen,
            throttled=self._holdback.throttled,
            freezes=not self._doors.best_effort.freeze_trouble,
        )

    def start(self) -> None:
        """Go on with what the last run began: who was dying dies, who was frozen goes on."""
        if self._dry_run:
            return
        intents = list(filter(ends_or_stops, self._doors.actuator.interrupted()))
        self._holdback.resume(one for one in intents if one.bound == THAWED)
        for end in self._victims.resume([one for one in intents if one.bound != THAWED]):
            self._cool(end.rule)

    def state(self, now_ns: int) -> EvictState:
        """What the node remembers of evictions, at this monotonic instant."""
        return EvictState(
            since_mem_ms=None if self._mem_ns is None else (now_ns - self._mem_ns) // 1_000_000,
            since_cpu_ms=(now_ns - self._cpu_ns) // 1_000_000,
            dying=self._victims.dying,
            stuck=self._victims.stuck,
            be_cpu=self._window,
        )

    def look(self) -> None:
        """See who is gone, before the kernel is read: what they used is then seen to be free."""
        self._victims.look()
        self._holdback.look()

    def saw(self, reading: Reading, facts: NodeFacts, pods: Sequence[Pod], policy: Policy, now_ns: int) -> None:
        """The kernel was read: what best-effort pods got is remembered."""
        self._be_cpu.saw(now_ns, reading, facts, pods)
        self._window = self._be_cpu.window(resource_threshold_on(policy, facts))

    def carry_out(self, victims: Sequence[Eviction], taken: Taken, origin: Origin, reason: str) -> None:
        """Evict, as far as credit goes; with none left, hold the victims back."""
        starved: list[tuple[Eviction, NodeOutcome]] = []
        fed = False
        for victim in victims:
            outcome = self._begun(victim, taken, origin, reason)
            if victim.pod.uid in self._victims or not self._there(outcome, taken):
                continue
            if self._dry_run:
                self._say(msgspec.structs.replace(outcome, result="dry-run"), taken)
            elif self._wallet.ready(self._doors.mono_ns(), victim.pod.namespace):
                self._evict(victim, outcome, taken)
                fed = True
            else:
                starved.append((victim, outcome))
        self._refuse([outcome for _, outcome in starved], taken)
        self._holdback.step(Wanted(starved=[victim for victim, _ in starved], fed=fed, taken=taken, origin=origin))

    def close(self) -> None:
        """Who is held back goes on; who is dying is left to the next start."""
        self._holdback.close()

    def _begun(self, victim: Eviction, taken: Taken, origin: Origin, reason: str) -> NodeOutcome:
        begun = begun_on(victim.pod, cause_of(victim, taken, origin, reason), self._doors.reporter)
        return msgspec.structs.replace(begun, spent=Spent(evictions=self._wallet.spent, epoch=self._wallet.epoch))

    def _there(self, outcome: NodeOutcome, taken: Taken) -> bool:
        """Whether there is anybody who could go; asked of the node itself, whatever a message claims."""
        try:
            if self._doors.best_effort.processes(pod_of(outcome)):
                return True
            not_there = msgspec.structs.replace(outcome, reason="no process runs in it")
        except CgroupError as exc:
            not_there = msgspec.structs.replace(outcome, result="refused", reason=str(exc))
        self._doors.refusals.add(self._doors.reporter.dated(not_there, taken), self._doors.mono_ns())
        return False

    def _evict(self, victim: Eviction, outcome: NodeOutcome, taken: Taken) -> None:
        grace_ms = min(victim.pod.grace_s * 1_000, self._grace_ms_max)
        done = f"SIGTERM, and SIGKILL after {grace_ms} ms"
        begin = msgspec.structs.replace(
            outcome,
            result="applied",
            reason=f"{outcome.reason}; {done}" if outcome.reason else done,
            spent=Spent(evictions=self._wallet.spent + 1, epoch=self._wallet.epoch),
        )
        self._victims.begin(begin, grace_ms, taken, lambda: self._wallet.spend(self._doors.mono_ns()))
        self._holdback.evicted(victim.pod.uid)
        self._cool(victim.rule)

    def _cool(self, rule: str) -> None:
        """From now on counts until the rules of this kind may name somebody again."""
        if rule in MEMORY_RULES:
            self._mem_ns = self._doors.mono_ns()
        else:
            self._cpu_ns = self._doors.mono_ns()

    def _refuse(self, starved: Sequence[NodeOutcome], taken: Taken) -> None:
        """Say it at once, for the governor waits for it, and then no more than once a second for each namespace."""
        for outcome in starved:
            assert outcome.pod is not None
            count = self._paced.count((outcome.rule, outcome.pod.namespace), self._doors.mono_ns())
            if count:
                self._say(msgspec.structs.replace(outcome, result="refused", reason=NO_CREDIT, count=count), taken)

    def _say(self, outcome: NodeOutcome, taken: Taken) -> None:
        self._doors.actuator.conclude(self._doors.reporter.dated(outcome, taken))
