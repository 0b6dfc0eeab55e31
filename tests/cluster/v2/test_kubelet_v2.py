"""A real kubelet on cgroup v2, with its static CPU policy, and the agent beside it: what each leaves to the other.

The tests run in this order, on one node that is booted once.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import OUTCOME, SAMPLE
from testbed.cluster.guest_node import KUBEPODS, GuestNode

from .conftest import BURST, Pods, set_policy, traced_s

pytestmark = [pytest.mark.alone, pytest.mark.guestnode, pytest.mark.timeout(900)]

PERIOD_US, LIMIT_US = 100_000, 20_000
"""Of the kernel's quotas, and what the service's limit makes of it."""
MIB = 1 << 20
TICKS_HZ = 100
"""Of a process's start in /proc."""
BEST_EFFORT, BURSTABLE = KUBEPODS / "besteffort", KUBEPODS / "burstable"
BELOW_PCT = 3
"""So far below present use is the threshold of memory eviction; one pod has more than that."""


def quota_us(node: GuestNode, group: Path) -> int | None:
    """Of 100 ms; None: no limit."""
    quota, _ = node.guest.read(group / "cpu.max").split()
    return None if quota == "max" else int(quota)


def used_milli(node: GuestNode, group: Path, seconds: float = 2) -> float:
    """What a group used on average meanwhile, by the guest's own clock."""
    look = f"cut -d' ' -f1 /proc/uptime; sed -n 's/usage_usec //p' {group}/cpu.stat"
    begun_s, before_us, ended_s, after_us = map(float, node.guest.sh(f"{look}; sleep {seconds}; {look}").split())
    return (after_us - before_us) / (ended_s - begun_s) / 1000


def held(node: GuestNode, uid: str, container: str) -> list[dict[str, str]]:
    """What a pod's group in the best-effort tier and its container's hold."""
    group = node.group("besteffort", uid)
    files = ("cpu.max", "cpu.weight", "memory.max")
    return [{file: node.guest.read(one / file) for file in files} for one in (group, group / container)]


def outcomes(node: GuestNode, rule: str) -> Iterator[NodeOutcome]:
    """What was done by a rule."""
    return (one for one in node.records(OUTCOME, NodeOutcome) if (one.rule, one.result) == (rule, "applied"))


def answers_limit(outcome: NodeOutcome) -> bool:
    """Whether an answer of the stream set or kept the limit of best-effort pods."""
    return (outcome.rule, outcome.origin) == ("cpu_suppress", "stream") and outcome.result in {"applied", "unchanged"}


@pytest.fixture
def batch(node: GuestNode, pods: Pods) -> tuple[Path, Path]:
    """The groups of the best-effort pod and of its container."""
    group = node.group("besteffort", pods.batch)
    return group, group / node.containers(pods.namespace)["batch"][0]


@pytest.mark.story
def test_the_agent_samples_the_pods_that_the_kubelet_runs(node: GuestNode, pods: Pods) -> None:
    def is_sampled() -> bool:
        last = node.records(SAMPLE, NodeSample)[-1]
        found = {one.uid: one.best_effort_group for one in last.pod_use}
        return found == {pods.web: False, pods.pinned: False, pods.batch: True, pods.hoard: True} and not last.missing

    node.wait(is_sampled, "a sample with all pods")


@pytest.mark.story
def test_best_effort_pods_use_no_more_than_the_stream_lets_them(node: GuestNode, pods: Pods) -> None:
    """Whoever wrote the limit: where the guard was first, the stream's answers leave it as it is."""

    def limits_us() -> list[int]:
        held = (one.after for one in node.records(OUTCOME, NodeOutcome) if answers_limit(one))
        return [one.be_cfs_quota_us for one in held if one is not None and one.be_cfs_quota_us is not None]

    def is_held() -> bool:
        """Not while what they overran by is paid back, or the guest stands still."""
        return 0 < used_milli(node, BEST_EFFORT) < 1.2 * max(limits_us()[-10:]) * 1000 / PERIOD_US

    node.wait(limits_us, "an answer in force")
    node.wait(is_held, "they use no more")
    assert quota_us(node, BEST_EFFORT)


def test_a_best_effort_pod_holds_what_it_bought(node: GuestNode, pods: Pods, batch: tuple[Path, Path]) -> None:
    """500 milli are 512 shares, which are weight 20."""
    bought = {"cpu.max": "50000 100000", "cpu.weight": "20", "memory.max": str(256 * MIB)}
    node.wait(lambda: held(node, pods.batch, batch[1].name) == [bought, bought], "what it bought")


def test_a_throttled_container_gets_more_than_its_limit(node: GuestNode, pods: Pods) -> None:
    pod = node.group("burstable", pods.web)
    container = pod / node.containers(pods.namespace)["web"][0]
    ceiling_us = LIMIT_US * BURST["cfsQuotaBurstPercent"] // 100

    node.wait(lambda: {quota_us(node, group) for group in (pod, container)} == {ceiling_us}, "the most it may have")
    assert {node.guest.read(group / "cpu.max.burst") for group in (pod, container)} == {str(LIMIT_US)}


def test_a_kubelet_started_again_finds_pods_and_limits_as_they_were(
    node: GuestNode, pods: Pods, batch: tuple[Path, Path]
) -> None:
    """And best-effort pods idle.

    With the static CPU policy a kubelet that starts has the CPU limits of each container written once more, by its
    spec. To the kubelet that spec has none, so the agent sets the limit again.
    """

    def written() -> int:
        knobs = (one.knob for one in outcomes(node, "BEIsolation") if one.target == f"pod/{pods.batch}/main")
        return sum(one is not None and one.knob == "cfs_quota_us" and one.before is None for one in knobs)

    set_policy(node, idle="pods")
    node.wait(lambda: node.guest.read(batch[0] / "cpu.idle") == "1", "the pod is idle")
    before, times = node.containers(pods.namespace), written()
    node.kubelet.stop()
    limited = [quota_us(node, BEST_EFFORT)]
    node.start_kubelet()
    limited.append(quota_us(node, BEST_EFFORT))
    last = node.records(SAMPLE, NodeSample)[-1]
    node.wait(lambda: written() > times, "the limit is set again")

    assert all(limited)
    assert node.containers(pods.namespace) == before
    assert {one.uid for one in last.pod_use} == {pods.web, pods.pinned, pods.batch, pods.hoard}
    assert [quota_us(node, group) for group in batch] == [50_000, 50_000]
    assert node.guest.read(batch[0] / "cpu.idle") == "1"


def test_burstable_s_weight_follows_a_new_pod_beside_idle_pods(
    node: GuestNode, pods: Pods, batch: tuple[Path, Path]
) -> None:
    """The kubelet that started beside them writes the weights of both tiers."""
    before = int(node.guest.read(BURSTABLE / "cpu.weight"))
    node.run(pods.namespace, "late", "burn", "serve", "1", "1000", resources={"requests": {"cpu": "300m"}})
    node.wait(lambda: int(node.guest.read(BURSTABLE / "cpu.weight")) > before, "burstable weighs more")

    assert node.guest.read(batch[0] / "cpu.idle") == "1"
    assert node.guest.read(BEST_EFFORT / "cpu.weight") == "1"
    node.delete(f"/api/v1/namespaces/{pods.namespace}/pods/late")
    node.wait(lambda: "late" not in node.containers(pods.namespace), "the new pod is gone")
    set_policy(node)
    node.wait(lambda: node.guest.read(batch[0] / "cpu.weight") == "20", "the pod weighs what it bought")


def test_over_an_idle_tier_no_kubelet_starts_until_the_policy_asks_no_more_for_it(node: GuestNode, pods: Pods) -> None:
    """Doctor warns of it: the kubelet writes the tier's weight, which Linux refuses. The agent works without it."""
    before = node.containers(pods.namespace)
    set_policy(node, idle="tier")
    node.wait(lambda: node.guest.read(BEST_EFFORT / "cpu.idle") == "1", "the tier is idle")
    node.kubelet.stop()
    node.kubelet.start()
    node.wait(lambda: not node.kubelet.running, "the kubelet ends")
    why = node.kubelet.log_end()
    set_policy(node)
    node.wait(lambda: node.guest.read(BEST_EFFORT / "cpu.idle") == "0", "the tier weighs again")
    weight = node.guest.read(BEST_EFFORT / "cpu.weight")
    node.start_kubelet()

    assert f"write {BEST_EFFORT}/cpu.weight: invalid argument" in why
    assert weight == "1"
    assert node.containers(pods.namespace) == before


def test_no_best_effort_process_ran_on_the_cpu_that_a_pod_has_alone_through_both_restarts(
    node: GuestNode, pods: Pods, batch: tuple[Path, Path]
) -> None:
    """By the kernel's record of its CPU 1, which both had before. The kubelet itself would take up to 10 s."""
    pinned = node.group("", pods.pinned) / node.containers(pods.namespace)["pinned"][0]
    [ticks] = node.guest.sh(f"cut -d' ' -f22 /proc/$(head -n1 {pinned}/cgroup.procs)/stat").split()
    records = node.records(SAMPLE, NodeSample)
    exclusive = {one.uid: one.exclusive_cpus for record in records for one in record.pods or ()}

    # Pods that were there for a moment before may be among them.
    assert exclusive.keys() >= {pods.web, pods.pinned, pods.batch, pods.hoard}
    assert {uid: cpus for uid, cpus in exclusive.items() if cpus} == {pods.pinned: "1"}
    assert node.guest.read(pinned / "cpuset.cpus.effective") == "1"
    assert node.guest.read(batch[1] / "cpuset.cpus.effective") == "0"
    assert max(traced_s(node)) < int(ticks) / TICKS_HZ


@pytest.mark.story
def test_when_memory_is_short_the_largest_best_effort_pod_is_evicted(node: GuestNode, pods: Pods) -> None:
    meminfo = dict(line.split(":") for line in node.guest.read("/proc/meminfo").splitlines())
    total, free = (int(meminfo[key].split()[0]) for key in ("MemTotal", "MemAvailable"))
    threshold_pct = (total - free) * 100 // total - BELOW_PCT
    set_policy(node, memoryEvictThresholdPercent=threshold_pct)
    by_agent = "fieldSelector=reportingController=slacktide.io/agent"
    events = f"/apis/events.k8s.io/v1/namespaces/{pods.namespace}/events?{by_agent}"
    node.wait(lambda: node.get(events)["items"], "the agent's Event")
    (event,) = node.get(events)["items"]
    node.wait(lambda: not node.exists(f"/api/v1/namespaces/{pods.namespace}/pods/hoard"), "the pod is gone")
    group = node.group("besteffort", pods.hoard)
    node.wait(lambda: node.guest.sh(f"[ -d {group} ] || echo gone"), "its group is gone")

    assert event["regarding"]["uid"] == pods.hoard
    assert f"threshold {threshold_pct}%" in event["note"]
    told = [each["status"] for each in node.get(f"/api/v1/namespaces/{pods.namespace}/pods")["items"]]
    more = [each["note"] for each in node.get(events)["items"]]
    assert set(node.containers(pods.namespace)) == {"web", "pinned", "batch"}, f"{told}; {more}"


def test_free_and_mid_pods_hold_their_limits_and_suppression_spares_the_mid_pod(
    node: GuestNode, pods: Pods, batch: tuple[Path, Path]
) -> None:
    """A free pod has the least weight. Beside a mid pod the others have a quota each, and their tier has none.

    Without the pod that had a CPU alone, for a container's start has the pod's weight, too.
    """
    set_policy(node)
    node.delete(f"/api/v1/namespaces/{pods.namespace}/pods/pinned")
    node.wait(lambda: node.guest.read(batch[1] / "cpuset.cpus.effective") == "0-1", "best-effort pods have both CPUs")
    here, of_free = pods.namespace, {"cpu.max": "30000 100000", "cpu.weight": "1", "memory.max": str(64 * MIB)}
    of_mid = {"cpu.max": "50000 100000", "cpu.weight": "20", "memory.max": str(96 * MIB)}
    uids = {}
    for tier, cpu_milli, mem_mib, bought in (("free", 300, 64, of_free), ("mid", 500, 96, of_mid)):
        uid = node.best_effort(here, tier, "burn", "spin", "1", cpu_milli=cpu_milli, mem_mib=mem_mib, tier=tier)
        node.wait(lambda tier=tier: tier in node.containers(here), f"the {tier} pod runs")
        its, both = (uid, node.containers(here)[tier][0]), [bought, bought]
        node.wait(lambda its=its, both=both: held(node, *its) == both, f"the {tier} pod's limits")
        uids[tier] = uid
    node.wait(lambda: quota_us(node, BEST_EFFORT) is None, "the tier has no limit")
    shares = [quota_us(node, group) for group in (batch[0], node.group("besteffort", uids["free"]))]
    for name, uid in uids.items():
        node.delete(f"/api/v1/namespaces/{here}/pods/{name}")
        gone = node.group("besteffort", uid)
        node.wait(lambda gone=gone: node.guest.sh(f"[ -d {gone} ] || echo gone"), f"the {name} pod's group is gone")
    node.wait(lambda: quota_us(node, BEST_EFFORT), "the tier is limited again")

    assert all(share is not None and share <= most for share, most in zip(shares, (50_000, 30_000), strict=True))


def test_without_a_policy_and_an_agent_nothing_of_ours_is_left(
    node: GuestNode, pods: Pods, batch: tuple[Path, Path]
) -> None:
    """The first step of the page's removal, then the agent is stopped."""
    node.delete("/api/v1/namespaces/koordinator-system/configmaps/slo-controller-config")
    node.wait(lambda: quota_us(node, BEST_EFFORT) is None, "the limit is lifted")
    web = node.group("burstable", pods.web)
    node.wait(lambda: quota_us(node, web) == LIMIT_US, "the service has its own limit")
    node.agent.stop()
    held = [node.guest.read(group / "cpu.max").split()[0] for group in batch]

    assert held == ["max", "max"]
    assert node.guest.read(BEST_EFFORT / "cpu.weight") == "1"
    assert node.guest.read(web / "cpu.max.burst") == "0"
