"""What knobs of groups shall hold: isolation by spec, QoS classes, static burst, and what is given back."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.strategies import Colocation, CpuBurst
from slacktide.schemas.sample import Drift
from slacktide.streams.decisions.knobs import drift_settings, wanted
from testbed.vectors import stated_test

test_cases = stated_test("node_knobs", wanted, drift_settings)

MIB = 1 << 20
FACTS = NodeFacts(
    name="n", capacity=Resources(cpu_milli=4000, mem_bytes=1 << 33), allocatable=Resources(mem_bytes=1000 * MIB)
)
AMOUNTS = ("cpu_milli", "mem_bytes", "batch_cpu_milli", "batch_mem_bytes")
ON = Policy(version="", colocation=Colocation(enable=True))


def batch(cpu=None, mem=None):
    return Resources(batch_cpu_milli=cpu, batch_mem_bytes=mem)


def container(name, requests, limits=None):
    return Container(name=name, id=f"id{name}", requests=requests, limits=requests if limits is None else limits)


def summed(parts):
    return Resources(**{name: sum(getattr(one, name) or 0 for one in parts) or None for name in AMOUNTS})


def pod(uid, kube_qos, *containers, qos=None):
    requests, limits = summed([one.requests for one in containers]), summed([one.limits for one in containers])
    fields = {"kube_qos": kube_qos, "qos_label": qos, "containers": list(containers)}
    return Pod(uid=uid, namespace="n", name=uid, requests=requests, limits=limits, **fields)


def values(policy, *pods):
    return {tuple(key): one.value for key, one in wanted(FACTS, pods, policy).items()}


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
BURST = Policy(version="", cpu_burst=CpuBurst(policy="auto", cpu_burst_pct=50))


def drifted(policy, pods, *drift):
    given_drift = [Drift(group=group, knob=knob, held=held) for group, knob, held in drift]
    return [(one.group, one.knob, one.value) for one in drift_settings(given_drift, FACTS, pods, policy)]


BE_POD = pod("be", "BestEffort", container("a", batch(500, MIB)), qos="BE")
LS_POD = pod("ls", "Burstable", LS_HALF, qos="LS")
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
