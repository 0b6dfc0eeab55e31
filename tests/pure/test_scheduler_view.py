"""What the scheduler's part knows of nodes: figures of the log, and pods that were placed since."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.cluster.events import IgnoredFields
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.scheduler.scheduler import pod_source
from slacktide.agents.cluster.scheduler.topic_reader import TopicReader
from slacktide.agents.cluster.scheduler.view import BINDING_S, View
from slacktide.agents.cluster.watching import _decoded
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeFacts, NodeInventory, Resources
from slacktide.schemas.metric import Aggregate, NodeMetric, PodMetric, Spread, Use
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import ALLOCATABLE, INVENTORY, METRIC, SCORE
from slacktide.streams.decisions.load.load_aware_estimator import (
    ANNOTATION,
    Aggregation,
    Percents,
    Thresholds,
    own_thresholds,
)
from slacktide.streams.decisions.load.pod_placement import Choice, PlacementArgs
from slacktide.streams.records import Record
from testbed.kube_scheduler import GIB, WALL_S, Still, figures, manifest
from testbed.scheduler_pods import parsed

NOW_S = Still.now_s
KINDS = NodeScore, NodeMetric, NodeAllocatable
ONLY_BALANCE = PlacementArgs(load_weight=0)


def receive(view: View, *nodes: list[Any], received_s: float = NOW_S, logged_s: float = WALL_S) -> None:
    for node in nodes:
        for one in node:
            view.receive(one, received_s=received_s, logged_s=logged_s)


def pod(name: str = "p", node: str = "", cpu: str = "1000", memory: str = "1Gi", **said: Any) -> SchedulerPod:
    return parsed(manifest(name, cpu, memory, node, **said))


def choose(view: View, *nodes: str, one: SchedulerPod | None = None, now_s: float = NOW_S) -> Choice:
    return view.choose((one or pod("asking")).asked, nodes, now_s=now_s)


def left(view: View, node: str = "a", now_s: float = NOW_S) -> int:
    """What is left of the node's batch CPU for others than who asks."""
    [ranked] = choose(view, node, one=pod("asking", cpu="1", memory="1"), now_s=now_s).ranked
    return ranked.willing.left.cpu_milli + 1


def used(view: View, node: str = "a") -> int:
    [ranked] = choose(view, node).ranked
    return int(ranked.terms["existing_milli"])


def test_pods_bound_since_the_report_count_at_their_estimate_and_take_what_is_sold() -> None:
    view = View(PlacementArgs())
    receive(view, figures())
    view.changed(pod("x", "a"), at_s=WALL_S)
    assert (used(view), left(view)) == (1_850, 3_000)
    view.gone(("batch", "x"))
    assert (used(view), left(view)) == (1_000, 4_000)


def test_a_pod_that_was_measured_counts_what_it_uses_once_it_has_filled_the_window() -> None:
    view = View(PlacementArgs())
    score, metric, allocatable = figures()
    measured = PodMetric(uid="uid-x", namespace="batch", name="x", use=Use(cpu_milli=300, mem_bytes=GIB))
    receive(view, [score, msgspec.structs.replace(metric, pods=[measured]), allocatable])
    view.changed(pod("x", "a"), at_s=WALL_S - 200)
    assert used(view) == 1_000 + 850 - 300
    view.whole([pod("y", "a")], at_s=WALL_S - 400)
    assert used(view) == 1_850, "it was never measured"
    view.whole([], at_s=WALL_S)
    view.changed(pod("x", "a"), at_s=WALL_S - 400)
    assert used(view) == 1_000


@pytest.mark.parametrize("ahead_s", [-3_600, 0, 3_600])
async def test_a_young_pod_counts_at_its_estimate_wherever_the_logs_clock_is(ahead_s: int) -> None:
    """It was placed ten seconds ago: averages over five minutes hardly know it."""
    view = View(PlacementArgs())
    reader = TopicReader(Cluster("127.0.0.1:1"), view, PlacementArgs(), lambda _record, why: pytest.fail(why), Still())
    reader._live = True
    for age_s, name in ((10, "young"), (400, "old")):
        view.changed(pod(name, "a"), at_s=WALL_S - age_s)
    score, metric, allocatable = figures()
    use = Use(cpu_milli=30, mem_bytes=GIB)
    measured = [PodMetric(uid=f"uid-{name}", namespace="batch", name=name, use=use) for name in ("young", "old")]
    sent = [score, msgspec.structs.replace(metric, pods=measured), allocatable]
    said = zip((SCORE, METRIC, ALLOCATABLE), sent, strict=True)
    at_ms = round((WALL_S + ahead_s) * 1_000)
    records = [Record(topic=topic.name, partition=0, offset=0, timestamp_ms=at_ms, key=b"a", value=encode(one),
                      headers=[]) for topic, one in said]  # fmt: skip
    await reader._receive_all(records, NOW_S)
    assert used(view) == 1_000 + 850 - 30


def test_a_pod_counts_where_it_is_sent_until_it_is_seen_or_could_not_be_bound_any_more() -> None:
    view = View(PlacementArgs())
    receive(view, figures("a"), figures("b"))
    for name in ("x", "y"):
        view.assume(pod(name).asked, "a", now_s=NOW_S, at_s=WALL_S)
    assert (left(view, "a"), view.counts(NOW_S)) == (2_000, (2, 0, 2))
    view.changed(pod("x", "b"), at_s=WALL_S)
    assert (left(view, "a"), left(view, "b")) == (3_000, 3_000), "another rule sent it there"
    for after_s in (5, 60, BINDING_S - 1):  # of a burst, what was decided in seconds is bound for minutes
        receive(view, figures("a"), figures("b"), received_s=NOW_S + after_s)
        assert left(view, "a", NOW_S + after_s) == 3_000
    assert left(view, "a", NOW_S + BINDING_S) == 4_000
    view.changed(pod("y", "a"), at_s=WALL_S)
    view.assume(pod("y").asked, "b", now_s=NOW_S, at_s=WALL_S)
    assert (left(view, "a"), left(view, "b")) == (3_000, 3_000), "it is bound already"


def test_while_bindings_are_not_seen_pods_count_where_they_were_sent_until_they_could_be() -> None:
    """The API server was away: a kube-scheduler may be back seconds before the watch of the pods is."""
    view = View(PlacementArgs())
    receive(view, figures("a"), figures("b"), received_s=NOW_S + 20)
    view.blind(True, now_s=NOW_S)
    view.assume(pod("x").asked, "a", now_s=NOW_S, at_s=WALL_S)
    assert left(view, "a", NOW_S + 20) == 3_000
    view.blind(True, now_s=NOW_S + 20)
    view.blind(False, now_s=NOW_S + 21)
    assert left(view, "a", NOW_S + 22) == 3_000, "what happened meanwhile is said from now on"
    view.blind(False, now_s=NOW_S + 23)
    receive(view, figures("a"), received_s=NOW_S + 20 + BINDING_S)
    assert left(view, "a", NOW_S + 21 + BINDING_S) == 4_000, "it was bound nowhere"


def test_copies_of_a_static_pods_manifest_are_pods_of_their_own() -> None:
    """They carry its annotations, a hash among them that nodes know the static pod by."""
    copied = {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "0123"}
    view = View(PlacementArgs())
    receive(view, figures())
    for name in ("p1", "p2"):
        asks = {"requests": {"kubernetes.io/batch-cpu": "1000"}}
        view.changed(parsed({
            "metadata": {"name": name, "namespace": "batch", "uid": f"uid-{name}", "annotations": copied},
            "spec": {"nodeName": "a", "priority": 5500, "containers": [{"name": "main", "resources": asks}]},
            "status": {"phase": "Running"},
        }), at_s=WALL_S)  # fmt: skip
    assert left(view) == 2_000


def test_a_pod_that_asks_again_does_not_stand_in_its_own_way() -> None:
    view = View(PlacementArgs())
    receive(view, figures(batch=1_000))
    view.assume(pod("x").asked, "a", now_s=NOW_S, at_s=WALL_S)
    assert choose(view, "a").refused["a"].reason == "batch_short:cpu"
    assert not choose(view, "a", one=pod("x")).refused


def test_a_pod_that_is_deleted_before_it_is_bound_counts_no_more() -> None:
    view = View(PlacementArgs())
    receive(view, figures())
    view.changed(pod("x"), at_s=WALL_S)
    view.assume(pod("x").asked, "a", now_s=NOW_S, at_s=WALL_S)
    view.gone(("batch", "x"))
    assert (left(view), view.counts(NOW_S)[2]) == (4_000, 0)


def test_a_pod_that_has_ended_holds_nothing() -> None:
    view = View(PlacementArgs())
    receive(view, figures())
    view.changed(pod("x", "a"), at_s=WALL_S)
    there = pod("x", "a")
    ended = replace(there.asked, pod=msgspec.structs.replace(there.asked.pod, phase="Succeeded"))
    view.changed(replace(there, asked=ended), at_s=WALL_S)
    assert left(view) == 4_000


def test_a_burst_goes_round_and_piles_up_where_nothing_is_counted() -> None:
    """A hundred pods before anything of them is seen: ten on each of ten nodes, or all on one."""

    def placed(view: View) -> dict[str, int]:
        names = [f"n{number}" for number in range(10)]
        receive(view, *(figures(name, use=1_000 + number) for number, name in enumerate(names)))
        counts = dict.fromkeys(names, 0)
        for number in range(100):
            asking = pod(f"p{number}", cpu="30", memory="32Mi")
            best = choose(view, *names, one=asking).ranked[0].name
            view.assume(asking.asked, best, now_s=NOW_S, at_s=WALL_S)
            counts[best] += 1
        return counts

    assert set(placed(View(PlacementArgs())).values()) == {10}
    assert max(placed(View(PlacementArgs(), counting=False)).values()) == 100


def test_a_node_of_which_nothing_was_said_for_15_seconds_is_frozen_until_something_is() -> None:
    view = View(PlacementArgs())
    receive(view, figures())
    assert not choose(view, "a", now_s=NOW_S + 15).refused
    assert choose(view, "a", now_s=NOW_S + 15.1).refused["a"].reason == "frozen"
    receive(view, figures(), received_s=NOW_S + 16)
    assert not choose(view, "a", now_s=NOW_S + 17).refused


@pytest.mark.parametrize("lost", KINDS)
def test_a_node_freezes_when_one_topic_says_nothing_more_of_it(lost: type[Any]) -> None:
    """A broker may be away that leads the partitions of one topic: scores of now do not make an old load true."""
    view = View(PlacementArgs())
    receive(view, figures())
    for seq in range(2, 190):
        receive(view, [one for one in figures(seq=seq) if not isinstance(one, lost)], received_s=NOW_S + seq)
    assert choose(view, "a", now_s=NOW_S + 189).refused["a"].reason == "frozen"
    asked = parsed(
        {"metadata": {"name": "web", "uid": "u"}, "spec": {"priority": 9_500}, "status": {"qosClass": "Burstable"}}
    )
    expired = "node_metric_expired" if lost is NodeMetric else None
    refused = choose(view, "a", one=asked, now_s=NOW_S + 189).refused
    assert (refused["a"].reason if refused else None) == expired


def test_a_node_said_to_be_stale_is_stale_however_often_it_is_said() -> None:
    view = View(PlacementArgs())
    receive(view, figures(), figures(stale_ms=9_000))
    assert choose(view, "a").refused["a"].reason == "stale"
    receive(view, figures(seq=2))
    assert not choose(view, "a").refused


def test_an_older_report_changes_nothing() -> None:
    view = View(PlacementArgs())
    receive(view, figures(seq=5, use=2_000, batch=1_500), figures(seq=4, use=9, batch=9))
    assert (used(view), left(view)) == (2_000, 1_500)


def test_reports_of_an_older_boot_keep_no_node_from_freezing() -> None:
    view = View(PlacementArgs())
    receive(view, figures(boot_id="2-b", use=2_000))
    receive(view, figures(boot_id="1-a", seq=99, use=9), received_s=NOW_S + 14)
    assert used(view) == 2_000
    assert choose(view, "a", now_s=NOW_S + 16).refused["a"].reason == "frozen"


def test_after_a_freeze_the_older_boot_counts() -> None:
    """Workers that believe it have said nothing of the newer one for 15 s."""
    view = View(PlacementArgs())
    receive(view, figures(boot_id="2-b", use=2_000))
    receive(view, figures(boot_id="1-a", seq=99, use=9), received_s=NOW_S + 15)
    assert used(view) == 9
    assert not choose(view, "a", now_s=NOW_S + 16).refused


@pytest.mark.parametrize("counting", [True, False])
def test_no_more_is_sold_than_the_node_has(counting: bool) -> None:  # noqa: FBT001
    view = View(PlacementArgs(), counting=counting)
    view.has("a", Resources(cpu_milli=2_500, mem_bytes=16 * GIB))
    receive(view, figures(batch=2**50))
    assert left(view) == 2_500
    view.has("a", Resources(cpu_milli=1_500, mem_bytes=16 * GIB))
    assert left(view) == 1_500
    view.has("a", None)
    assert left(view) == 2**50


def test_a_node_that_the_log_takes_back_is_unknown_topic_by_topic() -> None:
    view = View(PlacementArgs())
    receive(view, figures())
    view.changed(pod("x", "a"), at_s=WALL_S)
    view.forget("a", NodeAllocatable)
    assert choose(view, "a").refused["a"].reason == "batch_short:cpu"
    view.forget("a", NodeScore)
    view.forget("a", NodeMetric)
    assert view.counts(NOW_S)[:2] == (1, 0)
    view.gone(("batch", "x"))
    view.forget("a", NodeMetric)
    assert view.counts(NOW_S)[0] == 0
    receive(view, figures(seq=1))
    assert not choose(view, "a").refused, "a node made anew begins anew"


def test_a_node_that_vanishes_is_forgotten_with_its_last_pod() -> None:
    """Its figures go first: pods of a node that is gone are removed minutes later."""
    view = View(PlacementArgs())
    receive(view, figures())
    view.changed(pod("x", "a"), at_s=WALL_S)
    for kind in KINDS:
        view.forget("a", kind)
    assert view.counts(NOW_S)[0] == 1
    view.gone(("batch", "x"))
    assert view.counts(NOW_S)[0] == 0


def test_a_node_that_nobody_speaks_of_is_forgotten_when_a_pod_was_not_bound_there() -> None:
    view = View(PlacementArgs())
    view.assume(pod("x").asked, "nobody", now_s=NOW_S, at_s=WALL_S)
    assert view.counts(NOW_S) == (1, 0, 1)
    assert view.counts(NOW_S + BINDING_S) == (0, 0, 0)


def test_a_pod_of_the_same_name_is_another_though_nobody_said_that_the_first_is_gone() -> None:
    """A watch that was away lists what there is now."""
    view = View(PlacementArgs())
    view.whole([pod("x", "a", schedulerName="default-scheduler"), pod("y", "a")], at_s=WALL_S)
    view.bound.clear()
    anew = [replace(one, asked=replace(one.asked, pod=msgspec.structs.replace(one.asked.pod, uid=f"new-{one.key[1]}")))
            for one in (pod("x"), pod("y", "b"))]  # fmt: skip
    view.assume(anew[1].asked, "b", now_s=NOW_S, at_s=WALL_S)
    assert view.counts(NOW_S)[2] == 1, "where the first was bound says nothing of the second"
    view.whole(anew, at_s=WALL_S)
    assert view.without_benefit == {}
    assert [one.uid for one in view.bound] == ["new-y"], "somebody has to judge whether it was asked about"


def test_a_node_named_twice_is_asked_once_and_nobody_else_is() -> None:
    view = View(PlacementArgs())
    receive(view, figures("a"), figures("b"))
    assert choose(view, "a", "b").names == ["a", "b"]
    assert choose(view, "a", "a").names == ["a"]


def test_pods_that_ask_a_scheduler_without_benefit_are_known_by_name_until_they_are_gone() -> None:
    view = View(PlacementArgs())
    view.whole([pod("x", schedulerName="default-scheduler"), pod("y")], at_s=WALL_S)
    assert [one.key for one in view.without_benefit.values()] == [("batch", "x")]
    view.gone(("batch", "x"))
    assert view.without_benefit == {}


def test_unequal_nodes_fill_by_what_is_left() -> None:
    view = View(ONLY_BALANCE)
    receive(view, figures("large", use=0, batch=6_000), figures("small", use=0, batch=2_000))
    for number in range(6):
        asking = pod(f"p{number}", memory="128Mi")
        best = choose(view, "large", "small", one=asking).ranked[0].name
        view.changed(pod(f"p{number}", best, memory="128Mi"), at_s=WALL_S)
    assert (left(view, "large"), left(view, "small")) == (1_000, 1_000)


def annotated(**said: Any) -> Thresholds:
    return own_thresholds({ANNOTATION: json.dumps(said)})


@pytest.mark.parametrize("kinds", [[NodeAllocatable], KINDS])
def test_what_the_log_takes_back_holds_for_no_later_pod(kinds: list[type[Any]]) -> None:
    view = View(PlacementArgs())
    receive(view, figures())
    assert not choose(view, "a").refused
    for kind in kinds:
        view.forget("a", kind)
    assert choose(view, "a").refused["a"].reason == "batch_short:cpu"
    receive(view, figures(seq=2))
    assert not choose(view, "a").refused


EVENTS: dict[str, Callable[[View, str, int, float], None]] = {
    "told": lambda view, node, seq, now_s: receive(
        view, figures(node, seq=seq, use=seq * 700 % 8_000), received_s=now_s
    ),
    "stale": lambda view, node, seq, now_s: receive(view, figures(node, seq=seq, stale_ms=9_000), received_s=now_s),
    "scored": lambda view, node, seq, now_s: receive(view, figures(node, seq=seq)[:1], received_s=now_s),
    "sold": lambda view, node, seq, now_s: receive(
        view, figures(node, seq=seq, batch=seq * 700 % 2_100)[2:], received_s=now_s
    ),
    "taken back": lambda view, node, seq, _now_s: view.forget(node, KINDS[seq % 3]),
    "limited": lambda view, node, _seq, _now_s: view.limit(node, Thresholds(usage=Percents(20, 95))),
    "not limited": lambda view, node, _seq, _now_s: view.limit(node, Thresholds()),
    "bound": lambda view, node, seq, _now_s: view.changed(pod(f"p-{seq % 4}", node), at_s=WALL_S),
    "gone": lambda view, _node, seq, _now_s: view.gone(("batch", f"p-{seq % 4}")),
    "assumed": lambda view, node, seq, now_s: view.assume(pod(f"q-{seq % 4}").asked, node, now_s=now_s, at_s=WALL_S),
    "asked": lambda _view, _node, _seq, _now_s: None,
}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(sorted(EVENTS)), st.sampled_from([0, 0, 6, 16, 200])))
)
def test_who_was_asked_all_along_answers_like_one_who_is_asked_for_the_first_time(
    events: list[tuple[str, str, int]],
) -> None:
    """What nodes said to earlier pods is kept: it must never outlive what it was said by."""
    old, new = View(PlacementArgs()), View(PlacementArgs())
    now_s, asking_ones = NOW_S, (pod("x", cpu="500"), pod("y"))
    for seq, (node, event, waited_s) in enumerate(events):
        now_s += waited_s
        for view in (old, new):
            EVENTS[event](view, node, seq, now_s)
        for one in asking_ones:
            choose(old, node, one=one, now_s=now_s)
            choose(old, "c", "b", "a", one=one, now_s=now_s)
    for one in asking_ones:
        was, fresh = (choose(view, "a", "b", "c", one=one, now_s=now_s) for view in (old, new))
        assert was.refused == fresh.refused
        assert [(one.name, one.terms) for one in was.ranked] == [(one.name, one.terms) for one in fresh.ranked]


def test_a_nodes_own_thresholds_stand_for_the_clusters_until_they_are_taken_back() -> None:
    view = View(PlacementArgs())
    view.limit("a", annotated(usageThresholds={"cpu": 20}))
    receive(view, figures(use=1_000), figures("b", use=1_000))
    assert choose(view, "a", "b").refused["a"].reason == "usage_exceeds_threshold:cpu"
    view.limit("a", Thresholds())
    assert not choose(view, "a", "b").refused


def test_a_nodes_own_thresholds_on_a_statistic_are_held_against_that() -> None:
    """It uses little on average, and a lot at its 95th percentile over five minutes."""
    view = View(PlacementArgs())
    score, metric, allocatable = figures(use=100)
    flat = dict.fromkeys(("avg", "p50", "p90", "p99"), 100)
    spread = Spread(**flat, p95=7_000)
    nothing = Spread(**dict.fromkeys(flat, 0), p95=0)
    aggregate = Aggregate(window_ms=300_000, covered_ms=300_000, node_cpu_milli=spread, node_mem_bytes=nothing,
                          system_cpu_milli=nothing, system_mem_bytes=nothing)  # fmt: skip
    receive(view, [score, msgspec.structs.replace(metric, aggregates=[aggregate]), allocatable])
    assert not choose(view, "a").refused
    aggregated = {"usageThresholds": {"cpu": 65}, "usageAggregationType": "p95", "usageAggregatedDuration": "5m0s"}
    view.limit("a", annotated(aggregatedUsage=aggregated))
    assert choose(view, "a").refused["a"].reason == "aggregated_usage_exceeds_threshold:cpu"
    view.limit("a", annotated(aggregatedUsage=aggregated | {"usageAggregationType": "p50"}))
    assert not choose(view, "a").refused


def test_a_node_with_thresholds_of_its_own_that_nobody_speaks_of_is_forgotten_with_them() -> None:
    view = View(PlacementArgs())
    view.limit("a", Thresholds())
    assert view.counts(NOW_S)[0] == 0
    view.limit("a", annotated(prodUsageThresholds={"memory": 5}))
    assert view.counts(NOW_S)[0] == 1
    view.limit("a", Thresholds())
    assert view.counts(NOW_S)[0] == 0


def test_what_an_annotation_says_is_read_kind_by_kind() -> None:
    assert annotated(usageThresholds={"cpu": 60, "memory": 80}).usage == Percents(60, 80)
    assert annotated(prodUsageThresholds={"cpu": 50}).prod == Percents(50, 0)
    assert annotated() == own_thresholds({}) == Thresholds()
    aggregated = annotated(aggregatedUsage={"usageThresholds": {"cpu": 70}, "usageAggregationType": "p99"})
    assert (aggregated.aggregated, aggregated.aggregation) == (Percents(70, 0), Aggregation("p99", 0))
    assert annotated(usageThresholds={"cpu": 60}, prodUsageThresholds=None, aggregatedUsage=None).usage == (60, 0)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"usageThresholds": {"cpu": "60"}}',
        '{"usageThresholds": {"cpu": -1}}',
        '{"aggregatedUsage": {"usageAggregationType": "p42"}}',
        '{"aggregatedUsage": {"usageAggregationType": "p95", "usageAggregatedDuration": "soon"}}',
    ],
)
def test_an_annotation_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadMessageError, match=ANNOTATION):
        own_thresholds({ANNOTATION: text})


async def test_a_node_of_another_installation_is_described_whatever_its_epoch() -> None:
    view = View(PlacementArgs())
    reader = TopicReader(Cluster("127.0.0.1:1"), view, PlacementArgs(), lambda _record, why: pytest.fail(why), Still())
    reader._live = True
    limits = []
    view.limit = lambda node, own: limits.append((node, own))  # type: ignore[method-assign]
    for installation, epoch in (("old", 7), ("new", 1), ("new", 0)):
        size = Resources(cpu_milli=1_000, mem_bytes=GIB)
        facts = NodeFacts(name="a", capacity=size, allocatable=size)
        told = NodeInventory(node="a", revision="r", facts=facts, installation=installation, writer_epoch=epoch)
        record = Record(topic=INVENTORY.name, partition=0, offset=0, timestamp_ms=0, key=b"a", value=encode(told),
                        headers=[])  # fmt: skip
        await reader._receive_all([record], NOW_S)

    assert len(limits) == 2, "the third is of an older epoch"


async def test_a_pod_that_cannot_be_decoded_hides_no_other() -> None:
    """As the API server never lists one: it knows the types of the fields."""
    view = View(PlacementArgs())
    source = pod_source(view, Still(), IgnoredFields("scheduler", "one", lambda: 0))
    good = manifest("good")
    odd = good | {"metadata": good["metadata"] | {"name": "odd", "labels": {"a": 1}}}
    listed = msgspec.json.decode(msgspec.json.encode([odd, good]), type=list[msgspec.Raw])

    await source._whole([_decoded(one) for one in listed])
    source._changed(listed[0])
    assert source.listed
    assert [name for _, name in view._pods] == ["good"]
