"""A dry run by the policy: decided and recorded, not carried out, at no cost; by feature, and by node strategy."""

from __future__ import annotations

import json

import msgspec
import pytest
from pure import test_agent, test_evictor

from slacktide.agents.node.evict.evictor import BY_POLICY
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.sample import Limits
from testbed.policies import policy_from

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


def test_one_feature_rehearses_and_the_others_act() -> None:
    bench = test_evictor.Bench()
    bench.agent.policy(by_memory(cpuEvictDryRun=True, cpuSuppressDryRun=True))
    bench.ticks(5)

    assert bench.begun()
    assert bench.machine.best_effort.quota_us is None


@pytest.mark.parametrize(("pool", "dry"), [("canary", True), ("rest", False)])
def test_a_node_strategy_rehearses_on_its_nodes_alone(pool: str, *, dry: bool) -> None:
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
