"""Who suspends a node. That limits go at once and nobody is evicted are stories of test_agent, _evictor and _tuner."""

from pathlib import Path

import pytest
from pure import test_agent, test_evictor

from slacktide.agents.node.evict.eviction_api import node_event
from slacktide.agents.node.state import ANNOTATION, FILE, Switch, forget
from slacktide.schemas.policy import DEFAULT
from slacktide.schemas.policy.effective import effective
from slacktide.schemas.policy.idle import lacking
from testbed.policies import policy_from
from testbed.vectors import each_row

WHY = "the file /var/lib/slacktide/suspend"
SUSPENDING = policy_from(agent={"suspend": True})


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


@each_row("by_file", "annotations", "by_policy", "by")
@pytest.mark.parametrize("watched", [True, False], ids=["API server", "inventory"])
def test_an_annotation_a_file_and_the_policy_each_suspend(
    annotations: dict, by: str | None, tmp_path: Path, *, by_file: bool, by_policy: bool, watched: bool
) -> None:
    if by_file:
        (tmp_path / FILE).touch()
    switch = Switch(tmp_path, watched=watched)
    if watched:
        switch.shown(annotations)
    told = switch.suspended({} if watched else annotations, SUSPENDING if by_policy else DEFAULT)

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
    begun, over = node_event("n" * 300, "u", "x" * 2_000, at_ms=1), node_event("node-1", "", "", at_ms=2)

    assert (begun["type"], begun["reason"], len(begun["message"])) == ("Warning", "SlacktideSuspended", 1_024)
    assert len(begun["metadata"]["name"]) <= 253
    assert begun["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n" * 300, "uid": "u"}
    assert (over["type"], over["reason"]) == ("Normal", "SlacktideResumed")
