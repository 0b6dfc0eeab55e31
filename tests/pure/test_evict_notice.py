"""Notice before an eviction: reported and shown on the pod, at no cost, and taken back where the need is over."""

import msgspec
from pure.test_evictor import Bench, of, policy

from slacktide.agents.node.evict.eviction_api import NOTICED, event_of
from slacktide.agents.node.evict.evictor import LAPSES_NS, Notices
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import OUTCOME
from slacktide.streams.analysis.explain.evictions import notice_findings
from slacktide.streams.analysis.explain.evidence import logged
from slacktide.streams.decisions.evict.node_evict import NOTICE, audited
from testbed.chains import outcome_record

NOTICE_S = 5
SECOND_NS = 1_000_000_000


def notices(one: Bench) -> list[NodeOutcome]:
    return [each for each in one.of_pods() if each.bound == NOTICE]


def test_each_pod_gets_one_event_ahead_and_waits_are_reported_once_a_second() -> None:
    one = Bench(clustered=True, notice_s=NOTICE_S)
    reported: list[NodeOutcome] = []
    one.cluster.report = reported.append
    for _ in range(12):
        one.tick(250)
    events = [event_of(each) for each in reported]

    assert [(each["reason"], each["involvedObject"]["name"]) for each in events] == [
        (NOTICED, "job-0"),
        (NOTICED, "job-1"),
    ]
    assert "evicted in 5 s" in events[0]["message"]
    assert len(notices(one)) <= 2 + 4


def test_a_notice_is_no_act_of_the_audit() -> None:
    one = Bench(notice_s=NOTICE_S)
    one.ticks(2)

    assert [each for each in one.of_pods() if audited(each)] == []


def test_a_notice_lapses_only_where_no_rule_selected_the_pod_for_long() -> None:
    known = Notices()
    begun = known.left_ns("a", 5 * SECOND_NS, 0)
    kept = known.left_ns("a", 5 * SECOND_NS, LAPSES_NS)
    lapsed = known.left_ns("a", 5 * SECOND_NS, 2 * LAPSES_NS + 1)

    assert (begun, kept, lapsed) == (5 * SECOND_NS, 0, 5 * SECOND_NS)


def test_explain_shows_a_notice_until_the_pod_goes() -> None:
    one = Bench(notice_s=NOTICE_S)
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
