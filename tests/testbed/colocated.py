"""Nodes under a policy: seeded loads, real decisions, and the log that comes of it. Simulated or on real groups.

A service has slow waves, bursts and surges of memory. Batch jobs want more or less CPU; one that is evicted comes back
as another pod of the same job. Loads depend on the seed alone, so that two policies meet the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from slacktide.agents.node.interfaces import Reading
from slacktide.schemas.inventory import NodeFacts, Pod, Resources, revision_of
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import EvictState, NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.analysis.advise.advice import Choice, Tag, advise
from slacktide.streams.analysis.advise.trials import Trials, Tried
from slacktide.streams.analysis.replay.policies import Policies
from slacktide.streams.decisions.evict.be_cpu_history import BeCpuHistory
from slacktide.streams.decisions.node_decision import decide_node
from slacktide.streams.decisions.suppress.cpu_suppress import looser
from slacktide.streams.records import Record
from testbed.fitted import FITTED
from testbed.plants import STEP_S, Behaviour, Plant, VirtualPlant
from testbed.samples import BOOT, GIB, START_MS, policy_record

CPUS, MEM_BYTES = 16, 64 * GIB
WHOLE = Resources(cpu_milli=CPUS * 1_000, mem_bytes=MEM_BYTES)
JOBS, JOB_LIMIT_MILLI, JOB_REQUEST_MILLI, JOB_BYTES = 5, 4_000, 2_000, 6 * GIB
SERVICE_REQUEST = Resources(cpu_milli=10_000, mem_bytes=24 * GIB)
GRACE_S = 4
"""A victim takes all of it."""
LINE_PCT = 90.0


def policy(suppress_pct: int, evict_pct: int, satisfied_pct: int | None = None) -> Policy:
    threshold = ResourceThreshold(
        enable=True,
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_pct=suppress_pct,
        mem_evict_threshold_pct=evict_pct,
        cpu_evict_be_satisfaction_lower_pct=satisfied_pct,
        cpu_evict_be_satisfaction_upper_pct=None if satisfied_pct is None else satisfied_pct + 5,
        cpu_evict_time_window_s=None if satisfied_pct is None else 60,
    )
    return policy_of(Colocation(enable=True), threshold)


@dataclass(frozen=True, slots=True)
class Loads:
    """What a node's pods want, step by step."""

    service_milli: np.ndarray
    service_bytes: np.ndarray
    jobs_milli: np.ndarray
    """Jobs by steps."""
    job_bytes: np.ndarray
    back_s: np.ndarray
    """How long the successors of each eviction take."""

    @classmethod
    def drawn(cls, seed: Sequence[int], steps: int, surge_each_s: float = 400) -> Loads:
        dice = np.random.default_rng(list(seed))
        bursts = np.zeros(steps)
        for at in np.flatnonzero(dice.random(steps) < STEP_S / 120):
            bursts[at : at + int(dice.integers(3, 10))] += 3_000
        surges = np.zeros(steps)
        for at in np.flatnonzero(dice.random(steps) < STEP_S / surge_each_s):
            length = int(dice.integers(20, 45))
            shape = np.interp(np.arange(length), [0, 10, length - 5, length], [0, 1, 1, 0])
            part = surges[at : at + length]
            part[:] = np.maximum(part, shape[: len(part)] * dice.uniform(2, 16) * GIB)
        return cls(
            service_milli=np.clip(_waves(dice, steps, 5_000, 1_500, 120) + bursts, 200, 14_000),
            service_bytes=20 * GIB + surges,
            jobs_milli=np.clip(
                np.array([_waves(dice, steps, 1_500, 1_000, 60) for _ in range(JOBS)]), 0, JOB_LIMIT_MILLI
            ),
            job_bytes=dice.uniform(3, 5, JOBS) * GIB,
            back_s=dice.uniform(10, 40, 500),
        )

    def on(self, size: Resources) -> Loads:
        """The same loads on a node of another size."""
        cpu, mem = (size.cpu_milli or 0) / (CPUS * 1_000), (size.mem_bytes or 0) / MEM_BYTES
        return Loads(
            service_milli=self.service_milli * cpu,
            service_bytes=self.service_bytes * mem,
            jobs_milli=self.jobs_milli * cpu,
            job_bytes=self.job_bytes * mem,
            back_s=self.back_s,
        )


def _waves(dice: np.random.Generator, steps: int, mean: float, sd: float, tau_s: float) -> np.ndarray:
    """A load that wanders around its mean and forgets within ``tau_s`` (Ornstein and Uhlenbeck)."""
    kept = np.exp(-STEP_S / tau_s)
    noise = dice.normal(0, sd * np.sqrt(1 - kept**2), steps)
    found, at = np.empty(steps), dice.normal(0, sd)
    for step in range(steps):
        at = at * kept + noise[step]
        found[step] = mean + at
    return found


@dataclass
class Node:
    name: str
    loads: Loads
    policy: Policy
    plant: Plant
    size: Resources = WHOLE
    used_milli_ms: int = 0
    evicted: int = 0
    wants: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By pod, millicores and bytes: of the newest sample."""
    _pods: dict[str, Pod] = field(default_factory=dict)
    _job_of: dict[str, int] = field(default_factory=dict)
    _absent: dict[int, float] = field(default_factory=dict)
    """Jobs without a pod, and when their next one comes, in seconds."""
    _dying: list[str] = field(default_factory=list)
    _since_ms: dict[str, int | None] = field(default_factory=lambda: {"raise": None, "mem": None, "cpu": 0})
    _history: BeCpuHistory = field(default_factory=BeCpuHistory)
    _now_s: float = 0.0
    _listed: str = ""
    _begun: int = 0

    def __post_init__(self) -> None:
        self.loads = self.loads.on(self.size)
        self._history.window(self.policy.resource_threshold)
        self._facts = NodeFacts(name=self.name, capacity=self.size, allocatable=self.size)
        requests = self._sized(SERVICE_REQUEST)
        self._pods["service"] = Pod(
            uid="service", namespace="shop", name="service", kube_qos="Burstable", requests=requests
        )
        self.plant.begin("service", best_effort=False, request_milli=requests.cpu_milli or 0)
        for job in range(JOBS):
            self._begin(job)

    def _sized(self, whole: Resources) -> Resources:
        """What is this much of a whole node, on this one."""
        cpu, mem = (self.size.cpu_milli or 0) / (CPUS * 1_000), (self.size.mem_bytes or 0) / MEM_BYTES
        return Resources(cpu_milli=round((whole.cpu_milli or 0) * cpu), mem_bytes=round((whole.mem_bytes or 0) * mem))

    def _begin(self, job: int) -> None:
        self._begun += 1
        uid = f"job-{job}-{self._begun}"
        request, most = (
            self._sized(Resources(cpu_milli=milli, mem_bytes=JOB_BYTES))
            for milli in (JOB_REQUEST_MILLI, JOB_LIMIT_MILLI)
        )
        self._pods[uid] = Pod(
            uid=uid, namespace="jobs", name=uid, qos_label="BE", kube_qos="BestEffort", phase="Running",
            requests=Resources(batch_cpu_milli=request.cpu_milli, batch_mem_bytes=request.mem_bytes),
            limits=Resources(batch_cpu_milli=most.cpu_milli, batch_mem_bytes=most.mem_bytes), grace_s=GRACE_S,
        )  # fmt: skip
        self.plant.begin(uid, best_effort=True)
        self._job_of[uid] = job

    def step(self, step: int) -> Record:
        """Time passes; the sample of it."""
        for job in [job for job, at_s in self._absent.items() if at_s <= self._now_s]:
            del self._absent[job]
            self._begin(job)
        loads = self.loads
        self.wants = {"service": (int(loads.service_milli[step]), int(loads.service_bytes[step]))}
        self.wants |= {
            uid: (int(loads.jobs_milli[job, step]), int(loads.job_bytes[job])) for uid, job in self._job_of.items()
        }
        for uid, (milli, mem_bytes) in self.wants.items():
            self.plant.want(uid, milli, mem_bytes)
        reading = self.plant.step()
        self._now_s += STEP_S
        for uid in [uid for uid in self._dying if self.plant.gone(uid)]:
            self._dying.remove(uid)
            del self._pods[uid]
            self._absent[self._job_of.pop(uid)] = self._now_s + self.loads.back_s[self.evicted % 500]
        self._since_ms = {
            name: None if value is None else value + STEP_S * 1_000 for name, value in self._since_ms.items()
        }
        return self._record(step, reading)

    def _record(self, step: int, reading: Reading) -> Record:
        pods = list(self._pods.values())
        self._history.saw(round(self._now_s * 1e9), reading, self._facts, pods)
        listed = ",".join(self._pods)
        carried = {"facts": self._facts, "pods": pods} if listed != self._listed or step % 30 == 0 else {}
        self._listed = listed
        if reading.interval_ms:
            be = sum(use.cpu_milli or 0 for use in reading.pod_use if use.best_effort_group)
            self.used_milli_ms += be * reading.interval_ms
        self.newest = sample = NodeSample(
            node=self.name, boot_id=BOOT, seq=step, observed_ms=START_MS + step * STEP_S * 1_000,
            interval_ms=reading.interval_ms, policy_version=self.policy.version,
            facts_revision=revision_of(self._facts), pods_revision=revision_of(pods), use=reading.use,
            pod_use=list(reading.pod_use), limits=reading.limits, since_raise_ms=self._since_ms["raise"],
            evict=EvictState(
                since_mem_ms=self._since_ms["mem"], since_cpu_ms=self._since_ms["cpu"], dying=list(self._dying),
                be_cpu=self._history.window(self.policy.resource_threshold),
            ), **carried,
        )  # fmt: skip
        return record_of(sample, pods)

    def decide(self) -> None:
        decision = decide_node(self.newest, self._facts, list(self._pods.values()), self.policy)
        limits, held = decision.limits.limits, self.newest.limits
        if decision.limits.answer == "set" and limits is not None:
            self.plant.hold(limits)
            if held is not None and looser(limits, held):
                self._since_ms["raise"] = 0
        for victim in decision.evict:
            uid = victim.pod.uid
            if uid in self._job_of and uid not in self._dying:
                self._dying.append(uid)
                self.plant.terminate(uid)
                self.evicted += 1
                self._since_ms["mem" if "Mem" in victim.rule else "cpu"] = 0


def record_of(sample: NodeSample, pods: Sequence[Pod]) -> Record:
    return Record(
        topic=SAMPLE.name, partition=0, offset=0, timestamp_ms=sample.observed_ms,
        key=sample.node.encode(), value=encoded(sample, pods),
    )  # fmt: skip


def run(
    policy: Policy, seeds: Iterable[tuple[int, int]], steps: int, behaviour: Behaviour = FITTED
) -> tuple[list[Node], list[Record]]:
    """Let a policy act on the nodes of these seeds: (run, node). The nodes afterwards, and their samples."""
    nodes = [
        Node(
            f"run-{of_run:03}-node-{number}",
            Loads.drawn((of_run, number), steps),
            policy,
            VirtualPlant(cpus=CPUS, mem_bytes=MEM_BYTES, grace_s=GRACE_S, behaviour=behaviour, seed=(of_run, number)),
        )
        for of_run, number in seeds
    ]
    log: list[Record] = []
    for step in range(steps):
        for node in nodes:
            log.append(msgspec.structs.replace(node.step(step), offset=len(log)))
            node.decide()
    return nodes, log


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """One run: what was foretold of a policy, and what it came to."""

    choice: Choice
    core_h: float
    evictions: int

    @property
    def inside(self) -> bool:
        """Whether best-effort core-hours came to lie in the range."""
        return self.choice.be_core_h.low <= self.core_h <= self.choice.be_core_h.high


def calibrate(recorded: Policy, other: Policy, runs: Sequence[int], *, nodes: int = 3, steps: int = 450,
              later: bool = False) -> list[Foretold]:  # fmt: skip
    """Record one policy, foretell the other, then let that one act: on the recorded loads, or ``later`` on new ones."""
    seeds = [(of_run, number) for of_run in runs for number in range(nodes)]
    _, log = run(recorded, seeds, steps)
    tried = foretold(recorded, other, log)
    acted, _ = run(other, [(of_run + 10_000 * later, number) for of_run, number in seeds], steps)
    found = []
    for at, of_run in enumerate(runs):
        mine = acted[at * nodes : (at + 1) * nodes]
        said = advise(_only(tried, f"run-{of_run:03}-"), [Tag(policy_version=other.version)], LINE_PCT).choices[0]
        core_h = sum(node.used_milli_ms for node in mine) / 3.6e9
        found.append(Foretold(choice=said, core_h=core_h, evictions=sum(node.evicted for node in mine)))
    return found


def foretold(recorded: Policy, other: Policy, log: Iterable[Record]) -> Tried:
    written = msgspec.structs.replace(policy_record(recorded), timestamp_ms=START_MS - 1)
    trials = Trials(Policies([written]), [other], line_pct=LINE_PCT)
    for record in log:
        trials.take(record)
    return trials.finish()


def _only(tried: Tried, prefix: str) -> Tried:
    trials = [{name: node for name, node in trial.items() if name.startswith(prefix)} for trial in tried.trials]
    demand = {name: one for name, one in tried.demand.items() if name.startswith(prefix)}
    return msgspec.structs.replace(tried, trials=trials, demand=demand)
