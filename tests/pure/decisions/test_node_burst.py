"""Which CPU quotas of latency-sensitive pods shall move on a node, and in which order."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.sample import ContainerBurst, NodeSample, NodeUse
from slacktide.streams.decisions.burst.node_burst import (
    QUOTA_RULE,
    burst_settings,
    container_quota_us,
    handed_back,
    movable,
    next_limiter,
)
from testbed.vectors import stated_test

test_cases = stated_test("node_burst", burst_settings, handed_back)

CAPACITY = Resources(cpu_milli=4_000, mem_bytes=8 << 30)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY, labels={"pool": "web"})
ON = CpuBurst(policy="auto")
MAIN, POD = "pod/ls/main", "pod/ls"
IDLE, COOLING, OVERLOADED = 1_000, 1_900, 2_000


def pod(**milli: int) -> Pod:
    """Containers by their limits."""
    containers = [Container(name=name, limits=Resources(cpu_milli=one)) for name, one in milli.items()]
    total = Resources(cpu_milli=sum(milli.values()))
    return Pod(
        uid="ls",
        namespace="shop",
        name="web",
        qos_label="LS",
        kube_qos="Burstable",
        containers=containers,
        limits=total,
    )


def held(quota_us: int = 100_000, pod_quota_us: int = 150_000, *, name: str = "main", **more) -> ContainerBurst:
    """A throttled one."""
    fields = {"throttled_ratio": 0.5, "used_milli": 1_000} | more
    return ContainerBurst(pod="ls", container=name, quota_us=quota_us, pod_quota_us=pod_quota_us, **fields)


def sample(*burst: ContainerBurst, used_milli: int | None) -> NodeSample:
    return NodeSample(
        node="node-1",
        boot_id="000000000007-0badcafe",
        seq=7,
        observed_ms=1,
        interval_ms=1_000,
        policy_version="",
        facts_revision="",
        pods_revision="",
        use=NodeUse(cpu_milli=used_milli),
        pod_use=[],
        limits=None,
        burst=list(burst),
    )


def settings(*burst: ContainerBurst, pods, config: CpuBurst = ON, used_milli: int | None = IDLE) -> list:
    return list(
        burst_settings(sample(*burst, used_milli=used_milli), FACTS, pods, Policy(version="", cpu_burst=config))
    )


def values(found) -> list[tuple[str, int]]:
    assert all((one.rule, one.knob) == (QUOTA_RULE, "cfs_quota_us") for one in found)
    return [(one.group, one.value) for one in found]


def test_the_quota_of_a_pod_that_is_limited_as_a_whole_rises_with_a_container_s() -> None:
    """The kubelet gives it one, though its log has no limit of its own."""
    limited = {"resources": {"limits": {"cpu": "1"}}}
    spec = {"containers": [{"name": "main", **limited}, {"name": "log"}]}
    item = {"metadata": {"name": "web", "uid": "ls", "labels": {"koordinator.sh/qosClass": "LS"}}, "spec": spec}
    whole = read_pod(item | {"spec": spec | {"resources": {"limits": {"cpu": "1500m"}}}})

    assert values(settings(held(), pods=[whole])) == [(POD, 170_000), (MAIN, 120_000)]
    assert values(settings(held(pod_quota_us=-1), pods=[read_pod(item)])) == [(MAIN, 120_000)]


@st.composite
def moments(draw):
    """A pod with two containers, whatever its groups hold."""
    quotas_us = st.integers(1_000, 400_000)
    pod_us = draw(st.one_of(st.just(-1), st.integers(1_000, 1_000_000)))
    owner = pod(main=draw(st.integers(1, 2_000)), log=draw(st.integers(1, 2_000)))
    both = [
        held(
            draw(quotas_us),
            pod_us,
            name=name,
            throttled_ratio=draw(st.one_of(st.none(), st.floats(0, 1))),
            used_milli=draw(st.one_of(st.none(), st.integers(0, 4_000))),
            tokens=draw(st.integers(-9_000, 9_000)),
            capacity_tokens=draw(st.sampled_from([6_000, 9_000])),
            elapsed_s=draw(st.integers(0, 100)),
        )
        for name in ("main", "log")
    ]
    config = CpuBurst(
        policy=draw(st.sampled_from(["none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly"])),
        cfs_quota_burst_pct=draw(st.sampled_from([None, 100, 150, 300])),
        cfs_quota_burst_period_s=draw(st.sampled_from([None, -1, 30])),
    )
    return owner, both, config


def carried_out(both, found):
    """Quotas by group after each setting, as from what is held."""
    state = {POD: both[0].pod_quota_us} | {f"pod/ls/{one.container}": one.quota_us for one in both}
    for one in found:
        state[one.group] = one.value
        yield dict(state)


def fits(state) -> bool:
    return state[POD] < 0 or all(quota <= state[POD] for quota in state.values())


@given(moments(), st.sampled_from([IDLE, COOLING, OVERLOADED, None]))
def test_quotas_stay_between_limit_and_ceiling_and_pods_above_their_containers(moment, used_milli) -> None:
    owner, both, config = moment
    found = settings(*both, config=config, pods=[owner], used_milli=used_milli)
    states = list(carried_out(both, found))
    base_us = {one.name: container_quota_us(one.limits.cpu_milli) for one in owner.containers}
    for one in found:
        if one.group != POD:
            name = one.group.rpartition("/")[2]
            assert (
                base_us[name]
                <= one.value
                <= max(base_us[name], base_us[name] * (config.cfs_quota_burst_pct or 0) // 100 + 1)
            )
        else:
            assert one.value >= container_quota_us(owner.limits.cpu_milli)
    if fits({POD: both[0].pod_quota_us, **{one.container: one.quota_us for one in both}}):
        assert all(map(fits, states)), "no write that a kernel refuses"
    if config.policy == "none" and states:
        again = [
            msgspec.structs.replace(one, quota_us=states[-1][f"pod/ls/{one.container}"], pod_quota_us=states[-1][POD])
            for one in both
        ]
        assert settings(*again, config=config, pods=[owner], used_milli=used_milli) == []
        assert movable(owner, again, config) == []


@given(moments(), st.sampled_from([IDLE, COOLING, OVERLOADED]))
def test_whom_the_node_leaves_out_the_rule_would_leave_where_it_is(moment, used_milli) -> None:
    owner, both, config = moment
    kept = movable(owner, both, config)
    whole, part = (settings(*burst, config=config, pods=[owner], used_milli=used_milli) for burst in (both, kept))
    above = {one.container for one in both if one.quota_us >= container_quota_us(limit_of(owner, one))}

    assert [one for one in values(whole) if one[0].rpartition("/")[2] in above] == [
        one for one in values(part) if one[0].rpartition("/")[2] in above
    ]


def limit_of(owner, one):
    return next(of.limits.cpu_milli for of in owner.containers if of.name == one.container)


@given(moments())
def test_node_and_stream_spend_the_same_tokens_and_no_more_than_there_are(moment) -> None:
    owner, both, config = moment
    config = msgspec.structs.replace(config, policy="auto", cfs_quota_burst_period_s=30, cfs_quota_burst_pct=300)
    for one in both:
        limiter = next_limiter(one, limit_of(owner, one), config)
        assert -6_000 <= limiter.tokens <= 6_000
        for setting in settings(one, config=config, pods=[owner]):
            if setting.group != POD:
                assert setting.terms["after_tokens"] == limiter.tokens
