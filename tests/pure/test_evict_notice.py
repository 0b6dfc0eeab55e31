"""Notice before an eviction: reported and shown on the pod, at no cost, and taken back where the need is over."""

from __future__ import annotations

import msgspec
from pure.test_evictor import GIB, Bench, of, policy

from slacktide.agents.node.evict.eviction_api import NOTICED, event_of
from slacktide.agents.node.evict.restraint import LAPSES_NS, Notices
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import OUTCOME
from slacktide.streams.decisions.evict.node_evict import NOTICE, audited
from slacktide.streams.explain.evictions import notice_findings
from slacktide.streams.explain.evidence import logged
from testbed.chains import outcome_record

NOTICE_S = 5
SECOND_NS = 1_000_000_000


def bench(**more: object) -> Bench:
    made = Bench(**more)
    made.agent.policy(policy(memoryEvictThresholdPercent=50, memoryEvictLowerPercent=40, evictNoticeSeconds=NOTICE_S))
    return made


def notices(one: Bench) -> list[NodeOutcome]:
    return [each for each in one.of_pods() if each.bound == NOTICE]


def test_a_pod_goes_after_its_notice_and_not_before() -> None:
    one = bench()
    one.ticks(4)
    waiting = notices(one)
    assert len(one.machine.pods) == 4
    assert one.begun() == []
    assert {(each.result, each.spent) for each in waiting} == {("unchanged", None)}
    first = of(one, "be-0")[0]
    assert (first.rule, first.terms["notice_s"], first.terms["left_s"]) == ("BEMemoryEvict", NOTICE_S, NOTICE_S)
    assert first.reason.endswith("evicted in 5 s, if a rule still selects it then")
    one.ticks(3)

    assert [each.target for each in one.begun()] == ["pod/be-0", "pod/be-1"]
    (begun,) = [each for each in one.begun() if each.target == "pod/be-0"]
    assert begun.acted_ms - first.acted_ms == NOTICE_S * 1_000


def test_a_pod_with_notice_is_not_held_back_and_costs_nothing() -> None:
    one = bench(credit=0)
    one.ticks(4)

    assert one.bounds() == []
    assert one.best_effort.frozen() == frozenset()
    assert one.tick().evict.since_mem_ms is None


def test_a_need_that_is_over_evicts_nobody_and_the_next_one_gives_notice_anew() -> None:
    one = bench()
    one.ticks(3)
    one.machine.pods["ls"].mem_bytes = 0
    one.ticks(40)
    assert one.begun() == []
    one.machine.pods["ls"].mem_bytes = 2 * GIB
    one.ticks(3)

    assert one.begun() == []
    assert [each.terms["left_s"] for each in of(one, "be-0")].count(NOTICE_S) == 2


def test_each_pod_gets_one_event_ahead_and_waits_are_reported_once_a_second() -> None:
    one = bench(clustered=True)
    reported: list[NodeOutcome] = []
    one.cluster.report = reported.append
    for _ in range(12):
        one.tick(250)
    events = [event_of(each) for each in reported]

    assert [(each["reason"], each["regarding"]["name"]) for each in events] == [(NOTICED, "job-0"), (NOTICED, "job-1")]
    assert "evicted in 5 s" in events[0]["note"]
    assert len(notices(one)) <= 2 + 4


def test_a_notice_is_no_act_of_the_audit() -> None:
    one = bench()
    one.ticks(2)

    assert [each for each in one.of_pods() if audited(each)] == []


def test_a_notice_lapses_only_where_no_rule_selected_the_pod_for_long() -> None:
    known = Notices()
    begun = known.left_ns("a", 5 * SECOND_NS, 0)
    kept = known.left_ns("a", 5 * SECOND_NS, LAPSES_NS)
    lapsed = known.left_ns("a", 5 * SECOND_NS, 2 * LAPSES_NS + 1)

    assert (begun, kept, lapsed) == (5 * SECOND_NS, 0, 5 * SECOND_NS)


def test_explain_shows_a_notice_until_the_pod_goes() -> None:
    one = bench()
    one.ticks(8)
    outcomes = logged([outcome_record(each) for each in of(one, "be-0")], OUTCOME, NodeOutcome)
    ahead = [each for each in outcomes if each.body.bound == NOTICE]
    asked_ms = ahead[0].body.acted_ms + 2_000
    (found,) = notice_findings(ahead[:1], "batch", "job-0", asked_ms)

    assert found.text.startswith("BEMemoryEvict gave notice: it evicts the pod in 3 s if it still selects it; ")
    assert list(notice_findings(outcomes, "batch", "job-0", asked_ms + 4_000)) == [], "it went"
    assert list(notice_findings(ahead, "batch", "job-0", asked_ms + 60_000)) == [], "it lapsed"
    assert list(notice_findings(ahead, "batch", "job-1", asked_ms)) == []


def test_a_policy_without_notice_keeps_its_version() -> None:
    assert policy().version == policy(evictNoticeSeconds=0).version
    assert msgspec.structs.asdict(policy(evictNoticeSeconds=9).resource_threshold)["evict_notice_s"] == 9
