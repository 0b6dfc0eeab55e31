"""The next CFS quotas of a pod and its containers."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.cpu_burst_quota import BurstContainer, Limiter, PodQuota, next_quotas

AUTO = CpuBurst(policy="auto")
CAPACITY = 60 * 200


def quotas(*containers: BurstContainer, config: CpuBurst = AUTO, node_state="idle", pod_quota_us=1_000_000) -> PodQuota:
    return next_quotas(config=config, node_state=node_state, pod_quota_us=pod_quota_us, containers=containers)


def limiter(tokens: int) -> Limiter:
    return Limiter(capacity_tokens=CAPACITY, tokens=tokens)


def test_a_new_limiter_starts_with_what_it_is_given() -> None:
    new = BurstContainer(
        name="main", limit_milli=2_000, quota_us=300_000, throttled_ratio=0.5, start_tokens=300, elapsed_s=9
    )
    [result] = quotas(new, config=CpuBurst(policy="auto", cfs_quota_burst_period_s=60)).containers

    assert (result.quota_us, result.limiter) == (360_000, limiter(300))


states = st.sampled_from(["idle", "cooling", "overload", "unknown"])
configs = st.builds(
    CpuBurst,
    policy=st.sampled_from(["none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly"]),
    cfs_quota_burst_pct=st.none() | st.integers(0, 1_000),
    cfs_quota_burst_period_s=st.none() | st.integers(-1, 600),
)
containers = st.builds(
    BurstContainer,
    name=st.just("main"),
    limit_milli=st.none() | st.integers(0, 16_000),
    quota_us=st.integers(-1, 5_000_000),
    running=st.booleans(),
    throttled_ratio=st.none() | st.floats(0, 1),
    used_cores=st.none() | st.floats(0, 32),
    limiter=st.none() | st.integers(-1_000, 1_000).map(limiter),
    start_tokens=st.integers(0, 1_000),
    elapsed_s=st.integers(0, 100),
)


@given(containers, configs, states)
def test_the_quota_is_always_within_base_and_ceiling(one: BurstContainer, config: CpuBurst, node_state) -> None:
    [result] = quotas(one, config=config, node_state=node_state).containers

    assert isinstance(result.quota_us, int)
    if one.running and one.limit_milli:
        assert one.limit_milli * 100 <= result.quota_us
        assert result.quota_us <= one.limit_milli * max(config.cfs_quota_burst_pct or 100, 100)
    else:
        assert result.quota_us == one.quota_us


@given(containers, configs)
def test_an_overloaded_node_never_raises_a_quota_above_the_limit(one: BurstContainer, config: CpuBurst) -> None:
    [result] = quotas(one, config=config, node_state="overload").containers

    assert result.quota_us <= max(one.quota_us, (one.limit_milli or 0) * 100)


@given(containers, configs)
def test_a_busier_node_never_gives_more(one: BurstContainer, config: CpuBurst) -> None:
    idle, cooling, unknown, overload = (
        quotas(one, config=config, node_state=node_state).containers[0].quota_us
        for node_state in ("idle", "cooling", "unknown", "overload")
    )

    assert idle >= cooling == unknown >= overload


@given(st.lists(containers, max_size=4), configs, states, st.integers(-1, 10**8))
def test_the_pods_change_is_the_sum_of_its_containers(
    some: list[BurstContainer], config: CpuBurst, node_state, pod_quota_us: int
) -> None:
    pod = quotas(*some, config=config, node_state=node_state, pod_quota_us=pod_quota_us)
    change_us = sum(after.quota_us - before.quota_us for before, after in zip(some, pod.containers, strict=True))

    if pod_quota_us <= 0:
        assert pod.quota_us == pod_quota_us
    elif pod_quota_us > 4 * 5_000_000:
        assert pod.quota_us == pod_quota_us + change_us
    assert pod.because[-1].terms["quota_us"] == pod.quota_us
    assert [one.because.terms["quota_us"] for one in pod.containers] == [one.quota_us for one in pod.containers]
