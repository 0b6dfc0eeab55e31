"""What the scheduler's part knows of nodes: figures of the log, and pods that were placed since."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.cluster.events import IgnoredFields
from slacktide.agents.cluster.scheduler.node import Size
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.scheduler.scheduler import pod_source
from slacktide.agents.cluster.scheduler.topic_reader import TopicReader
from slacktide.agents.cluster.scheduler.view import View
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
    Amounts,
    Percents,
    Thresholds,
    own_thresholds,
)
from slacktide.streams.decisions.load.pod_placement import Choice, PlacementArgs
from slacktide.streams.records import Record
from testbed.kube_scheduler import GIB, WALL_S, Still, answers, figures, manifest
from testbed.scenarios import run, scenarios
from testbed.scheduler_pods import parsed
from testbed.vectors import each_row

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


class Seen:
    """What is known of nodes, and a clock."""

    def __init__(self, *, counting: bool = True) -> None:
        self.view = View(PlacementArgs(), counting=counting)
        self.now_s = NOW_S

    def passes(self, seconds: float) -> None:
        self.now_s += seconds

    def says(self, node: str, *, pods: dict[str, int] | None = None, **said: Any) -> None:
        """``pods``: what these use, in millicores."""
        score, metric, allocatable = figures(node, **said)
        measured = [
            PodMetric(uid=f"uid-{name}", namespace="batch", name=name, use=Use(cpu_milli=milli, mem_bytes=GIB))
            for name, milli in (pods or {}).items()
        ]
        receive(self.view, [score, msgspec.structs.replace(metric, pods=measured), allocatable], received_s=self.now_s)

    def takes_back(self, node: str, *topics: str) -> None:
        for topic in topics:
            self.view.forget(node, {"score": NodeScore, "metric": NodeMetric, "allocatable": NodeAllocatable}[topic])

    def pod(self, name: str, node: str = "", *, uid: str = "", phase: str = "", **said: Any) -> SchedulerPod:
        annotations = said.pop("annotations", {})
        made = manifest(name, node=node, **said)
        made["metadata"] |= {"annotations": annotations, "uid": uid or f"uid-{name}"}
        made["status"] |= {"phase": phase} if phase else {}
        return parsed(made)

    def shows(self, name: str, node: str = "", *, age_s: int = 0, **said: Any) -> None:
        """A watch shows the pod; bound so long ago, where there is a node."""
        self.view.changed(self.pod(name, node, **said), at_s=WALL_S - age_s)

    def lists(self, *pods: list[Any], age_s: int = 0) -> None:
        """A watch that begins anew; each pod has its name, its node and more."""
        self.view.whole([self.pod(*one[:2], **dict(*one[2:])) for one in pods], at_s=WALL_S - age_s)

    def sends(self, name: str, node: str, **said: Any) -> None:
        self.view.assume(self.pod(name, **said).asked, node, now_s=self.now_s, at_s=WALL_S)

    def leaves(self, name: str) -> None:
        self.view.gone(("batch", name))

    def blind(self, blind: bool) -> None:  # noqa: FBT001
        self.view.blind(blind, now_s=self.now_s)

    def node_has(self, node: str, cpu_milli: int | None) -> None:
        amounts = Amounts(cpu_milli or 0, 16 * GIB)
        self.view.has(node, None if cpu_milli is None else Size(amounts, amounts))

    def limits(self, node: str, **thresholds: Any) -> None:
        self.view.limit(node, annotated(**thresholds))

    def left(self, *nodes: str) -> list[int]:
        """What is left of the batch CPU of each for others than who asks."""
        small = pod("asking", cpu="1", memory="1")
        found = [choose(self.view, node, one=small, now_s=self.now_s).ranked[0] for node in nodes]
        return [ranked.willing.left.cpu_milli + 1 for ranked in found]

    def used(self, node: str) -> int:
        return int(choose(self.view, node, now_s=self.now_s).ranked[0].terms["existing_milli"])

    def refused(self, *nodes: str, name: str = "asking") -> dict[str, str]:
        refused = choose(self.view, *nodes, one=pod(name), now_s=self.now_s).refused
        return {node: why.reason for node, why in refused.items()}

    def names(self, *nodes: str) -> list[str]:
        return choose(self.view, *nodes, now_s=self.now_s).names

    def counts(self) -> list[int]:
        """Nodes that are known, those with figures, and pods that were sent and not seen yet."""
        return list(self.view.counts(self.now_s))

    def without_benefit(self) -> list[str]:
        return [one.key[1] for one in self.view.without_benefit.values()]

    def bound(self) -> list[str]:
        """The pods that were seen bound since the last time, of which somebody has to judge whether they asked."""
        uids = [one.uid for one in self.view.bound]
        self.view.bound.clear()
        return uids


@scenarios("scheduler_view")
def test_what_is_known_of_nodes_and_pods(case: dict[str, Any]) -> None:
    run(case, Seen)


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


def test_what_an_annotation_says_is_read_kind_by_kind() -> None:
    assert annotated(usageThresholds={"cpu": 60, "memory": 80}).usage == Percents(60, 80)
    assert annotated(prodUsageThresholds={"cpu": 50}).prod == Percents(50, 0)
    assert annotated() == own_thresholds({}) == Thresholds()
    aggregated = annotated(aggregatedUsage={"usageThresholds": {"cpu": 70}, "usageAggregationType": "p99"})
    assert (aggregated.aggregated, aggregated.aggregation) == (Percents(70, 0), Aggregation("p99", 0))
    assert annotated(usageThresholds={"cpu": 60}, prodUsageThresholds=None, aggregatedUsage=None).usage == (60, 0)


@each_row("text")
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
    source = pod_source(
        view, answers(view, lambda _: None, Still()), Still(), IgnoredFields("scheduler", "one", lambda: 0)
    )
    good = manifest("good")
    odd = good | {"metadata": good["metadata"] | {"name": "odd", "labels": {"a": 1}}}
    listed = msgspec.json.decode(msgspec.json.encode([odd, good]), type=list[msgspec.Raw])

    await source._whole([_decoded(one) for one in listed])
    source._changed(listed[0])
    assert source.listed
    assert [name for _, name in view._pods] == ["good"]
