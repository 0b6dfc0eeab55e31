"""The model of a kernel: laws of sharing, quotas, counters, memory and pressure."""

from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from slacktide.deploy.virtual.machine import BEST_EFFORT, KUBEPODS, Machine, share
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.sample import Limits
from testbed.stories import each_story, story
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


class Run:
    """A machine in use, with a kernel that is asked now and then."""

    def __init__(self, **given: int) -> None:
        self.machine = machine_with(**given)
        self.kernel = VirtualKernel(self.machine)
        self.before: dict[str, int] = {}
        self.reading: object = None
        self.refused = ""

    def add(self, uid: str, request_milli: int, limit_milli: int | str, demand_milli: int) -> None:
        limit = None if limit_milli == "unlimited" else limit_milli
        pod = self.machine.add_pod(uid, "Burstable", request_milli=request_milli, limit_milli=limit)
        pod.demand_milli = demand_milli

    def begin_anew(self, uid: str) -> None:
        self.machine.remove_pod(uid)
        self.machine.add_pod(uid, "BestEffort")

    def demand(self, uid: str, milli: int) -> None:
        self.machine.pods[uid].demand_milli = milli

    def memory(self, uid: str, gib: int, cache_gib: int) -> None:
        pod = self.machine.pods[uid]
        pod.mem_bytes, pod.cache_bytes = gib * GIB, cache_gib * GIB

    def quota(self, group: str, quota_us: int, period_us: int = 100_000) -> None:
        pods = self.machine.pods
        path = {"all": KUBEPODS, "best-effort": BEST_EFFORT}.get(group) or pods[group].path
        try:
            self.machine.set_quota(path, quota_us, period_us)
        except CgroupError as error:
            self.refused = str(error)

    def hold(self, quota_us: int) -> None:
        self.kernel.hold(Limits(be_cfs_quota_us=quota_us))

    def step(self, ms: int, times: int = 1) -> None:
        self.before = {uid: pod.usage_ns for uid, pod in self.machine.pods.items()}
        for _ in range(times):
            self.machine.step(ms)

    def read(self) -> None:
        now = self.kernel.read(self.machine.elapsed_ns)
        pods = {one.uid: (one.cpu_milli, one.best_effort_group) for one in now.pod_use}
        self.reading = (now.interval_ms, now.use.cpu_milli, pods, now.limits.be_cfs_quota_us)

    def state(self) -> dict[str, object]:
        pods, be = self.machine.pods, self.machine.best_effort
        used = {uid: (one.usage_ns - self.before.get(uid, 0)) // 10**6 for uid, one in pods.items()}
        return {
            "used in ms": used,
            "refused": self.refused,
            "quotas": [be.quota_us, *(one.quota_us for one in pods.values())],
            "periods, throttled": (be.periods, be.throttled_periods),
            "memory and cache in MiB": [(one.mem_bytes >> 20, one.cache_bytes >> 20) for one in pods.values()],
            "stalled": (round(self.machine.cpu_stall.avg10_pct, 1), self.machine.mem_stall.total_us),
            "weight of burstable": self.machine.groups["kubepods/burstable"].weight,
            "interval, CPU, pods, quota as read": self.reading,
        }


@each_story("virtual_machine")
def test_what_a_virtual_machine_does(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    assert story(Run(**given), steps) == snapshot


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
