"""A dry run by the policy: decided and recorded, not carried out, at no cost; by feature, and by node strategy."""

import json

import msgspec
import pytest
from pure import test_agent, test_agent_bursts, test_evictor, test_tuner

from slacktide.agents.node.evict.evictor import BY_POLICY
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.policy.message import versioned
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.sample import Limits
from testbed.policies import policy_from

DRY_RUN = {"dryRun": True}
BURST_DRY = versioned(Policy(version="", cpu_burst=CpuBurst(policy="cfsQuotaBurstOnly", dry_run=True)))
DRY = msgspec.structs.replace(
    test_agent.ON,
    version="dry",
    resource_threshold=msgspec.structs.replace(test_agent.ON.resource_threshold, cpu_suppress_dry_run=True),
)


def by_memory(**said: bool) -> Policy:
    return test_evictor.policy(memoryEvictThresholdPercent=50, memoryEvictLowerPercent=40, **said)


def test_a_limit_is_reported_with_its_arithmetic_and_not_written() -> None:
    bench = test_agent.Bench()
    bench.agent.policy(DRY)
    bench.agent.answered(test_agent.answer_to(bench.tick(), policy=DRY))

    assert bench.kernel.holds == []
    last = bench.last()
    assert (last.result, last.origin, last.reason) == ("dry-run", "stream", BY_POLICY)
    assert last.before == last.after == Limits(be_cfs_quota_us=None)


def test_a_limit_that_holds_is_lifted_when_the_policy_makes_it_a_dry_run_and_returns_after_it() -> None:
    bench = test_agent.Bench()
    bench.agent.answered(test_agent.answer_to(bench.tick()))
    bench.agent.policy(DRY)
    bench.agent.answered(test_agent.answer_to(bench.tick(), policy=DRY))
    lifted = bench.kernel.held
    bench.agent.policy(test_agent.ON)
    bench.agent.answered(test_agent.answer_to(bench.tick()))

    assert lifted == Limits(be_cfs_quota_us=None)
    assert bench.kernel.held == test_agent.ALLOWED
    assert [one.rule for one in bench.outcomes()][1] == "dry-run"


def test_an_eviction_is_recorded_and_costs_neither_credit_nor_cool_down() -> None:
    bench = test_evictor.Bench()
    bench.agent.policy(by_memory(memoryEvictDryRun=True))
    bench.ticks(5)

    assert len(bench.machine.pods) == 4
    assert {(one.result, one.reason) for one in bench.of_pods()} == {("dry-run", BY_POLICY)}
    assert {one.spent.evictions for one in bench.of_pods()} == {0}
    assert bench.tick().evict.since_mem_ms is None
    bench.agent.policy(by_memory())
    bench.ticks(3)
    assert bench.begun()


def test_a_dry_run_holds_nobody_back_for_want_of_credit() -> None:
    bench = test_evictor.Bench(credit=0)
    bench.agent.policy(by_memory(memoryEvictDryRun=True))
    bench.ticks(20)

    assert bench.bounds() == []
    assert bench.best_effort.frozen() == frozenset()


def test_one_feature_is_a_dry_run_and_the_others_act() -> None:
    bench = test_evictor.Bench()
    bench.agent.policy(by_memory(cpuEvictDryRun=True, cpuSuppressDryRun=True))
    bench.ticks(5)

    assert bench.begun()
    assert bench.machine.best_effort.quota_us is None


@pytest.mark.parametrize(("pool", "dry"), [("canary", True), ("rest", False)])
def test_a_node_strategy_makes_a_dry_run_on_its_nodes_alone(pool: str, *, dry: bool) -> None:
    canary = {"name": "canary", "nodeSelector": {"matchLabels": {"pool": "canary"}}, "memoryEvictDryRun": True}
    policy = policy_from(threshold={"clusterStrategy": {"enable": True}, "nodeStrategies": [canary]})
    facts = msgspec.structs.replace(test_agent.FACTS, labels={"pool": pool})

    assert resource_threshold_on(policy, facts).mem_evict_dry_run is dry


def test_a_dry_run_that_is_not_a_boolean_is_refused_with_its_path() -> None:
    with pytest.raises(Exception, match="memoryEvictDryRun"):
        policy_from(threshold=json.loads('{"clusterStrategy": {"memoryEvictDryRun": "yes"}}'))


def test_a_policy_that_says_nothing_of_dry_runs_keeps_its_version() -> None:
    said = {"clusterStrategy": {"enable": True}}
    off = {"clusterStrategy": {"enable": True, "memoryEvictDryRun": False}}

    assert policy_from(threshold=said).version == policy_from(threshold=off).version
    assert policy_from(threshold={"clusterStrategy": {"enable": True, "memoryEvictDryRun": True}}).version != (
        policy_from(threshold=said).version
    )


QOS_ON = {"policies": {"cpuPolicy": "podIdle"}, "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}}}


def settings_of(bench: test_tuner.Bench) -> set[tuple[str, str]]:
    return {(one.rule, one.result) for one in bench.outcomes()}


def test_the_limits_of_a_pods_spec_are_reported_once_and_not_set() -> None:
    bench = test_tuner.Bench(policy=policy_from(colocation={"enable": True, "isolationDryRun": True}))
    bench.pass_s(30)

    assert bench.held(*test_tuner.BE_KEYS) == dict(zip(test_tuner.BE_KEYS, (2, None, None), strict=True))
    assert settings_of(bench) == {("BEIsolation", "dry-run")}
    assert len(bench.outcomes()) == len(test_tuner.BE_KEYS)
    assert bench.outcomes()[0].reason.endswith(BY_POLICY)
    assert bench.agent.holds_nothing
    assert bench.samples[-1].drift == []


def test_settings_go_back_when_they_become_a_dry_run_and_return_after_it() -> None:
    bench = test_tuner.Bench()
    acting = bench.held(*test_tuner.BE_KEYS)
    bench.agent.policy(policy_from(colocation={"enable": True, "isolationDryRun": True}))
    bench.pass_s(15)
    dry = bench.held(*test_tuner.BE_KEYS)
    bench.agent.policy(test_tuner.ON)
    bench.pass_s(15)

    assert dry == dict(zip(test_tuner.BE_KEYS, (2, None, None), strict=True))
    assert settings_of(bench) == {("BEIsolation", "applied"), ("released", "applied"), ("BEIsolation", "dry-run")}
    assert bench.held(*test_tuner.BE_KEYS) == acting


def test_one_kind_of_settings_is_a_dry_run_and_the_others_act() -> None:
    bench = test_tuner.Bench(policy=policy_from(colocation={"enable": True}, qos={"clusterStrategy": QOS_ON | DRY_RUN}))
    bench.pass_s(15)

    assert settings_of(bench) == {("BEIsolation", "applied"), ("CPUQOS idle (beClass)", "dry-run")}
    idle = KnobKey("pod/be", "cpu_idle")
    assert bench.held(idle, *test_tuner.BE_KEYS)[idle] == 0
    shares = KnobKey("pod/be", "cpu_shares")
    weight = bench.kernel.as_reads_back("cpu_shares", test_tuner.BE_KEYS[shares])
    assert bench.held(shares) == {shares: weight}, "only an idle group takes no weight"


def test_a_quota_that_a_burst_raised_goes_back_and_further_raises_are_reported() -> None:
    bench = test_agent_bursts.Bench()
    for _ in range(3):
        bench.agent.answered(test_agent_bursts.answer_to(bench.throttled()))
    raised = bench.group.quota_us
    bench.agent.policy(BURST_DRY)
    for _ in range(6):
        bench.agent.answered(test_agent_bursts.answer_to(bench.tick(), policy=BURST_DRY))

    assert raised > test_agent_bursts.LIMIT.cpu_milli * 100
    assert bench.group.quota_us == test_agent_bursts.LIMIT.cpu_milli * 100
    assert "dry-run" in {one.result for _, one in bench.spool.pending(1_000) if one.knob is not None}
