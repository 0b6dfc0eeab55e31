"""A critical pod in the best-effort tier of a real kernel: others are held each by its own quota, and it is not."""

import time
from pathlib import Path

import pytest

from kernel.groups import CONTAINER, Groups
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.schemas.inventory import Pod
from slacktide.schemas.sample import Limits
from testbed.one_machine import eventually

pytestmark = pytest.mark.alone

PROXY = Pod(uid="proxy", namespace="kube-system", name="kube-proxy-x", priority=2_000_001_000)
BATCH = [Pod(uid=uid, namespace="batch", name=uid, qos_label="BE") for uid in ("one", "two")]
UNLIMITED = Limits(be_cfs_quota_us=None)


class Tier:
    def __init__(self, groups: Groups, kernel: CgroupKernel) -> None:
        self.groups, self.kernel = groups, kernel
        for pod in (PROXY, *BATCH):
            groups.add_pod("besteffort", pod.uid)
        kernel.know([PROXY, *BATCH])

    def give(self, uid: str, quota_us: int, inside: str = "") -> None:
        """A quota of its own."""
        self.groups.quota(self._group(uid, inside), f"{quota_us}" if self.groups.version == 1 else f"{quota_us} 100000")

    def quota_us(self, uid: str = "", inside: str = "") -> int | None:
        said = self.groups.quota(self._group(uid, inside) if uid else "besteffort").split()[0]
        return None if said in {"-1", "max"} else int(said)

    def _group(self, uid: str, inside: str) -> str:
        return f"besteffort/pod{uid}/{inside}".rstrip("/")

    def quotas(self) -> list[int | None]:
        return [self.quota_us(), *(self.quota_us(uid) for uid in ("proxy", "one", "two"))]

    def hold(self, quota_us: int | None) -> None:
        self.kernel.hold(Limits(be_cfs_quota_us=quota_us))


@pytest.fixture
def tier(groups: Groups, kernel: CgroupKernel) -> Tier:
    return Tier(groups, kernel)


def test_the_others_share_the_allowance_and_give_it_back(tier: Tier) -> None:
    tier.hold(60_000)
    assert tier.quotas() == [None, None, 30_000, 30_000]
    assert tier.kernel.limits() == Limits(be_cfs_quota_us=60_000)

    tier.hold(40_000)
    assert tier.quotas() == [None, None, 20_000, 20_000]

    tier.hold(None)
    assert tier.quotas() == [None, None, None, None]
    assert tier.kernel.limits() == UNLIMITED


def test_what_a_pod_bought_is_kept_and_comes_back(tier: Tier) -> None:
    tier.give("one", 10_000)
    tier.give("two", 80_000)
    tier.give("two", 80_000, CONTAINER)
    tier.hold(60_000)
    assert tier.quotas() == [None, None, 10_000, 50_000]

    tier.hold(None)
    assert tier.quotas() == [None, None, 10_000, 80_000]
    assert tier.quota_us("two", CONTAINER) == 80_000


def test_a_tier_that_was_held_before_the_critical_pod_came_is_held_by_shares_then(tier: Tier) -> None:
    tier.kernel.know(BATCH)
    tier.hold(60_000)
    assert tier.quotas() == [60_000, None, None, None]

    tier.kernel.know([PROXY, *BATCH])
    assert tier.kernel.limits() == UNLIMITED, "so that the limit is decided anew"
    tier.hold(60_000)
    assert tier.quotas() == [None, None, 30_000, 30_000]


def test_without_the_critical_pod_the_tier_is_held_again(tier: Tier) -> None:
    tier.give("two", 50_000)
    tier.hold(60_000)
    tier.groups.remove("besteffort/podproxy")
    assert tier.kernel.limits() == Limits(be_cfs_quota_us=60_000), "what is held still"
    tier.kernel.know(BATCH)
    tier.hold(20_000)

    assert [tier.quota_us(), tier.quota_us("one")] == [20_000, None]
    tier.hold(None)
    assert [tier.quota_us(), tier.quota_us("one"), tier.quota_us("two")] == [None, None, 50_000]


def test_shares_are_lifted_though_the_critical_pod_is_gone(tier: Tier) -> None:
    tier.hold(60_000)
    tier.kernel.know(BATCH)
    tier.hold(None)

    assert tier.quotas() == [None, None, None, None]


def test_a_pod_that_comes_is_seen_as_not_held(tier: Tier) -> None:
    tier.hold(60_000)
    tier.groups.add_pod("besteffort", "three")
    assert tier.kernel.limits() == UNLIMITED

    tier.hold(60_000)
    assert [tier.quota_us(uid) for uid in ("one", "two", "three")] == [20_000, 20_000, 20_000]


def test_a_pod_that_ends_leaves_its_share_to_the_others_at_the_next_step(tier: Tier) -> None:
    tier.hold(60_000)
    tier.groups.remove("besteffort/podone")
    assert tier.kernel.limits() == Limits(be_cfs_quota_us=30_000)

    tier.hold(60_000)
    assert tier.quota_us("two") == 60_000


def test_the_next_agent_knows_what_is_held_and_what_to_give_back(tier: Tier, tmp_path: Path) -> None:
    tier.give("two", 50_000)
    tier.hold(60_000)
    after = CgroupKernel(Path("/sys/fs/cgroup"), Path("/proc"), tier.groups.kubepods, tmp_path)
    after.know([PROXY, *BATCH])
    assert after.limits() == Limits(be_cfs_quota_us=60_000)

    after.hold(UNLIMITED)
    assert tier.quotas() == [None, None, None, 50_000]
    after.close()


def test_only_others_are_throttled(tier: Tier) -> None:
    for uid in ("proxy", "one", "two"):
        tier.groups.start(f"besteffort/pod{uid}")
    tier.hold(4_000)
    held = [f"besteffort/pod{uid}" for uid in ("one", "two")]
    free = ["besteffort", "besteffort/podproxy", f"besteffort/podproxy/{CONTAINER}"]
    tier.kernel.read(time.monotonic_ns())
    before = {group: tier.groups.throttling(group).throttled for group in held}

    assert eventually(
        lambda: all(tier.groups.throttling(group).throttled >= count + 5 for group, count in before.items())
    )
    assert [tier.groups.throttling(group).throttled for group in free] == [0, 0, 0]
    used = {use.uid: use.cpu_milli or 0 for use in tier.kernel.read(time.monotonic_ns()).pod_use}
    assert used["proxy"] > used["one"] + used["two"]
