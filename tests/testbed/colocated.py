"""Virtual nodes under a policy in simulated time: seeded loads, real decisions, and the log that comes of it.

A service has slow waves, bursts and surges of memory. Batch jobs want more or less CPU; one that is evicted comes back
as another pod of the same job. Loads depend on the seed alone, so that two policies meet the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from slacktide.deploy.cli.virtual.kernel import VirtualKernel
from slacktide.deploy.cli.virtual.machine import Machine
from slacktide.schemas.inventory import NodeFacts, Pod, Resources, revision_of
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import EvictState, NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import SAMPLE_COLUMNS
from slacktide.streams.advise.advice import Choice, Tag, advise
from slacktide.streams.advise.trials import Trials, Tried
from slacktide.streams.decisions.node_decision import decide_node
from slacktide.streams.records import Record
from slacktide.streams.replay.policies import Policies
from testbed.samples import BOOT, GIB, START_MS, policy_record

CPUS, MEM_BYTES = 16, 64 * GIB
STEP_S = 2
JOBS, JOB_LIMIT_MILLI = 5, 4_000
GRACE_S = 4
"""A victim takes all of it."""
LINE_PCT = 90.0


def policy(suppress_pct: int, evict_pct: int) -> Policy:
    """Two thresholds; everything else is the reference's default."""
    threshold = ResourceThreshold(
        enable=True,
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_pct=suppress_pct,
        mem_evict_threshold_pct=evict_pct,
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
    def drawn(cls, seed: Sequence[int], steps: int) -> Loads:
        dice = np.random.default_rng(list(seed))
        bursts = np.zeros(steps)
        for at in np.flatnonzero(dice.random(steps) < STEP_S / 120):
            bursts[at : at + int(dice.integers(3, 10))] += 3_000
        surges = np.zeros(steps)
        for at in np.flatnonzero(dice.random(steps) < STEP_S / 400):
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
    """One virtual node, and an agent that does what the answers say at once."""

    name: str
    loads: Loads
    policy_version: str
    machine: Machine = field(default_factory=lambda: Machine(cpus=CPUS, mem_bytes=MEM_BYTES))
    used_milli_ms: int = 0
    evicted: int = 0
    _pods: dict[str, Pod] = field(default_factory=dict)
    _job_of: dict[str, int] = field(default_factory=dict)
    _absent: dict[int, float] = field(default_factory=dict)
    """Jobs without a pod, and when their next one comes, in seconds."""
    _dying: dict[str, float] = field(default_factory=dict)
    """Victims, and when they will have ended."""
    _since_raise_ms: int | None = None
    _since_mem_ms: int | None = None
    _now_s: float = 0.0
    _listed: str = ""
    _begun: int = 0

    def __post_init__(self) -> None:
        self._kernel = VirtualKernel(self.machine)
        self._facts = NodeFacts(
            name=self.name,
            capacity=Resources(cpu_milli=CPUS * 1_000, mem_bytes=MEM_BYTES),
            allocatable=Resources(cpu_milli=CPUS * 1_000, mem_bytes=MEM_BYTES),
        )
        requests = Resources(cpu_milli=10_000, mem_bytes=24 * GIB)
        self._pods["service"] = Pod(
            uid="service", namespace="shop", name="service", kube_qos="Burstable", requests=requests
        )
        self.machine.add_pod("service", "Burstable", request_milli=10_000)
        for job in range(JOBS):
            self._begin(job)

    def _begin(self, job: int) -> None:
        self._begun += 1
        uid = f"job-{job}-{self._begun}"
        amounts = Resources(batch_cpu_milli=JOB_LIMIT_MILLI, batch_mem_bytes=6 * GIB)
        self._pods[uid] = Pod(
            uid=uid, namespace="jobs", name=uid, qos_label="BE", kube_qos="BestEffort",
            requests=Resources(batch_cpu_milli=2_000, batch_mem_bytes=6 * GIB), limits=amounts, grace_s=GRACE_S,
        )  # fmt: skip
        self.machine.add_pod(uid, "BestEffort")
        self._job_of[uid] = job

    def step(self, step: int) -> Record:
        """Time passes; the sample of it."""
        for uid in [uid for uid, at_s in self._dying.items() if at_s <= self._now_s + STEP_S]:
            del self._dying[uid], self._pods[uid]
            self.machine.remove_pod(uid)
            self._absent[self._job_of.pop(uid)] = self._now_s + self.loads.back_s[self.evicted % 500]
        for job in [job for job, at_s in self._absent.items() if at_s <= self._now_s]:
            del self._absent[job]
            self._begin(job)
        service = self.machine.pods["service"]
        service.demand_milli = int(self.loads.service_milli[step])
        service.mem_bytes = int(self.loads.service_bytes[step])
        for uid, job in self._job_of.items():
            pod = self.machine.pods[uid]
            pod.demand_milli = int(self.loads.jobs_milli[job, step])
            pod.mem_bytes = int(self.loads.job_bytes[job])
        self.machine.step(STEP_S * 1_000)
        self._now_s += STEP_S
        for name in ("_since_raise_ms", "_since_mem_ms"):
            value = getattr(self, name)
            setattr(self, name, None if value is None else value + STEP_S * 1_000)
        return self._record(step)

    def _record(self, step: int) -> Record:
        reading = self._kernel.read(round(self._now_s * 1e9))
        pods = list(self._pods.values())
        listed = ",".join(self._pods)
        carried = {"facts": self._facts, "pods": pods} if listed != self._listed or step % 30 == 0 else {}
        self._listed = listed
        if reading.interval_ms:
            be = sum(use.cpu_milli or 0 for use in reading.pod_use if use.best_effort_group)
            self.used_milli_ms += be * reading.interval_ms
        self._newest = sample = NodeSample(
            node=self.name, boot_id=BOOT, seq=step, observed_ms=START_MS + step * STEP_S * 1_000,
            interval_ms=reading.interval_ms, policy_version=self.policy_version,
            facts_revision=revision_of(self._facts), pods_revision=revision_of(pods), use=reading.use,
            pod_use=list(reading.pod_use), limits=reading.limits, since_raise_ms=self._since_raise_ms,
            evict=EvictState(since_mem_ms=self._since_mem_ms, dying=list(self._dying)), **carried,
        )  # fmt: skip
        return Record(
            topic=SAMPLE_COLUMNS.name, partition=0, offset=0, timestamp_ms=sample.observed_ms,
            key=self.name.encode(), value=encoded(sample, pods),
        )  # fmt: skip

    def decide(self, policy: Policy) -> None:
        """Decide the newest sample as worker and agent do, and do it at once."""
        decision = decide_node(self._newest, self._facts, list(self._pods.values()), policy)
        if decision.limits.answer == "set" and decision.limits.limits is not None:
            before = self.machine.best_effort.quota_us
            self._kernel.hold(decision.limits.limits)
            after = self.machine.best_effort.quota_us
            if before is not None and (after is None or after > before):
                self._since_raise_ms = 0
        for victim in decision.evict:
            uid = victim.pod.uid
            if uid in self._job_of and uid not in self._dying:
                self._dying[uid] = self._now_s + GRACE_S
                self.evicted += 1
                self._since_mem_ms = 0


def run(policy: Policy, seeds: Iterable[tuple[int, int]], steps: int) -> tuple[list[Node], list[Record]]:
    """Let a policy act on the nodes of these seeds: (run, node). The nodes afterwards, and their samples."""
    nodes = [
        Node(f"run-{of_run:03}-node-{number}", Loads.drawn((of_run, number), steps), policy.version)
        for of_run, number in seeds
    ]
    log: list[Record] = []
    for step in range(steps):
        for node in nodes:
            log.append(msgspec.structs.replace(node.step(step), offset=len(log)))
            node.decide(policy)
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
    """Record one policy, foretell the other from the log, then let the other one act.

    Args:
        recorded: what acts while the log is written.
        other: what is foretold.
        runs: seeds.
        nodes: of each run.
        steps: of ``STEP_S`` each.
        later: let the other one meet new loads of the same kind, not the recorded ones.

    """
    seeds = [(of_run, number) for of_run in runs for number in range(nodes)]
    _, log = run(recorded, seeds, steps)
    trials = Trials(
        Policies([msgspec.structs.replace(policy_record(recorded), timestamp_ms=START_MS - 1)]), [other],
        line_pct=LINE_PCT,
    )  # fmt: skip
    for record in log:
        trials.take(record)
    tried = trials.finish()
    acted, _ = run(other, [(of_run + 10_000 * later, number) for of_run, number in seeds], steps)
    found = []
    for at, of_run in enumerate(runs):
        mine = acted[at * nodes : (at + 1) * nodes]
        said = advise(_only(tried, f"run-{of_run:03}-"), [Tag(policy_version=other.version)], LINE_PCT).choices[0]
        core_h = sum(node.used_milli_ms for node in mine) / 3.6e9
        found.append(Foretold(choice=said, core_h=core_h, evictions=sum(node.evicted for node in mine)))
    return found


def _only(tried: Tried, prefix: str) -> Tried:
    trials = [{name: node for name, node in trial.items() if name.startswith(prefix)} for trial in tried.trials]
    demand = {name: one for name, one in tried.demand.items() if name.startswith(prefix)}
    return msgspec.structs.replace(tried, trials=trials, demand=demand)
