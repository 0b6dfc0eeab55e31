"""A suspended node: limits go at once, nobody is evicted, and each outcome says who suspends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pure import test_agent, test_evictor, test_tuner

from slacktide.agents.node.state import forget
from slacktide.agents.node.suspend import ANNOTATION, FILE, Switch, event_of
from slacktide.schemas.policy import DEFAULT, Policy
from slacktide.schemas.policy.effective import effective
from slacktide.schemas.policy.idle import lacking
from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.suppress.cpu_suppress import UNLIMITED
from testbed.policies import policy_from

WHY = "the file /var/lib/slacktide/suspend"
SUSPENDING = policy_from(agent={"suspend": True})


def test_limits_are_lifted_at_once_and_not_at_the_next_answer() -> None:
    bench = test_agent.Bench()
    bench.agent.answered(test_agent.answer_to(bench.tick()))
    held = bench.kernel.held
    bench.agent.suspend(WHY)

    assert (held, bench.kernel.held) == (test_agent.ALLOWED, Limits(be_cfs_quota_us=None))
    last = bench.last()
    assert (last.rule, last.origin, last.result, last.bound) == ("suspend", "agent", "applied", "suspended")
    assert last.reason == f"suspended by {WHY}"


@pytest.mark.parametrize("answered", [True, False], ids=["by the stream", "by the guard"])
def test_a_limit_that_is_decided_meanwhile_is_not_carried_out(*, answered: bool) -> None:
    bench = test_agent.Bench()
    bench.agent.suspend(WHY)
    sample = bench.tick()
    if answered:
        bench.agent.answered(test_agent.answer_to(sample))
    else:
        bench.pass_ms(1_000)
        bench.agent.overdue()

    assert bench.kernel.holds == []
    assert (bench.last().rule, bench.last().result) == ("suspend", "unchanged")


def test_limits_come_back_with_the_next_answer_once_nobody_suspends_the_node() -> None:
    bench = test_agent.Bench()
    bench.agent.suspend(WHY)
    bench.agent.answered(test_agent.answer_to(bench.tick()))
    bench.agent.suspend("")
    bench.agent.answered(test_agent.answer_to(bench.tick()))

    assert bench.kernel.held == test_agent.ALLOWED


def test_cpus_are_given_back() -> None:
    bench = test_agent.with_cpus()
    bench.agent.answered(test_agent.bound_to(bench.tick(), [1, 2]))
    bench.agent.suspend(WHY)

    assert bench.kernel.held == Limits(be_cfs_quota_us=None, be_cpuset=[0, 1, 2, 3])


def test_nobody_is_evicted_whom_a_node_in_force_evicts() -> None:
    suspended, in_force = test_evictor.Bench(), test_evictor.Bench()
    suspended.agent.suspend(WHY)
    for bench in (suspended, in_force):
        bench.ticks(5)

    assert len(in_force.begun()) == 2
    assert suspended.of_pods() == []
    assert len(suspended.machine.pods) == 4


def test_pods_that_are_held_back_for_want_of_credit_go_on() -> None:
    bench = test_evictor.Bench(credit=0)
    bench.ticks(20)
    frozen = set(bench.best_effort.frozen())
    bench.agent.suspend(WHY)

    assert frozen
    assert bench.best_effort.frozen() == frozenset()
    assert bench.machine.best_effort.quota_us is None
    bench.ticks(10)
    assert bench.best_effort.frozen() == frozenset()


def test_an_eviction_that_an_earlier_run_may_not_have_asked_for_is_not_asked_for() -> None:
    bench = test_evictor.Bench(clustered=True)
    bench.cluster.replies = list  # the API server does not answer before the agent is gone
    bench.cluster.ask = lambda _: None
    bench.ticks(2)
    kept = bench.spool.interrupted()
    bench.start()
    asked_again = bench.cluster.granted
    bench.start(suspended=WHY)

    assert kept
    assert asked_again
    assert bench.cluster.granted == []


def test_knobs_go_back_to_what_the_kubelet_made_them_and_return() -> None:
    bench = test_tuner.Bench()
    set_to = bench.held(*test_tuner.BE_KEYS)
    bench.agent.suspend(WHY)
    suspended = bench.held(*test_tuner.BE_KEYS)
    bench.pass_s(3)
    still = bench.held(*test_tuner.BE_KEYS)
    bench.agent.suspend("")
    bench.pass_s(15)

    assert suspended == still == dict(zip(test_tuner.BE_KEYS, (2, None, None), strict=True))
    assert bench.held(*test_tuner.BE_KEYS) == set_to


def test_nothing_is_written_twice_while_a_node_is_suspended() -> None:
    bench = test_tuner.Bench()
    bench.agent.suspend(WHY)
    done = len(bench.outcomes())
    bench.pass_s(30)

    assert len(bench.outcomes()) == done


def test_a_node_that_is_suspended_before_its_first_sample_never_holds_anything() -> None:
    bench = test_agent.Bench()
    bench.agent.suspend(WHY)
    bench.agent.answered(test_agent.answer_to(bench.tick()))

    assert bench.kernel.held == UNLIMITED


@pytest.mark.parametrize(
    ("prepare", "annotations", "policy", "by"),
    [
        pytest.param(lambda _: None, {}, DEFAULT, None, id="nobody"),
        pytest.param(lambda _: None, {ANNOTATION: "true"}, DEFAULT, "annotation", id="annotation"),
        pytest.param(lambda _: None, {ANNOTATION: "yes"}, DEFAULT, "annotation", id="a value that nobody documents"),
        pytest.param(lambda _: None, {ANNOTATION: "false"}, DEFAULT, None, id="false"),
        pytest.param(lambda folder: (folder / FILE).touch(), {}, DEFAULT, "file", id="file"),
        pytest.param(lambda _: None, {}, SUSPENDING, "policy", id="policy"),
        pytest.param(lambda _: None, {ANNOTATION: "false"}, SUSPENDING, "policy", id="false against the policy"),
    ],
)
@pytest.mark.parametrize("watched", [True, False], ids=["API server", "inventory"])
def test_an_annotation_a_file_and_the_policy_each_suspend(
    prepare: Callable[[Path], object],
    annotations: dict,
    policy: Policy,
    by: str | None,
    tmp_path: Path,
    *,
    watched: bool,
) -> None:
    prepare(tmp_path)
    switch = Switch(tmp_path, watched=watched)
    if watched:
        switch.shown(annotations)
    told = switch.suspended({} if watched else annotations, policy)

    assert (told and told.by) == by


def test_an_annotation_outlives_a_restart_while_the_api_server_is_away_and_not_a_removal(tmp_path: Path) -> None:
    Switch(tmp_path, watched=True).shown({ANNOTATION: "true"})
    again = Switch(tmp_path, watched=True).suspended({}, DEFAULT)
    forget(tmp_path)

    assert again is not None
    assert again.by == "annotation"
    assert list(tmp_path.iterdir()) == []


def test_what_the_log_tells_of_annotations_does_not_count_beside_the_api_server(tmp_path: Path) -> None:
    switch = Switch(tmp_path, watched=True)
    switch.shown({})

    assert switch.suspended({ANNOTATION: "true"}, DEFAULT) is None


def test_the_policys_key_is_a_feature_that_is_off_by_default() -> None:
    [off], [on] = (
        [why for feature, why in lacking(effective(policy, test_agent.FACTS)).items() if feature.name == "Suspend"]
        for policy in (DEFAULT, SUSPENDING)
    )

    assert (off, on) == ("suspend is false", "")
    assert SUSPENDING.version != DEFAULT.version


def test_an_event_on_the_node_says_who_suspends_it_and_another_one_that_it_is_over() -> None:
    begun, over = event_of("n" * 300, "u", "x" * 2_000, at_ms=1), event_of("node-1", "", "", at_ms=2)

    assert (begun["type"], begun["reason"], len(begun["note"])) == ("Warning", "SlacktideSuspended", 1_024)
    assert len(begun["metadata"]["name"]) <= 253
    assert begun["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n" * 300, "uid": "u"}
    assert (over["type"], over["reason"]) == ("Normal", "SlacktideResumed")
