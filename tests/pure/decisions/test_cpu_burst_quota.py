"""The next CFS quotas of a pod and its containers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.cpu_burst_quota import (
    BurstContainer,
    ContainerQuota,
    Limiter,
    PodQuota,
    next_quotas,
)
from testbed.cpu_cases import answered

AUTO = CpuBurst(policy="auto")
LIMITED = CpuBurst(policy="auto", cfs_quota_burst_period_s=60)
CAPACITY = 60 * 200


def container(quota_us: int = 300_000, **more) -> BurstContainer:
    """A throttled one with a limit of two CPUs: base 200 ms, ceiling 600 ms."""
    fields = {"name": "main", "limit_milli": 2_000, "throttled_ratio": 0.5}
    return BurstContainer(quota_us=quota_us, **fields | more)


def quotas(*containers: BurstContainer, config: CpuBurst = AUTO, node_state="idle", pod_quota_us=1_000_000) -> PodQuota:
    return next_quotas(config=config, node_state=node_state, pod_quota_us=pod_quota_us, containers=containers)


def quota(quota_us: int = 300_000, *, config: CpuBurst = AUTO, node_state="idle", **more) -> ContainerQuota:
    return quotas(container(quota_us, **more), config=config, node_state=node_state).containers[0]


def limiter(tokens: int) -> Limiter:
    return Limiter(capacity_tokens=CAPACITY, tokens=tokens)


@pytest.mark.parametrize(
    ("node_state", "throttled", "quiet", "spent"),
    [
        pytest.param("idle", 360_000, 300_000, 240_000, id="an idle node lends"),
        pytest.param("cooling", 300_000, 300_000, 240_000, id="a cooling one lends nothing more"),
        pytest.param("unknown", 300_000, 300_000, 240_000, id="nor one of which nothing is known"),
        pytest.param("overload", 240_000, 240_000, 240_000, id="an overloaded one takes back"),
    ],
)
def test_what_the_node_permits(node_state, throttled: int, quiet: int, spent: int) -> None:
    assert quota(node_state=node_state).quota_us == throttled
    assert quota(node_state=node_state, throttled_ratio=0.0).quota_us == quiet
    assert quota(node_state=node_state, throttled_ratio=None).quota_us == quiet
    assert quota(node_state=node_state, config=LIMITED, limiter=limiter(-1)).quota_us == spent


@pytest.mark.parametrize("node_state", ["idle", "cooling", "unknown", "overload"])
@pytest.mark.parametrize("policy", ["none", "cpuBurstOnly"])
def test_without_quota_burst_the_quota_is_the_limit(node_state, policy) -> None:
    result = quota(config=CpuBurst(policy=policy), node_state=node_state)

    assert (result.quota_us, result.because.bound) == (200_000, "reset")


def test_quota_burst_alone_is_quota_burst() -> None:
    assert quota(config=CpuBurst(policy="cfsQuotaBurstOnly")).quota_us == 360_000


@pytest.mark.parametrize(
    ("quota_us", "more", "result_us", "bound"),
    [
        pytest.param(300_000, {}, 360_000, "scale_up", id="a fifth more"),
        pytest.param(300_001, {}, 360_001, "scale_up", id="cut off to a microsecond"),
        pytest.param(300_001, {"node_state": "overload"}, 240_000, "scale_down", id="a fifth less"),
        pytest.param(300_000, {"throttled_ratio": 0.0}, 300_000, "remain", id="as it is"),
        pytest.param(300_000, {"throttled_ratio": -0.1}, 300_000, "remain", id="throttled less than never"),
        pytest.param(500_000, {}, 600_000, "scale_up", id="up to the ceiling"),
        pytest.param(500_001, {}, 600_000, "ceiling", id="but no further"),
        pytest.param(700_000, {"throttled_ratio": 0.0}, 600_000, "ceiling", id="down to it"),
        pytest.param(250_000, {"node_state": "overload"}, 200_000, "scale_down", id="down to the limit"),
        pytest.param(249_999, {"node_state": "overload"}, 200_000, "base", id="but no further down"),
        pytest.param(100_000, {"node_state": "overload"}, 200_000, "base", id="also where it was below"),
        pytest.param(-1, {}, 200_000, "base", id="an unlimited one is limited"),
        pytest.param(-1, {"limit_milli": 1}, 100, "base", id="to 100 us for each thousandth of a CPU"),
    ],
)
def test_one_step(quota_us: int, more: dict, result_us: int, bound: str) -> None:
    result = quota(quota_us, **more)

    assert (result.quota_us, result.because.bound) == (result_us, bound)


@pytest.mark.parametrize(
    ("ceiling_pct", "result_us"),
    [
        pytest.param(None, 200_000, id="none: the limit"),
        pytest.param(50, 200_000, id="below the limit: the limit"),
        pytest.param(100, 200_000, id="the limit"),
        pytest.param(101, 202_000, id="a hundredth above"),
        pytest.param(1_000, 2_000_000, id="ten times"),
    ],
)
def test_the_ceiling(ceiling_pct: int | None, result_us: int) -> None:
    config = CpuBurst(policy="auto", cfs_quota_burst_pct=ceiling_pct)

    result = quota(3_000_000, config=config, throttled_ratio=0.0)

    assert result.quota_us == result.because.terms["ceiling_us"] == result_us


@pytest.mark.parametrize(
    ("more", "bound"),
    [
        pytest.param({"running": False}, "not_running", id="one that does not run"),
        pytest.param({"limit_milli": None}, "no_limit", id="one without a limit"),
        pytest.param({"limit_milli": 0}, "no_limit", id="one with a limit of 0"),
    ],
)
def test_who_is_passed_over_keeps_its_quota_and_its_limiter(more: dict, bound: str) -> None:
    one = container(700_000, limiter=limiter(5), elapsed_s=9, used_cores=0.0, **more)
    pod = quotas(one, config=CpuBurst(cfs_quota_burst_period_s=60))
    [result] = pod.containers

    assert (result.quota_us, result.limiter, result.because.bound) == (700_000, limiter(5), bound)
    assert result.because.terms == {"quota_us": 700_000}
    assert pod.quota_us == 1_000_000


def test_the_limiter_counts_whatever_the_policy() -> None:
    config = CpuBurst(policy="none", cfs_quota_burst_period_s=60)

    assert quota(config=config, limiter=limiter(500), used_cores=3.0, elapsed_s=3).limiter == limiter(350)


@pytest.mark.parametrize(
    ("used_cores", "limit_milli", "tokens"),
    [
        pytest.param(None, 2_000, 500, id="without a metric the limit counts as used"),
        pytest.param(3.0, 2_000, 450, id="one and a half times the limit"),
        pytest.param(3.0199, 2_000, 450, id="percents are cut off"),
        pytest.param(1.199, 2_000, 541, id="59 of 59.95 percent"),
        pytest.param(0.29, 1_000, 572, id="0.29 cores are 28 percent of one, a double's"),
    ],
)
def test_use_in_percent_of_the_limit(used_cores: float | None, limit_milli: int, tokens: int) -> None:
    one = {"limiter": limiter(500), "used_cores": used_cores, "limit_milli": limit_milli, "elapsed_s": 1}

    assert quota(config=LIMITED, **one).because.terms["after_tokens"] == tokens


def test_a_new_limiter_starts_with_what_it_is_given() -> None:
    result = quota(config=LIMITED, start_tokens=300, elapsed_s=9)

    assert (result.quota_us, result.limiter) == (360_000, limiter(300))
    assert quota(config=LIMITED).limiter == limiter(0)


def test_the_pods_quota_goes_along_with_its_containers() -> None:
    pod = quotas(container(300_000, name="a"), container(100_000, name="b"), container(700_000, name="c"))

    assert [(one.name, one.quota_us) for one in pod.containers] == [("a", 360_000), ("b", 200_000), ("c", 600_000)]
    assert pod.quota_us == 1_000_000 + 60_000 + 100_000 - 100_000


@pytest.mark.parametrize("pod_quota_us", [-1, 0])
def test_a_pod_without_a_quota_stays_without(pod_quota_us: int) -> None:
    pod = quotas(container(), pod_quota_us=pod_quota_us)

    assert (pod.quota_us, pod.because[-1].bound) == (pod_quota_us, "unlimited")


def test_a_quota_of_one_microsecond_is_one() -> None:
    pod = quotas(container(), pod_quota_us=1)

    assert (pod.quota_us, pod.because[-1].bound) == (60_001, "formula")


def test_a_pods_quota_that_is_used_up_is_not_added_to() -> None:
    """As the kernel's file says then: no quota."""
    pod = quotas(container(700_000, name="a"), container(name="b"), pod_quota_us=50_000)

    assert pod.quota_us == -50_000


def test_why_each_quota_is_what_it_is() -> None:
    pod = quotas(container(name="a", limiter=limiter(5)), container(name="b"), config=LIMITED)

    assert [one.of for one in pod.because] == [
        "containers/a/cfs_quota_us",
        "containers/b/cfs_quota_us",
        "pod_cfs_quota_us",
    ]
    assert list(pod.because[0].terms.items()) == [
        ("limit_milli", 2_000),
        ("base_us", 200_000),
        ("ceiling_us", 600_000),
        ("used_pct", 100),
        ("elapsed_s", 0),
        ("capacity_tokens", CAPACITY),
        ("before_tokens", 5),
        ("change_tokens", 0),
        ("after_tokens", 5),
        ("current_us", 300_000),
        ("scaled_us", 360_000),
        ("quota_us", 360_000),
    ]
    assert pod.because[-1].terms == {"current_us": 1_000_000, "change_us": 0, "quota_us": 1_000_000}


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


CONTAINER = {"name": "main", "cpu_limit_milli": 2_000, "current_cfs_quota_us": 300_000, "running": True}
CASE = {"node_state": "idle", "current_pod_cfs_quota_us": 300_000, "containers": [CONTAINER]}


@pytest.mark.parametrize(
    ("config", "more", "shown"),
    [
        pytest.param(None, {}, {"cfs_quota_us": 200_000}, id="no configuration: no policy"),
        pytest.param({}, {}, {"cfs_quota_us": 200_000}, id="an empty one"),
        pytest.param({"policy": "weird"}, {}, {"cfs_quota_us": 200_000}, id="a policy nobody knows"),
        pytest.param({"policy": "auto"}, {}, {"cfs_quota_us": 200_000}, id="no ceiling is the limit"),
        pytest.param({"policy": "auto", "cfs_quota_burst_percent": 300}, {}, {"cfs_quota_us": 300_000}, id="a ceiling"),
        pytest.param(
            {"policy": "auto", "cfs_quota_burst_percent": 300, "cfs_quota_burst_period_seconds": 60},
            {"throttled_ratio_last": 0.1, "limiter_tokens_before": None, "seconds_since_limiter_update": None},
            {"cfs_quota_us": 240_000, "limiter_tokens_after": 0},
            id="a new limiter has nothing",
        ),
        pytest.param(
            {"policy": "auto", "cfs_quota_burst_percent": 300, "cfs_quota_burst_period_seconds": 60},
            {"throttled_ratio_last": 0.1, "limiter_tokens_before": 7},
            {"cfs_quota_us": 360_000, "limiter_tokens_after": 7},
            id="an old one what it had",
        ),
        pytest.param(
            {"policy": "auto", "cfs_quota_burst_percent": 300, "cfs_quota_burst_period_seconds": -1},
            {"limiter_tokens_before": 7},
            {"cfs_quota_us": 300_000},
            id="tokens without a limiter",
        ),
    ],
)
def test_cases(config: dict | None, more: dict, shown: dict) -> None:
    answer = answered("cpu_burst_quota", CASE | {"config": config, "containers": [CONTAINER | more]})

    assert answer["output"] == {"containers": {"main": shown}, "pod_cfs_quota_us": shown["cfs_quota_us"]}


def test_a_case_without_containers() -> None:
    answer = answered("cpu_burst_quota", CASE | {"containers": None})

    assert answer == {"output": {"containers": {}, "pod_cfs_quota_us": 300_000}}


def test_two_containers_of_one_name_are_refused() -> None:
    answer = answered("cpu_burst_quota", CASE | {"containers": [CONTAINER, CONTAINER]})

    assert answer == {"error": "input.containers[1].name: 'main' is given twice"}
