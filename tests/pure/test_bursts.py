"""Which CPU quotas a node says may move, and what it remembers between two looks: on virtual machines."""

import msgspec
import pytest

from slacktide.agents.node.knobs.bursts import Bursts
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.knob import KnobKey, pod_group
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.burst.node_burst import burst_settings
from testbed.virtual.kernel import VirtualKernel

LIMIT = Resources(cpu_milli=1_000)
CAPACITY = Resources(cpu_milli=8_000, mem_bytes=8 << 30)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY)
ON = Policy(version="on", cpu_burst=CpuBurst(policy="auto"))
OFF = Policy(version="off")
SHORT = Policy(version="short", cpu_burst=CpuBurst(policy="auto", cfs_quota_burst_pct=200, cfs_quota_burst_period_s=10))
CAPACITY_TOKENS = 10 * 100


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
        sample = NodeSample(
            node="node-1",
            boot_id="",
            seq=0,
            observed_ms=0,
            interval_ms=reading.interval_ms,
            policy_version="",
            facts_revision="",
            pods_revision="",
            use=reading.use,
            pod_use=reading.pod_use,
            limits=None,
            burst=seen.containers,
        )
        self.settings = burst_settings(sample, FACTS, self.pods, self.policy)
        for one in self.settings:
            self.kernel.put(KnobKey(one.group, one.knob), one.value)
        return seen.containers

    def looks(self, count: int, ms: int = 1_000) -> list[int]:
        """The quota after each of some looks."""
        return [self.group.quota_us for _ in range(count) if self.look(ms) is not None]


@pytest.mark.parametrize("version", [1, 2])
def test_a_throttled_containers_quota_rises_until_its_demand_fits(version: int) -> None:
    node = Node(version=version, demand_milli=1_500)
    quotas_us = node.looks(6)

    assert quotas_us == [100_000, 120_000, 144_000, 172_800, 172_800, 172_800]
    throttled = node.group.throttled_periods
    [still] = node.look()
    assert (still.throttled_ratio, still.quota_us, still.used_milli) == (0.0, 172_800, 1_500)
    assert node.group.throttled_periods == throttled


def test_of_a_calm_node_nothing_is_said() -> None:
    node = Node(*(pod(f"ls-{number}") for number in range(100)))

    assert [node.look() for _ in range(3)] == [[], [], []]


def test_only_who_is_throttled_or_holds_more_is_named() -> None:
    node = Node(pod(), pod("calm"))
    node.group.demand_milli = 3_000
    node.looks(3)

    assert [one.pod for one in node.look()] == ["ls"]


def test_the_quota_moves_once_a_second_however_often_samples_are_taken() -> None:
    node = Node(demand_milli=4_000)
    node.looks(2)
    quotas_us = node.looks(15, ms=200)

    assert quotas_us == [120_000] * 4 + [144_000] * 5 + [172_800] * 5 + [207_360]


def test_tokens_are_counted_by_whole_seconds_and_no_part_of_one_is_lost() -> None:
    node = Node(policy=SHORT, demand_milli=2_000)
    node.look()
    elapsed_s = [node.look(950)[0].elapsed_s for _ in range(40)]

    assert set(elapsed_s) == {0, 1}
    assert sum(elapsed_s) == 38


def test_once_its_tokens_are_spent_a_container_goes_back_to_its_limit() -> None:
    node = Node(policy=SHORT, demand_milli=2_000)
    seen = [one for _ in range(12) for one in node.look()]
    said = [one.tokens for one in seen if one.tokens is not None]

    assert 0 <= seen[0].start_tokens < CAPACITY_TOKENS // 2
    assert said == sorted(said, reverse=True)
    assert max(node.looks(5)) == 100_000
    node.group.demand_milli = 100
    saved = node.looks(30)
    assert set(saved) == {100_000}, "nothing to give back"
    node.group.demand_milli = 1_200
    assert node.looks(3)[-1] > 100_000, "what it saved it may spend"


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


def test_a_container_that_went_and_came_back_begins_anew() -> None:
    node = Node(policy=SHORT, demand_milli=2_000)
    node.looks(12)
    assert node.look()[0].tokens < 0
    node.machine.remove_pod("ls")
    assert node.look() == []
    node.machine.add_pod("ls", "Burstable", limit_milli=1_000).demand_milli = 2_000
    node.look()

    assert node.look()[0].tokens > 0


@pytest.mark.parametrize("version", [1, 2])
def test_a_policy_that_goes_off_gives_all_back_and_then_reads_nothing(version: int) -> None:
    node = Node(version=version, demand_milli=3_000)
    node.looks(5)
    node.policy = OFF
    assert node.looks(3) == [100_000] * 3
    looked = node.kernel.looked
    node.looks(5)

    assert node.kernel.looked == looked
    node.policy = ON
    assert node.looks(2)[-1] > 100_000, "and on again it goes on"


def test_what_a_last_run_left_above_the_limit_is_given_back_by_one_whose_policy_is_off() -> None:
    node = Node(demand_milli=3_000)
    node.looks(5)
    assert node.group.quota_us > 150_000
    node.restart()
    node.policy = OFF

    assert node.looks(2) == [100_000, 100_000]


def test_under_a_policy_without_quota_burst_a_pod_is_looked_at_twice() -> None:
    node = Node(pod(), pod("two"), policy=OFF)
    node.looks(10)

    assert node.kernel.looked == 2 * 2


def test_a_pods_annotation_turns_it_on_and_off() -> None:
    node = Node(policy=OFF, demand_milli=3_000)
    node.looks(3)
    node.pods = [pod(cpu_burst='{"policy": "cfsQuotaBurstOnly"}')]
    assert node.looks(4)[-1] > 100_000
    node.pods = [pod(cpu_burst='{"policy": "none"}')]
    assert node.looks(2)[-1] == 100_000


def test_a_limit_that_changes_is_the_new_base() -> None:
    node = Node(demand_milli=3_000)
    node.looks(5)
    smaller = Resources(cpu_milli=800)
    node.pods = [msgspec.structs.replace(pod(), limits=smaller, containers=[Container(name="main", limits=smaller)])]
    node.policy = OFF

    assert node.looks(2)[-1] == 80_000


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"qos_label": "LSR"}, id="it has CPUs of its own"),
        pytest.param({"qos_label": "BE"}, id="it is best-effort"),
        pytest.param({"phase": "Succeeded"}, id="it has ended"),
        pytest.param({"containers": [Container(name="main")]}, id="its container has no limit"),
        pytest.param({"containers": []}, id="its containers are not told"),
    ],
)
def test_pods_that_cannot_burst_are_not_even_looked_at(other: dict) -> None:
    node = Node(pod(**other), demand_milli=3_000)

    assert [node.look() for _ in range(3)] == [[], [], []]
    assert node.kernel.looked == 0


def test_who_holds_no_quota_though_a_limit_is_left_alone() -> None:
    """As a pod that was given whole CPUs by a kubelet that lifts the quota for that."""
    node = Node(demand_milli=3_000)
    node.group.quota_us = None

    assert [node.look() for _ in range(3)] == [[], [], []]


def test_what_is_above_its_limit_is_found_for_the_last_time_whatever_the_policy() -> None:
    node = Node(pod(), pod("calm"), demand_milli=500)
    node.group.demand_milli = 3_000
    node.looks(4)

    [above] = node.bursts.above_limit(node.pods, node.now_ns)
    assert (above.pod, above.quota_us) == ("ls", node.group.quota_us)
    assert pod_group(above.pod) == "pod/ls"
