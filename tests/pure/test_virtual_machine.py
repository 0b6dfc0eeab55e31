"""The model of a kernel: laws of sharing, quotas, counters, memory and pressure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.virtual.machine import BEST_EFFORT, KUBEPODS, Machine, share
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.sample import Limits
from testbed.virtual.kernel import VirtualKernel

GIB = 1 << 30

siblings = st.lists(st.tuples(st.integers(0, 10**10), st.integers(1, 262_144)), min_size=1, max_size=8)


def machine_with(*, cpus: int = 4, version: int = 2, **demands_milli: int) -> Machine:
    """Guaranteed pod ``g``, burstable ``b``, best-effort ``e`` and ``f``, as far as named."""
    machine = Machine(cpus=cpus, mem_bytes=8 * GIB, version=version)
    qos = {"g": "Guaranteed", "b": "Burstable", "e": "BestEffort", "f": "BestEffort"}
    for uid, demand_milli in demands_milli.items():
        request_milli = 0 if qos[uid] == "BestEffort" else 2000
        machine.add_pod(uid, qos[uid], request_milli=request_milli).demand_milli = demand_milli
    return machine


def used_milli(machine: Machine, dt_ms: int = 1000) -> dict[str, int]:
    before = {uid: pod.usage_ns for uid, pod in machine.pods.items()}
    machine.step(dt_ms)
    return {uid: (pod.usage_ns - before[uid]) // (dt_ms * 1000) for uid, pod in machine.pods.items()}


@given(siblings, st.integers(0, 10**10))
def test_sharing_wastes_nothing_and_gives_nobody_more_than_it_wants(asked, supply):
    """What is given sums up to what there is or what is wanted, whichever is less, and no want is exceeded."""
    wants, weights = [want for want, _ in asked], [weight for _, weight in asked]
    gives = share(supply, wants, weights)

    assert sum(gives) == min(supply, sum(wants))
    assert all(0 <= give <= want for give, want in zip(gives, wants, strict=True))


@given(siblings, st.integers(0, 10**10))
def test_who_goes_without_has_no_less_per_weight_than_anybody(asked, supply):
    """Max-min fairness: whoever is held back got at least as much per weight as any other, but for rounding."""
    wants, weights = [want for want, _ in asked], [weight for _, weight in asked]
    gives = share(supply, wants, weights)
    slack = len(asked) + 1

    for give, want, weight in zip(gives, wants, weights, strict=True):
        if give < want:
            others = zip(gives, weights, strict=True)
            assert all((give + slack) * other_weight >= (other - slack) * weight for other, other_weight in others)


def test_an_idle_machine_gives_everyone_what_it_wants():
    assert used_milli(machine_with(g=500, e=3000)) == {"g": 500, "e": 3000}


def test_best_effort_gets_only_what_others_leave():
    """Two shares against two thousand: a busy pod with a request is hardly slowed by best-effort pods."""
    used = used_milli(machine_with(b=3500, e=4000))

    assert used["b"] >= 3450
    assert sum(used.values()) == pytest.approx(4000, abs=1)


def test_equal_best_effort_pods_share_equally():
    assert used_milli(machine_with(e=4000, f=4000)) == {"e": 2000, "f": 2000}


def test_a_quota_on_the_best_effort_group_holds_its_pods_together():
    machine = machine_with(g=500, e=4000, f=200)
    machine.set_quota(BEST_EFFORT, 100_000)

    assert used_milli(machine) == {"g": 500, "e": 800, "f": 200}


def test_what_a_quota_forbids_is_left_to_others():
    """Work conserving: the guaranteed pod takes what best-effort may not use."""
    machine = machine_with(g=4000, e=4000)
    machine.set_quota(BEST_EFFORT, 2_000)

    assert used_milli(machine) == {"g": 3980, "e": 20}


def test_a_pods_own_limit_holds_too():
    machine = Machine(cpus=4, mem_bytes=GIB)
    machine.add_pod("l", "Burstable", request_milli=100, limit_milli=250).demand_milli = 1000

    assert used_milli(machine) == {"l": 250}


@given(
    st.lists(st.tuples(st.sampled_from("gbef"), st.integers(0, 9000)), max_size=20),
    st.one_of(st.none(), st.integers(1000, 900_000)),
    st.integers(1, 5000),
)
def test_counters_only_grow_and_time_is_conserved(changes, quota_us, dt_ms):
    """After any sequence of demands: used and idle add up, children add up to parents, nobody goes backwards."""
    machine = machine_with(g=0, b=0, e=0, f=0)
    machine.set_quota(BEST_EFFORT, quota_us)
    last = {path: group.usage_ns for path, group in machine.groups.items()}
    for uid, demand_milli in changes:
        machine.pods[uid].demand_milli = demand_milli
        machine.step(dt_ms)

        now = {path: group.usage_ns for path, group in machine.groups.items()}
        assert all(now[path] >= last[path] for path in now)
        last = now
        assert all(
            group.usage_ns == sum(child.usage_ns for child in group.children)
            for group in machine.groups.values()
            if group.children
        )
        assert machine.root.usage_ns <= machine.cpus * machine.elapsed_ns
        assert machine.best_effort.throttled_periods <= machine.best_effort.periods


def test_a_group_over_its_quota_is_throttled_in_every_period():
    machine = machine_with(e=4000)
    machine.set_quota(BEST_EFFORT, 50_000)
    machine.step(1000)

    assert (machine.best_effort.periods, machine.best_effort.throttled_periods) == (10, 10)


def test_a_group_within_its_quota_counts_periods_but_no_throttling():
    machine = machine_with(e=300)
    machine.set_quota(BEST_EFFORT, 50_000)
    machine.step(1000)

    assert (machine.best_effort.periods, machine.best_effort.throttled_periods) == (10, 0)


def test_v1_refuses_a_parent_below_its_child():
    machine = machine_with(version=1, e=4000)
    machine.set_quota(machine.pods["e"].path, 100_000)

    with pytest.raises(CgroupError, match="more than its parent"):
        machine.set_quota(BEST_EFFORT, 50_000)
    assert machine.best_effort.quota_us is None


def test_on_v2_the_tightest_limit_counts():
    machine = machine_with(version=2, e=4000)
    machine.set_quota(machine.pods["e"].path, 100_000)
    machine.set_quota(BEST_EFFORT, 50_000)

    assert used_milli(machine) == {"e": 500}


def test_v1_compares_rates_not_quotas():
    """100 ms of a 200 ms period under 60 ms of a 100 ms period is half a CPU under 0.6."""
    machine = machine_with(version=1, e=4000)
    machine.set_quota(machine.pods["e"].path, 100_000, 200_000)
    machine.set_quota(BEST_EFFORT, 60_000, 100_000)

    assert machine.best_effort.quota_us == 60_000


def test_v1_refuses_a_child_above_a_grandparent():
    """A group without a quota of its own passes its parent's on."""
    machine = machine_with(version=1, e=4000)
    machine.set_quota(KUBEPODS, 100_000)

    with pytest.raises(CgroupError, match="more than its parent"):
        machine.set_quota(machine.pods["e"].path, 150_000)


@pytest.mark.parametrize(("quota_us", "period_us"), [(999, 100_000), (0, 100_000), (50_000, 999), (50_000, 1_000_001)])
def test_quotas_and_periods_out_of_the_kernels_range_are_refused(quota_us, period_us):
    with pytest.raises(CgroupError, match="invalid argument"):
        machine_with().set_quota(BEST_EFFORT, quota_us, period_us)


def test_cpu_pressure_rises_while_pods_wait_and_fades_afterwards():
    machine = machine_with(b=8000)
    for _ in range(30):
        machine.step(1000)
    pressed_pct = machine.cpu_stall.avg10_pct
    machine.pods["b"].demand_milli = 0
    for _ in range(30):
        machine.step(1000)

    assert pressed_pct == pytest.approx(47.5, abs=1)
    assert machine.cpu_stall.avg10_pct < 3


def test_memory_drops_cache_before_anything_stalls():
    machine = machine_with(b=0)
    pod = machine.pods["b"]
    pod.mem_bytes, pod.cache_bytes = 6 * GIB, 4 * GIB
    machine.step(1000)

    assert (pod.mem_bytes, pod.cache_bytes) == (6 * GIB, 2 * GIB)
    assert machine.mem_stall.total_us == 0


def test_memory_stalls_when_working_sets_exceed_what_there_is():
    machine = machine_with(b=0)
    machine.pods["b"].mem_bytes = 10 * GIB
    machine.step(1000)

    assert machine.mem_stall.total_us == 200_000


def test_burstable_weighs_what_its_pods_request():
    machine = machine_with(version=1, b=0)
    machine.add_pod("c", "Burstable", request_milli=1000)
    weight = machine.groups["kubepods/burstable"].weight
    machine.remove_pod("c")

    assert (weight, machine.groups["kubepods/burstable"].weight) == (3072, 2048)


def test_the_first_reading_has_no_rates():
    kernel = VirtualKernel(machine_with(e=1000))
    reading = kernel.read(0)

    assert (reading.interval_ms, reading.use.cpu_milli, reading.pod_use[0].cpu_milli) == (0, None, None)


def test_rates_are_averages_since_the_last_reading():
    machine = machine_with(g=500, e=1000)
    kernel = VirtualKernel(machine)
    kernel.hold(Limits(be_cfs_quota_us=50_000))
    kernel.read(0)
    machine.step(2000)
    reading = kernel.read(2_000_000_000)

    assert reading.interval_ms == 2000
    assert reading.use.cpu_milli == 1000
    assert {use.uid: (use.cpu_milli, use.best_effort_group) for use in reading.pod_use} == {
        "e": (500, True), "g": (500, False)}  # fmt: skip
    assert reading.limits == Limits(be_cfs_quota_us=50_000, be_cpuset=sorted(range(machine.cpus)))


def test_a_pod_started_anew_under_its_uid_has_no_rate_yet():
    machine = machine_with(e=1000)
    kernel = VirtualKernel(machine)
    kernel.read(0)
    machine.step(1000)
    machine.remove_pod("e")
    machine.add_pod("e", "BestEffort")

    assert kernel.read(1_000_000_000).pod_use[0].cpu_milli is None


def test_on_v1_hold_cuts_pods_first():
    """The kernel would refuse the group's cut while a pod below holds more."""
    machine = machine_with(version=1, e=4000)
    machine.set_quota(machine.pods["e"].path, 100_000)
    VirtualKernel(machine).hold(Limits(be_cfs_quota_us=50_000))

    assert (machine.best_effort.quota_us, machine.pods["e"].quota_us) == (50_000, 50_000)
