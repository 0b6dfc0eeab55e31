"""Which CPU quotas a node says may move, and what it remembers between two looks: on virtual machines."""

import msgspec
from syrupy.assertion import SnapshotAssertion

from slacktide.agents.node.knobs import Bursts
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.knob import KnobKey, pod_group
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.node_burst import burst_settings
from testbed.samples import sample
from testbed.stories import each_story, story
from testbed.vectors import changed, each_row
from testbed.virtual.kernel import VirtualKernel

LIMIT = Resources(cpu_milli=1_000)
CAPACITY = Resources(cpu_milli=8_000, mem_bytes=8 << 30)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY)
ON = Policy(version="on", cpu_burst=CpuBurst(policy="auto"))
OFF = Policy(version="off")
SHORT = Policy(version="short", cpu_burst=CpuBurst(policy="auto", cfs_quota_burst_pct=200, cfs_quota_burst_period_s=10))


def pod(uid: str = "ls", **more) -> Pod:
    fields = {"qos_label": "LS", "kube_qos": "Burstable", "containers": [Container(name="main", limits=LIMIT)]} | more
    return Pod(uid=uid, namespace="shop", name=uid, limits=LIMIT, **fields)


class CountingKernel(VirtualKernel):
    """Knows how many pods' containers were looked at."""

    looked = 0

    def containers(self, pods, mono_ns, spare=()):
        self.looked += len(pods)
        return super().containers(pods, mono_ns, spare)


class Node:
    """A machine of 8 CPUs with limited pods, and what an agent does on it to let them burst."""

    def __init__(self, *pods: Pod, policy: Policy = ON, version: int = 1, demand_milli: int = 500) -> None:
        self.machine = Machine(cpus=8, mem_bytes=8 << 30, version=version)
        self.pods = list(pods or [pod()])
        for one in self.pods:
            self.machine.add_pod(one.uid, one.kube_qos, limit_milli=1_000).demand_milli = demand_milli
        self.policy = policy
        self.now_ns = 0
        self.seen, self.tokens, self.quotas_us = [], [], []
        self.restart()

    def restart(self, boot_id: str = "000000000007-0badcafe") -> None:
        self.kernel = CountingKernel(self.machine)
        self.bursts = Bursts(node="node-1", boot_id=boot_id, kernel=self.kernel)

    @property
    def group(self):
        return next(iter(self.machine.pods.values()))

    def look(self, ms: int = 1_000) -> list:
        """Let time pass, look, and have happen what follows from it."""
        self.machine.step(ms)
        self.now_ns += ms * 1_000_000
        self.kernel.know(self.pods)
        reading = self.kernel.read(self.now_ns)
        seen = self.bursts.state(FACTS, self.pods, self.policy, self.now_ns)
        changes = {"interval_ms": reading.interval_ms, "use": reading.use, "pod_use": reading.pod_use, "limits": None}
        taken = sample(0, burst=seen.containers, **changes)
        self.settings = burst_settings(taken, FACTS, self.pods, self.policy)
        for one in self.settings:
            self.kernel.put(KnobKey(one.group, one.knob), one.value)
        self.seen = seen.containers
        return self.seen

    def looks(self, count: int, ms: int = 1_000) -> list[int]:
        """The quota after each of some looks, which also have the tokens that were known at each."""
        self.tokens, self.quotas_us = [], []
        for _ in range(count):
            self.tokens += [one.tokens for one in self.look(ms)]
            self.quotas_us.append(self.group.quota_us)
        return self.quotas_us

    def demands(self, uid: str, milli: int) -> None:
        self.machine.pods[uid].demand_milli = milli

    def lift(self) -> None:
        """As a kubelet does for a pod that it gives whole CPUs."""
        self.group.quota_us = None

    def limit(self, milli: int) -> None:
        smaller = Resources(cpu_milli=milli)
        self.pods = [
            msgspec.structs.replace(pod(), limits=smaller, containers=[Container(name="main", limits=smaller)])
        ]

    def annotate(self, policy: str) -> None:
        self.pods = [pod(cpu_burst=f'{{"policy": "{policy}"}}')]

    def turn(self, policy: str) -> None:
        self.policy = {"on": ON, "off": OFF}[policy]

    def come(self, uid: str, milli: int) -> None:
        self.machine.add_pod(uid, "Burstable", limit_milli=1_000).demand_milli = milli

    def state(self) -> dict[str, object]:
        return {
            "quotas": self.quotas_us,
            "tokens": self.tokens,
            "named": [(one.pod, one.throttled_ratio, one.quota_us, one.used_milli, one.tokens) for one in self.seen],
            "pods looked at": self.kernel.looked,
            "throttled periods": [one.throttled_periods for one in self.machine.pods.values()][:3],
        }


@each_story("bursts")
def test_what_becomes_of_quotas(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    pods = [pod("ls"), *(pod(f"ls-{number}") for number in range(1, given.get("pods", 1)))]
    policy = {"on": ON, "off": OFF, "short": SHORT}[given.get("policy", "on")]
    changes = {name: value for name, value in given.items() if name in {"version", "demand_milli"}}

    assert story(Node(*pods, policy=policy, **changes), steps) == snapshot


def test_tokens_are_counted_by_whole_seconds_and_no_part_of_one_is_lost() -> None:
    node = Node(policy=SHORT, demand_milli=2_000)
    node.look()
    elapsed_s = [node.look(950)[0].elapsed_s for _ in range(40)]

    assert set(elapsed_s) == {0, 1}
    assert sum(elapsed_s) == 38


def test_what_is_said_of_tokens_is_what_the_decision_before_came_to() -> None:
    node = Node(policy=SHORT, demand_milli=1_200)
    node.looks(2)
    moves = 0
    for _ in range(12):
        after = [one.terms["after_tokens"] for one in node.settings if "after_tokens" in one.terms]
        said = [one.tokens for one in node.look()]
        moves += bool(after)
        assert not after or after == said

    assert moves > 1


def test_containers_begin_with_tokens_of_their_own_the_same_in_all_of_a_boot() -> None:
    def starts(boot_id: str) -> list[int]:
        node = Node(*(pod(f"ls-{number}") for number in range(5)), policy=SHORT, demand_milli=3_000)
        node.looks(1)
        node.restart(boot_id)
        node.look()
        return [int(one.tokens or 0) for one in node.look()]

    assert starts("a") == starts("a")
    assert starts("a") != starts("b")
    assert len(set(starts("a"))) == 5


@each_row("other")
def test_pods_that_cannot_burst_are_not_even_looked_at(other: dict) -> None:
    node = Node(changed(pod(), other), demand_milli=3_000)

    assert [node.look() for _ in range(3)] == [[], [], []]
    assert node.kernel.looked == 0


def test_what_is_above_its_limit_is_found_for_the_last_time_whatever_the_policy() -> None:
    node = Node(pod(), pod("calm"), demand_milli=500)
    node.group.demand_milli = 3_000
    node.looks(4)

    [above] = node.bursts.above_limit(node.pods, node.now_ns)
    assert (above.pod, above.quota_us) == ("ls", node.group.quota_us)
    assert pod_group(above.pod) == "pod/ls"
