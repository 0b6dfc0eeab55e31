"""Which CPU quotas of latency-sensitive pods shall move on a node, and in which order."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.message import NodeStrategy
from slacktide.schemas.policy.selector import Selector
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.sample import ContainerBurst, NodeSample, NodeUse, PodUse
from slacktide.streams.decisions.burst.cpu_burst_value import container_quota_us
from slacktide.streams.decisions.burst.node_burst import RULE, burst_settings, handed_back, movable, next_limiter

CAPACITY = Resources(cpu_milli=4_000, mem_bytes=8 << 30)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY, labels={"pool": "web"})
ON = CpuBurst(policy="auto")
OFF = CpuBurst()
MAIN, LOG, POD = "pod/ls/main", "pod/ls/log", "pod/ls"
IDLE, COOLING, OVERLOADED = 1_000, 1_900, 2_000


def limits(**milli: int | None) -> list[Container]:
    return [Container(name=name, limits=Resources(cpu_milli=one)) for name, one in milli.items()]


def pod(containers=None, **more) -> Pod:
    """One with a limit of 1 CPU for its main container, and 0.5 for its log."""
    containers = limits(main=1_000, log=500) if containers is None else containers
    total = sum(one.limits.cpu_milli or 0 for one in containers)
    fields = {"namespace": "shop", "name": "web", "qos_label": "LS", "kube_qos": "Burstable"}
    return Pod(uid="ls", containers=containers, limits=Resources(cpu_milli=total), **fields | more)


def held(quota_us: int = 100_000, pod_quota_us: int = 150_000, *, name: str = "main", **more) -> ContainerBurst:
    """A throttled one."""
    fields = {"throttled_ratio": 0.5, "used_milli": 1_000} | more
    return ContainerBurst(pod="ls", container=name, quota_us=quota_us, pod_quota_us=pod_quota_us, **fields)


def sample(*burst: ContainerBurst, used_milli: int | None = IDLE, pod_use=()) -> NodeSample:
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
        pod_use=list(pod_use),
        limits=None,
        burst=list(burst),
    )


def settings(*burst: ContainerBurst, config: CpuBurst = ON, pods=None, facts=FACTS, **seen) -> list:
    policy = Policy(version="", cpu_burst=config)
    return list(burst_settings(sample(*burst, **seen), facts, [pod()] if pods is None else pods, policy))


def values(found) -> list[tuple[str, int]]:
    assert all((one.rule, one.knob) == (RULE, "cfs_quota_us") for one in found)
    return [(one.group, one.value) for one in found]


def test_a_throttled_container_gets_a_fifth_more_and_its_pod_goes_before_it() -> None:
    found = settings(held())

    assert values(found) == [(POD, 170_000), (MAIN, 120_000)]
    assert found[1].bound == "scale_up"
    assert (found[1].terms["base_us"], found[1].terms["ceiling_us"], found[1].terms["used_ratio"]) == (
        100_000,
        300_000,
        0.25,
    )
    assert found[0].terms == {"base_us": 150_000, "over_us": 20_000, "current_us": 150_000, "quota_us": 170_000}


def test_the_quota_of_a_pod_that_is_limited_as_a_whole_rises_with_a_container_s() -> None:
    """The kubelet gives it one, though its log has no limit of its own."""
    limited = {"resources": {"limits": {"cpu": "1"}}}
    spec = {"containers": [{"name": "main", **limited}, {"name": "log"}]}
    item = {"metadata": {"name": "web", "uid": "ls", "labels": {"koordinator.sh/qosClass": "LS"}}, "spec": spec}
    whole = read_pod(item | {"spec": spec | {"resources": {"limits": {"cpu": "1500m"}}}})

    assert values(settings(held(), pods=[whole])) == [(POD, 170_000), (MAIN, 120_000)]
    assert values(settings(held(pod_quota_us=-1), pods=[read_pod(item)])) == [(MAIN, 120_000)]


def test_a_full_node_takes_back_and_the_container_goes_before_its_pod() -> None:
    assert values(settings(held(250_000, 300_000), used_milli=OVERLOADED)) == [(MAIN, 200_000), (POD, 250_000)]
    assert values(settings(held(100_000), used_milli=OVERLOADED)) == []


def test_what_one_gives_back_and_another_gets_never_leaves_the_pod_short() -> None:
    spent = {"tokens": 0, "capacity_tokens": 60 * 200, "throttled_ratio": 0.0}
    found = settings(
        held(200_000, 250_000, **spent),
        held(50_000, 250_000, name="log", used_milli=0, tokens=5, capacity_tokens=60 * 200),
        config=CpuBurst(policy="auto", cfs_quota_burst_period_s=60),
    )

    assert values(found) == [(MAIN, 160_000), (POD, 220_000), (LOG, 60_000)]


@pytest.mark.parametrize(
    ("used_milli", "wanted"),
    [
        pytest.param(IDLE, [(POD, 170_000), (MAIN, 120_000)], id="idle"),
        pytest.param(COOLING, [], id="cooling"),
        pytest.param(None, [], id="not known"),
    ],
)
def test_a_node_lends_only_what_it_has(used_milli: int | None, wanted: list) -> None:
    assert values(settings(held(), used_milli=used_milli)) == wanted


def test_a_node_of_unknown_size_lends_nothing() -> None:
    facts = msgspec.structs.replace(FACTS, capacity=Resources())

    assert settings(held(), facts=facts) == []


def test_cpus_that_a_pod_has_for_itself_are_not_to_be_lent() -> None:
    """Two of four: the use of 1.1 CPUs is more than half of the other two."""
    own = msgspec.structs.replace(pod(qos_label="LSR"), uid="lsr", requests=Resources(cpu_milli=2_000))
    pods = [pod(), own]

    assert settings(held(), pods=pods, used_milli=1_100) == []
    assert settings(held(), pods=[pod(), msgspec.structs.replace(own, phase="Succeeded")], used_milli=1_100)
    assert settings(held(), pods=pods, used_milli=1_100, pod_use=[PodUse(uid="lsr", cpu_milli=400)])


def test_no_container_gets_more_than_its_ceiling() -> None:
    assert values(settings(held(280_000, 330_000))) == [(POD, 350_000), (MAIN, 300_000)]
    assert settings(held(300_000, 350_000)) == []


def test_a_pod_that_lacks_or_has_more_than_its_containers_need_is_put_right() -> None:
    assert values(settings(held(300_000, 150_000))) == [(POD, 350_000)]
    assert values(settings(held(100_000, 900_000, throttled_ratio=0.0))) == [(POD, 150_000)]


@pytest.mark.parametrize("config", [OFF, CpuBurst(policy="cpuBurstOnly")])
def test_without_quota_burst_all_goes_back_to_the_limit(config: CpuBurst) -> None:
    back = [(MAIN, 100_000), (POD, 150_000)]

    assert values(settings(held(300_000, 350_000), config=config)) == back
    assert values(settings(held(300_000, 350_000), pods=[pod(cpu_burst='{"policy": "none"}')])) == back
    assert values(handed_back([held(300_000, 350_000)], [pod(cpu_burst='{"policy": "auto"}')])) == back


def test_a_pods_quota_never_ends_at_none_or_below_its_limit() -> None:
    """Were the change added to what the pod holds, this one would come to minus 50 ms: no limit at all."""
    assert values(settings(held(300_000, 150_000), config=OFF)) == [(MAIN, 100_000)]
    assert values(settings(held(300_000, 200_000), config=OFF)) == [(MAIN, 100_000), (POD, 150_000)]


def test_what_somebody_holds_below_the_limit_is_not_handed_back() -> None:
    both = [held(40_000, 60_000), held(20_000, 60_000, name="log")]

    assert settings(*both, config=OFF) == []
    assert values(settings(held(40_000, 160_000), config=OFF)) == [(POD, 150_000)]


def test_a_limit_below_what_the_kernel_takes_counts_as_the_least_that_it_takes() -> None:
    tiny = pod(limits(main=5))

    assert settings(held(1_000, 1_000), config=OFF, pods=[tiny]) == []
    assert values(settings(held(1_400, 1_400), config=OFF, pods=[tiny])) == [(MAIN, 1_000), (POD, 1_000)]
    assert values(settings(held(1_000, 1_000), pods=[tiny])) == [(POD, 1_200), (MAIN, 1_200)]


@pytest.mark.parametrize("label", ["LSR", "LSE", "BE"])
def test_pods_with_cpus_of_their_own_and_best_effort_pods_are_left_alone(label: str) -> None:
    assert settings(held(300_000, 350_000), pods=[pod(qos_label=label)]) == []
    assert handed_back([held(300_000, 350_000)], [pod(qos_label=label)]) == ()


def test_what_is_not_there_has_no_limit_or_no_quota_is_left_alone() -> None:
    assert settings(held(), pods=[]) == []
    assert settings(held(name="gone")) == []
    assert settings(held(-1), pods=[pod()]) == []
    assert settings(held(), pods=[pod(limits(main=None, log=500))]) == []
    assert values(settings(held(100_000, -1))) == [(MAIN, 120_000)]


def test_a_nodes_own_strategy_and_a_pods_annotation_hold() -> None:
    node = NodeStrategy(name="web", selector=Selector(match_labels={"pool": "web"}), strategy=ON)
    policy = Policy(version="", node_cpu_burst=[node])
    raised = [(POD, 170_000), (MAIN, 120_000)]

    assert values(burst_settings(sample(held()), FACTS, [pod()], policy)) == raised
    annotated = pod(cpu_burst='{"policy": "auto", "cfsQuotaBurstPercent": 110}')
    assert values(settings(held(), config=OFF, pods=[annotated])) == [(POD, 160_000), (MAIN, 110_000)]


@st.composite
def moments(draw):
    """A pod with two containers, whatever its groups hold."""
    quotas_us = st.integers(1_000, 400_000)
    pod_us = draw(st.one_of(st.just(-1), st.integers(1_000, 1_000_000)))
    owner = pod(limits(**{name: draw(st.integers(1, 2_000)) for name in ("main", "log")}))
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
