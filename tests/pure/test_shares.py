"""The allowance of best-effort pods, divided among them: laws, and what a pod's own quota changes."""

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.cgroup.plan import Bandwidth, shares_of, total
from slacktide.schemas.inventory import Pod
from slacktide.streams.decisions.known_pods import is_spared

FREE = Bandwidth(None, 100_000)


def paths(count: int) -> list[PurePosixPath]:
    return [PurePosixPath(f"pod{number:02}") for number in range(count)]


def quotas(allowance_us: int | None, *own: Bandwidth) -> list[int | None]:
    places = paths(len(own))
    found = shares_of(Bandwidth(allowance_us, 100_000), dict(zip(places, own, strict=True)))
    return [found[path].quota_us if path in found else None for path in places]


def test_pods_without_a_quota_get_equal_parts() -> None:
    assert quotas(90_000, FREE, FREE, FREE) == [30_000, 30_000, 30_000]
    assert sum(quotas(100_000, FREE, FREE, FREE)) == 100_000


def test_what_a_pod_may_not_take_by_itself_goes_to_the_others() -> None:
    assert quotas(90_000, Bandwidth(10_000, 100_000), FREE, FREE) == [10_000, 40_000, 40_000]
    assert quotas(90_000, Bandwidth(20_000, 200_000), FREE) == [20_000, 80_000], "10 ms of each 100"


def test_without_a_limit_there_are_no_shares() -> None:
    assert quotas(None, FREE, FREE) == [None, None]


def test_a_share_that_the_kernel_does_not_take_is_a_longer_period() -> None:
    share = shares_of(Bandwidth(2_000, 100_000), dict.fromkeys(paths(4), FREE))[paths(4)[0]]

    assert share == Bandwidth(1_000, 200_000)


@given(
    allowance_us=st.integers(2_000, 10_000_000),
    own=st.lists(st.one_of(st.none(), st.integers(1_000, 1_000_000)), min_size=1, max_size=20),
)
def test_shares_never_sum_to_more_than_the_allowance_and_nobody_has_more_than_its_own(
    allowance_us: int, own: list[int | None]
) -> None:
    held = {path: Bandwidth(quota_us, 100_000) for path, quota_us in zip(paths(len(own)), own, strict=True)}
    shares = shares_of(Bandwidth(allowance_us, 100_000), held)

    least_us = 100 * len(own)  # of 100 ms: 1 ms a second is the least that a kernel takes
    assert (total(shares, 100_000) or 0) <= max(allowance_us, least_us)
    assert all(shares[path].within(one) for path, one in held.items())
    if None in own and allowance_us >= 1_000 * len(own):
        assert total(shares, 100_000) == allowance_us


def pod(**fields: object) -> Pod:
    return Pod(uid="u", namespace="kube-system", name="kube-proxy-x", **fields)


def test_critical_pods_without_requests_are_spared() -> None:
    assert is_spared(pod(priority=2_000_001_000))
    assert is_spared(pod(priority=2_000_000_000))


def test_others_are_not() -> None:
    assert not is_spared(pod(priority=1_000_000_000))
    assert not is_spared(pod(priority=None))
    assert not is_spared(pod(priority=2_000_001_000, kube_qos="Burstable")), "it lies in another tier"
    assert not is_spared(pod(priority=2_000_001_000, qos_label="BE")), "it asks to be held"
