"""What knobs of groups shall hold: isolation by spec, QoS classes, static burst, and what is given back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.resource_qos import CpuQos, MemoryQos, QosClass, QosPolicies, ResourceQos
from slacktide.schemas.policy.strategies import Colocation, CpuBurst
from slacktide.schemas.sample import Drift
from slacktide.streams.decisions.knobs.node_knobs import RELEASED, drift_settings, wanted

MIB = 1 << 20
FACTS = NodeFacts(
    name="n", capacity=Resources(cpu_milli=4000, mem_bytes=1 << 33), allocatable=Resources(mem_bytes=1000 * MIB)
)
ON = Policy(version="", colocation=Colocation(enable=True))


def batch(cpu=None, mem=None):
    return Resources(batch_cpu_milli=cpu, batch_mem_bytes=mem)


def container(name, requests, limits=None):
    return Container(name=name, id=f"id{name}", requests=requests, limits=requests if limits is None else limits)


def summed(parts):
    fields = [f"{tier}{name}" for tier in ("", "batch_", "mid_", "free_") for name in ("cpu_milli", "mem_bytes")]
    return Resources(**{name: sum(getattr(one, name) or 0 for one in parts) or None for name in fields})


def pod(uid, kube_qos, *containers, qos=None, **more):
    return Pod(
        uid=uid,
        namespace="n",
        name=uid,
        kube_qos=kube_qos,
        qos_label=qos,
        requests=summed([one.requests for one in containers]),
        limits=summed([one.limits for one in containers]),
        containers=list(containers),
        **more,
    )


def values(policy, *pods, facts=FACTS):
    return {tuple(key): one.value for key, one in wanted(facts, pods, policy).items()}


def test_a_best_effort_pod_holds_what_its_spec_bought() -> None:
    """Shares of the request, quota and memory of the limit; the pod the sum of its containers."""
    one = container("a", batch(500, 64 * MIB), batch(1000, 128 * MIB))
    other = container("b", batch(1500, 64 * MIB))

    assert values(ON, pod("be", "BestEffort", one, other, qos="BE")) == {
        ("pod/be", "cpu_shares"): 2048,
        ("pod/be", "cfs_quota_us"): 250_000,
        ("pod/be", "mem_limit_bytes"): 192 * MIB,
        ("pod/be/a", "cpu_shares"): 512,
        ("pod/be/a", "cfs_quota_us"): 100_000,
        ("pod/be/a", "mem_limit_bytes"): 128 * MIB,
        ("pod/be/b", "cpu_shares"): 1536,
        ("pod/be/b", "cfs_quota_us"): 150_000,
        ("pod/be/b", "mem_limit_bytes"): 64 * MIB,
    }


def test_a_mid_pod_holds_what_it_bought_though_it_is_latency_sensitive() -> None:
    bought = Resources(mid_cpu_milli=500, mid_mem_bytes=64 * MIB)
    held = {"cpu_shares": 512, "cfs_quota_us": 50_000, "mem_limit_bytes": 64 * MIB}
    mid = pod("mid", "BestEffort", container("a", bought), qos="LS", priority=7_500)

    assert values(ON, mid) == {
        (group, knob): value for group in ("pod/mid", "pod/mid/a") for knob, value in held.items()
    }


def test_a_free_pod_is_held_by_its_limits_and_has_the_least_weight() -> None:
    bought = Resources(free_cpu_milli=4_000, free_mem_bytes=64 * MIB)
    held = {"cpu_shares": 2, "cfs_quota_us": 400_000, "mem_limit_bytes": 64 * MIB}
    free = pod("free", "BestEffort", container("a", bought), qos="BE", priority=3_500)

    assert values(ON, free) == {
        (group, knob): value for group in ("pod/free", "pod/free/a") for knob, value in held.items()
    }
    assert values(ON, msgspec.structs.replace(free, qos_label="LS")) == {}, "free resources are for class BE"


def test_mid_memory_is_protected_by_the_class_of_its_pod() -> None:
    bought = Resources(mid_cpu_milli=500, mid_mem_bytes=64 * MIB)
    strategy = ResourceQos(ls=QosClass(mem=MemoryQos(enable=True, min_limit_pct=100)))
    held = values(
        Policy(version="", resource_qos=strategy),
        pod("mid", "BestEffort", container("a", bought), qos="LS", priority=7_500),
    )

    assert held["pod/mid", "mem_min_bytes"] == held["tier/besteffort", "mem_min_bytes"] == 64 * MIB


def test_a_pod_is_unlimited_where_one_of_its_containers_is() -> None:
    limited, free = container("a", batch(500, MIB)), container("b", batch(500, MIB), batch(None, MIB))

    assert values(ON, pod("be", "BestEffort", limited, free)) == {
        ("pod/be", "cpu_shares"): 1024,
        ("pod/be", "mem_limit_bytes"): 2 * MIB,
        ("pod/be/a", "cpu_shares"): 512,
        ("pod/be/a", "cfs_quota_us"): 50_000,
        ("pod/be/a", "mem_limit_bytes"): MIB,
        ("pod/be/b", "cpu_shares"): 512,
        ("pod/be/b", "mem_limit_bytes"): MIB,
    }


def test_where_no_containers_are_told_only_the_pod_is_isolated() -> None:
    told = msgspec.structs.replace(pod("be", "BestEffort", container("a", batch(500, MIB))), containers=[])

    assert {group for group, _ in values(ON, told)} == {"pod/be"}


def listed(init: dict, *, status: dict | None = None, overhead: dict | None = None) -> Pod:
    """A batch pod with an init container, as Kubernetes lists it."""
    bought = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "64Mi"}
    main = {"name": "main", "resources": {"requests": bought, "limits": bought}}
    spec = {"containers": [main], "initContainers": [{"name": "init", "resources": init}], "overhead": overhead or {}}
    metadata = {"name": "be", "uid": "be", "labels": {"koordinator.sh/qosClass": "BE"}}
    return read_pod({"metadata": metadata, "spec": spec, "status": {"qosClass": "BestEffort", **(status or {})}})


LARGER = {"kubernetes.io/batch-cpu": "3000", "kubernetes.io/batch-memory": "256Mi"}


def test_a_pod_has_room_for_its_largest_init_container() -> None:
    held = values(ON, listed({"requests": LARGER, "limits": LARGER}))

    assert (held["pod/be", "cfs_quota_us"], held["pod/be", "mem_limit_bytes"]) == (300_000, 256 * MIB)
    assert (held["pod/be/main", "cfs_quota_us"], held["pod/be/main", "mem_limit_bytes"]) == (100_000, 64 * MIB)


def test_a_pod_has_room_for_its_runtime_class_overhead() -> None:
    held = values(ON, listed({"limits": {}}, overhead={"cpu": "250m", "memory": "32Mi"}, status=ENDED))

    assert (held["pod/be", "cfs_quota_us"], held["pod/be", "mem_limit_bytes"]) == (125_000, 96 * MIB)
    assert held["pod/be", "cpu_shares"] == 1280


ENDED = {"initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 0}}}]}


@pytest.mark.parametrize(
    ("status", "limited"),
    [({}, False), ({"initContainerStatuses": [{"name": "init", "state": {"running": {}}}]}, False), (ENDED, True)],
    ids=["not started", "running", "ended"],
)
def test_an_init_container_without_a_limit_runs_without_one(status: dict, *, limited: bool) -> None:
    held = values(ON, listed({}, status=status))

    assert (("pod/be", "mem_limit_bytes") in held, ("pod/be", "cfs_quota_us") in held) == (limited, limited)
    assert held["pod/be/main", "mem_limit_bytes"] == 64 * MIB


def test_the_kernels_least_is_the_least() -> None:
    tiny = wanted(FACTS, [pod("be", "BestEffort", container("a", batch(1)))], ON)

    assert [(one.knob, one.value, one.bound) for one in tiny.values()][:2] == [
        ("cpu_shares", 2, "kernel_range"),
        ("cfs_quota_us", 1_000, "kernel_range"),
    ]


@pytest.mark.parametrize(
    "left_alone",
    [
        pytest.param(pod("x", "BestEffort", container("a", Resources())), id="no batch resources"),
        pytest.param(pod("x", "Burstable", container("a", Resources(cpu_milli=100)), qos="BE"), id="native requests"),
        pytest.param(pod("x", "BestEffort", container("a", batch(500)), qos="LS"), id="another class by its label"),
        pytest.param(pod("x", "BestEffort", container("a", batch(500)), phase="Succeeded"), id="it has ended"),
    ],
)
def test_who_is_no_best_effort_pod_with_batch_resources_is_left_alone(left_alone) -> None:
    assert values(ON, left_alone) == {}


def test_isolation_goes_with_colocation() -> None:
    off = Policy(version="")

    assert values(off, pod("be", "BestEffort", container("a", batch(500)))) == {}


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 1 << 50)), min_size=1, max_size=5)
)
def test_no_container_may_hold_more_than_its_pod(amounts) -> None:
    """Nor is any figure outside what kernels take."""
    containers = [
        container(f"c{n}", batch(min(cpu, limit) or None, mem or None), batch(limit or None, mem or None))
        for n, (cpu, limit, mem) in enumerate(amounts)
    ]
    held = values(ON, pod("be", "BestEffort", *containers))

    for (group, knob), value in held.items():
        assert value >= {"cpu_shares": 2, "cfs_quota_us": 1_000, "mem_limit_bytes": 1}[knob]
        above = held.get(("pod/be", knob))
        if group != "pod/be" and above is not None:
            assert value <= above


LS_HALF = container("a", Resources(cpu_milli=500, mem_bytes=100 * MIB), Resources(cpu_milli=500, mem_bytes=200 * MIB))


def memory(**config):
    return Policy(version="", resource_qos=ResourceQos(ls=QosClass(mem=MemoryQos(enable=True, **config))))


def test_memory_is_protected_by_class_up_to_the_top() -> None:
    policy = memory(min_limit_pct=50, low_limit_pct=80)
    pods = [pod("1", "Burstable", LS_HALF, qos="LS"), pod("2", "Guaranteed", LS_HALF, qos="LS")]

    assert values(policy, *pods) == {
        **{(f"pod/{uid}{inside}", "mem_min_bytes"): 50 * MIB for uid in "12" for inside in ("", "/a")},
        **{(f"pod/{uid}{inside}", "mem_low_bytes"): 80 * MIB for uid in "12" for inside in ("", "/a")},
        ("tier/burstable", "mem_min_bytes"): 50 * MIB,
        ("tier/burstable", "mem_low_bytes"): 80 * MIB,
        ("tier/guaranteed", "mem_min_bytes"): 100 * MIB,
        ("tier/guaranteed", "mem_low_bytes"): 160 * MIB,
    }


def test_low_is_never_below_min() -> None:
    held = values(memory(min_limit_pct=50, low_limit_pct=10), pod("1", "Burstable", LS_HALF))

    assert held["pod/1", "mem_low_bytes"] == 50 * MIB


def test_a_container_is_slowed_down_between_its_request_and_its_limit() -> None:
    held = values(memory(throttling_pct=40), pod("1", "Burstable", LS_HALF))
    no_limit = container("a", Resources(mem_bytes=100 * MIB), Resources())
    of_node = values(memory(throttling_pct=40), pod("1", "Burstable", no_limit))

    assert held == {("pod/1/a", "mem_high_bytes"): 140 * MIB}
    assert of_node == {("pod/1/a", "mem_high_bytes"): 460 * MIB}


def test_best_effort_memory_goes_by_batch_resources() -> None:
    policy = Policy(version="", resource_qos=ResourceQos(be=QosClass(mem=MemoryQos(enable=True, throttling_pct=50))))
    held = values(policy, pod("be", "BestEffort", container("a", batch(500, 10 * MIB), batch(500, 20 * MIB))))

    assert held == {("pod/be/a", "mem_high_bytes"): 15 * MIB}


def test_what_is_not_enabled_or_left_at_the_kernels_default_is_left_alone() -> None:
    off = Policy(version="", resource_qos=ResourceQos(ls=QosClass(mem=MemoryQos(min_limit_pct=50))))

    assert values(off, pod("1", "Burstable", LS_HALF)) == {}
    assert values(memory(), pod("1", "Burstable", LS_HALF)) == {}


@pytest.mark.parametrize(
    ("config", "by", "held"),
    [
        (CpuQos(enable=True, group_identity=-1), "groupIdentity", {("tier/besteffort", "cpu_shares"): 2}),
        (CpuQos(enable=True, group_identity=-1), "coreSched", {}),
        (CpuQos(enable=True, sched_idle=1), "coreSched", {("tier/besteffort", "cpu_idle"): 1}),
        (CpuQos(enable=True, sched_idle=1), "groupIdentity", {}),
        (CpuQos(sched_idle=1), "coreSched", {}),
        (CpuQos(enable=True, sched_idle=1), "podIdle", {}),
        (CpuQos(enable=True, group_identity=-1), "podIdle", {}),
    ],
)
def test_best_effort_runs_last_where_asked(config, by, held) -> None:
    strategy = ResourceQos(policies=QosPolicies(cpu=by), be=QosClass(cpu=config))

    assert values(Policy(version="", resource_qos=strategy)) == held


def test_idle_pod_by_pod_spares_who_only_lies_among_best_effort_pods() -> None:
    """A mid pod, one that is labelled latency-sensitive, and kube-proxy: they share the tier, not the rank."""
    strategy = ResourceQos(policies=QosPolicies(cpu="podIdle"), be=QosClass(cpu=CpuQos(enable=True, sched_idle=1)))
    pods = (
        pod("be", "BestEffort", container("a", batch(500, MIB), batch(500, MIB))),
        msgspec.structs.replace(pod("mid", "BestEffort"), priority=7500),
        pod("ls", "BestEffort", qos="LS"),
        msgspec.structs.replace(pod("kube-proxy", "BestEffort"), priority=2_000_001_000),
        msgspec.structs.replace(pod("ended", "BestEffort"), phase="Succeeded"),
        pod("service", "Burstable"),
    )

    assert values(Policy(version="", resource_qos=strategy), *pods) == {("pod/be", "cpu_idle"): 1}


BURST = Policy(version="", cpu_burst=CpuBurst(policy="auto", cpu_burst_pct=50))


def test_latency_sensitive_pods_may_save_cpu_time_up() -> None:
    held = values(BURST, pod("1", "Burstable", LS_HALF, container("b", Resources(cpu_milli=1000)), qos="LS"))

    assert held == {
        ("pod/1/a", "cfs_burst_us"): 25_000,
        ("pod/1/b", "cfs_burst_us"): 50_000,
        ("pod/1", "cfs_burst_us"): 75_000,
    }


def test_a_burst_is_at_most_the_quota() -> None:
    """The reference's default is ten times the limit, which Linux refuses."""
    policy = Policy(version="", cpu_burst=CpuBurst(policy="auto"))
    held = wanted(FACTS, [pod("1", "Burstable", LS_HALF)], policy)

    assert {(key.group, one.value, one.bound) for key, one in held.items()} == {
        ("pod/1", 50_000, "quota"),
        ("pod/1/a", 50_000, "quota"),
    }


def test_a_pods_annotation_decides_over_the_node() -> None:
    said = pod("1", "Burstable", LS_HALF, cpu_burst='{"policy": "none"}')

    assert values(BURST, said) == {}


@pytest.mark.parametrize("qos", ["LSR", "LSE", "BE"])
def test_other_classes_save_nothing_up(qos) -> None:
    assert values(BURST, pod("1", "Guaranteed", LS_HALF, qos=qos)) == {}


def drifted(policy, pods, *drift):
    given_drift = [Drift(group=group, knob=knob, held=held) for group, knob, held in drift]
    return [(one.group, one.knob, one.value) for one in drift_settings(given_drift, FACTS, pods, policy)]


BE_POD = pod("be", "BestEffort", container("a", batch(500, MIB)), qos="BE")
LS_POD = pod("ls", "Burstable", LS_HALF, qos="LS")


def test_raises_begin_outside_and_cuts_inside() -> None:
    """On cgroup v1 no group may hold more than the one above it, nor less than one below."""
    names = [("pod/be/a", "cfs_quota_us"), ("pod/be", "cfs_quota_us")]
    raised = drifted(ON, [BE_POD], *((*name, 1_000) for name in names))
    cut = drifted(ON, [BE_POD], *((*name, None) for name in reversed(names)))

    assert raised == [("pod/be", "cfs_quota_us", 50_000), ("pod/be/a", "cfs_quota_us", 50_000)]
    assert cut == [("pod/be/a", "cfs_quota_us", 50_000), ("pod/be", "cfs_quota_us", 50_000)]


def test_what_nobody_wants_any_more_is_given_back() -> None:
    given_back = drifted(
        Policy(version=""),
        [BE_POD, LS_POD],
        ("pod/be", "cfs_quota_us", 50_000),
        ("pod/be/a", "cpu_shares", 512),
        ("pod/ls", "cfs_burst_us", 1),
        ("pod/ls/a", "mem_high_bytes", 1),
        ("tier/besteffort", "cpu_idle", 1),
    )

    assert sorted(given_back) == [
        ("pod/be", "cfs_quota_us", None),
        ("pod/be/a", "cpu_shares", 2),
        ("pod/ls", "cfs_burst_us", 0),
        ("pod/ls/a", "mem_high_bytes", None),
        ("tier/besteffort", "cpu_idle", 0),
    ]


@pytest.mark.parametrize(
    "drift",
    [
        ("pod/nobody", "cpu_shares", 5),
        ("pod/be/nobody", "cpu_shares", 5),
        ("tier/x", "cpu_idle", 1),
        ("", "cpu_idle", 1),
        ("pod/ls", "cpu_shares", 5),
        ("pod/ls", "cfs_quota_us", 5),
        ("pod/ls", "mem_limit_bytes", 5),
        ("tier/burstable", "cpu_shares", 5),
    ],
)
def test_unknown_groups_and_what_is_the_kubelets_are_ignored(drift) -> None:
    assert drifted(ON, [BE_POD, LS_POD], drift) == []


GROUPS = st.sampled_from(
    ["pod/be", "pod/be/a", "pod/ls", "pod/ls/a", "tier/besteffort", "tier/guaranteed", "pod/x", "x"]
)
KNOBS = st.sampled_from(["cpu_shares", "cfs_quota_us", "cfs_burst_us", "cpu_idle", "mem_limit_bytes", "mem_min_bytes",
                         "mem_low_bytes", "mem_high_bytes"])  # fmt: skip
DRIFT = st.lists(st.tuples(GROUPS, KNOBS, st.none() | st.integers(0, 1 << 40)), max_size=12)


@given(DRIFT, st.booleans(), st.randoms())
def test_the_order_of_drift_does_not_matter_and_each_knob_is_set_once(drift, on, random) -> None:
    unique = list({(group, knob): (group, knob, held) for group, knob, held in drift}.values())
    policy = msgspec.structs.replace(BURST, colocation=Colocation(enable=on))
    one = drifted(policy, [BE_POD, LS_POD], *unique)
    random.shuffle(unique)

    assert drifted(policy, [BE_POD, LS_POD], *unique) == one
    assert len({(group, knob) for group, knob, _ in one}) == len(one)
    by_key = values(policy, BE_POD, LS_POD)
    assert all(value == by_key.get((group, knob), value) for group, knob, value in one)


def test_what_is_given_back_says_so() -> None:
    back = drift_settings([Drift(group="pod/ls", knob="cfs_burst_us", held=9)], FACTS, [LS_POD], Policy(version=""))

    assert [(one.rule, one.bound) for one in back] == [(RELEASED, "not_wanted")]
    assert wanted(FACTS, [LS_POD], Policy(version="")) == {}
    assert KnobKey("pod/ls", "cfs_burst_us") in wanted(FACTS, [LS_POD], BURST)
