"""Other nodes: samples as their agents would take them, of 30 pods each. Pure."""

import random
import uuid

from slacktide.schemas.inventory import NodeFacts, Pod, Resources, revision_of
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import KEYFRAME_MS, Limits, NodeSample, NodeUse, PodUse, Pressure
from slacktide.streams.decisions.suppress.cpu_suppress import decide

PODS = 30
CAPACITY = Resources(cpu_milli=16_000, mem_bytes=64 << 30)
KEYFRAME_EVERY = KEYFRAME_MS // 1_000
"""A sample a second."""
USUAL_MILLI = 50, 400


def name_of(number: int) -> str:
    """A node's name."""
    return f"fleet-{number:04d}"


class FleetNode:
    """One node whose pods' use varies; its limit follows its own decisions, as the stream's answers would have it."""

    def __init__(self, number: int, policy: Policy, *, pods: int = PODS) -> None:
        self.name = name_of(number)
        self._dice = random.Random(number)
        self._policy = policy
        self._boot_id = f"{1:012d}-{number:08x}"
        self._seq = 0
        self._facts = NodeFacts(name=self.name, capacity=CAPACITY, allocatable=CAPACITY)
        self._pods = [self._pod(place) for place in range(pods)]
        self._usual_milli = [self._dice.randrange(*USUAL_MILLI) for _ in self._pods]
        self._revisions = revision_of(self._facts), revision_of(self._pods)
        self._limits = Limits(be_cfs_quota_us=None)

    @property
    def facts(self) -> NodeFacts:
        """The facts that a sample names."""
        return self._facts

    @property
    def pods(self) -> list[Pod]:
        """The list that a sample names now."""
        return self._pods

    def sample(self, now_ms: int) -> NodeSample:
        """The next sample; every 60th carries pods and facts."""
        keyframe = self._seq % KEYFRAME_EVERY == 0
        self._seq += 1
        sample = self.shape(now_ms, keyframe=keyframe)
        self._limits = decide(sample, self._facts, self._pods, self._policy).limits or self._limits
        return sample

    def shape(self, now_ms: int, *, keyframe: bool) -> NodeSample:
        """A sample as the node would take it now; nothing moves on."""
        use_milli = [round(usual * self._dice.uniform(0.7, 1.3)) for usual in self._usual_milli]
        return NodeSample(
            node=self.name,
            boot_id=self._boot_id,
            seq=self._seq,
            observed_ms=now_ms,
            interval_ms=1000 if self._seq > 1 else 0,
            policy_version=self._policy.version,
            facts_revision=self._revisions[0],
            pods_revision=self._revisions[1],
            use=NodeUse(
                cpu_milli=sum(use_milli) + 400,
                mem_bytes=self._dice.randrange(20 << 30, 30 << 30),
                pressure=Pressure(
                    cpu_some_pct=round(self._dice.uniform(0, 30), 2),
                    mem_some_pct=0.0,
                    mem_full_pct=0.0,
                    io_some_pct=0.12,
                    io_full_pct=0.1,
                ),
            ),
            pod_use=[self._pod_use(pod, use) for pod, use in zip(self._pods, use_milli, strict=True)],
            limits=self._limits,
            since_raise_ms=1000,
            facts=self._facts if keyframe else None,
            pods=self._pods if keyframe else None,
        )

    def replace_pod(self, place: int) -> None:
        """One pod ends, and another comes in its place."""
        self._pods[place] = self._pod(place)
        self._usual_milli[place] = self._dice.randrange(*USUAL_MILLI)
        self._revisions = self._revisions[0], revision_of(self._pods)

    def _pod(self, place: int) -> Pod:
        batch = place % 3 == 0
        return Pod(
            uid=str(uuid.UUID(int=self._dice.getrandbits(128), version=4)),
            namespace="batch" if batch else "shop",
            name=f"{'crunch' if batch else 'service'}-{place}-{self._dice.getrandbits(20):05x}",
            qos_label="BE" if batch else "LS",
            priority=5_500 if batch else 9_500,
            kube_qos="BestEffort" if batch else "Burstable",
            requests=Resources(batch_cpu_milli=500) if batch else Resources(cpu_milli=400, mem_bytes=1 << 30),
        )

    def _pod_use(self, pod: Pod, use_milli: int) -> PodUse:
        batch = pod.kube_qos == "BestEffort"
        return PodUse(
            uid=pod.uid,
            cpu_milli=use_milli,
            mem_bytes=self._dice.randrange(1 << 28, 1 << 30),
            periods=10 if batch else None,
            throttled_periods=self._dice.randrange(10) if batch else None,
            best_effort_group=batch,
        )
