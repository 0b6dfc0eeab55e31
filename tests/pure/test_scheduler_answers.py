"""The extender's protocol: what a kube-scheduler asks, what it is answered, and what of that is told."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from aiohttp import ClientSession

from slacktide.agents.cluster.scheduler.placements import AGAIN_MS, Placements
from slacktide.agents.cluster.scheduler.scheduler import serving
from slacktide.agents.cluster.scheduler.topic_reader import governed
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.placement import PodPlacement, RefusingNodes
from slacktide.schemas.policy.strategies import Placement, UsagePercents
from slacktide.streams.analysis.explain.placement import refused_by_all
from slacktide.streams.decisions.load.load_aware_estimator import Percents, Thresholds
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from testbed.kube_scheduler import Asked, figures, manifest, question
from testbed.scheduler_pods import parsed

GIB = 2**30
OVER = (
    "usage_exceeds_threshold:cpu: over placement-config usageThresholds.cpu 65 percent: node uses {} percent "
    "with the pods assigned to it, pod counts 850m (estimatedScalingFactors.cpu 85 percent of 1000m)"
)


class Batch(Asked):
    """Asks for batch pods by their name and CPU, over some nodes that sell 4 CPUs each."""

    def __init__(self, **uses: int) -> None:
        super().__init__()
        for name, use in uses.items():
            self.say(name, use)

    def say(self, node: str, use: int, **said: Any) -> None:
        self.receive(*figures(node, use=use, **said))

    def ask(self, *nodes: str, name: str = "p", cpu: str = "1000") -> dict[str, Any]:
        return self.filter(manifest(name, cpu), *nodes)

    def rank(self, *nodes: str, name: str = "p") -> dict[str, int]:
        return self.prioritize(manifest(name), *nodes)


def test_who_passes_and_who_fails_and_that_no_eviction_of_others_would_help() -> None:
    asked = Batch(a=1_000, b=2_000, busy=7_000)
    asked.say("silent", 0, stale_ms=9_000)
    assert asked.ask("a", "b", "busy", "silent", "nobody") == {
        "NodeNames": ["a", "b"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {
            "busy": f"slacktide: {OVER.format(87)}",
            "nobody": "slacktide: batch_short:cpu: pod requests 1000m, but only 0m is free",
            "silent": "slacktide: its agent is silent",
        },
        "Error": "",
    }


def test_nodes_over_one_threshold_share_one_text_with_the_range_of_their_use() -> None:
    """A kube-scheduler counts equal texts, and an Event holds 1,024 characters."""
    asked = Batch(**{f"n{number}": 5_600 + 100 * number for number in range(20)})
    texts = set(asked.ask(*(f"n{number}" for number in range(20)))["FailedAndUnresolvableNodes"].values())

    assert texts == {f"slacktide: {OVER.format('70-93')}"}


def test_a_threshold_of_the_nodes_own_is_named_as_its_own() -> None:
    asked = Batch(a=3_000, b=3_000)
    asked.view.limit("b", Thresholds(usage=Percents(cpu_pct=40, mem_pct=0)))
    texts = asked.ask("a", "b")["FailedAndUnresolvableNodes"]

    assert texts == {
        "b": "slacktide: usage_exceeds_threshold:cpu: over the node's annotation "
        "scheduling.koordinator.sh/usage-thresholds usageThresholds.cpu 40 percent: node uses 37 percent "
        "with the pods assigned to it, pod counts 850m (estimatedScalingFactors.cpu 85 percent of 1000m)"
    }


def test_the_policy_sets_the_thresholds_and_the_refusal_says_them() -> None:
    """A pod of all CPUs of a node fits an idle one where the policy allows it."""
    asked = Batch(a=2_000)
    assert asked.ask("a", cpu="3000")["NodeNames"] == ["a"]
    asked.view.govern(governed(PlacementArgs(), Placement(usage=UsagePercents(cpu_pct=50))))
    [text] = asked.ask("a", cpu="3000")["FailedAndUnresolvableNodes"].values()
    assert text == (
        "slacktide: usage_exceeds_threshold:cpu: over placement-config usageThresholds.cpu 50 percent: "
        "node uses 25 percent "
        "with the pods assigned to it, pod counts 2550m (estimatedScalingFactors.cpu 85 percent of 3000m)"
    )
    asked.view.govern(governed(PlacementArgs(), Placement(factors=UsagePercents(cpu_pct=30))))
    assert asked.ask("a", cpu="3000")["NodeNames"] == ["a"]


def test_in_a_dry_run_all_nodes_pass_alike_and_what_would_be_decided_is_published() -> None:
    asked = Batch(a=1_000, busy=7_000)
    asked.view.dry_run = True
    answer = asked.ask("a", "busy", "nobody")

    assert answer == {
        "NodeNames": ["a", "busy", "nobody"], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""
    }  # fmt: skip
    assert asked.rank("a", "busy", "nobody") == {"a": 0, "busy": 0, "nobody": 0}
    assert asked.answers.answered("uid-p")
    [placement] = asked.told
    assert (placement.dry_run, placement.passed, len(placement.refused)) == (True, 1, 2)
    assert list(refused_by_all(placement)) == []


def test_pods_that_were_placed_are_estimated_anew_by_another_policy() -> None:
    asked, half = Batch(a=1_000), UsagePercents(cpu_pct=50)
    asked.view.govern(governed(PlacementArgs(), Placement(usage=half)))
    asked.ask("a", cpu="3000", name="first")
    before = asked.ask("a", cpu="1000", name="second")
    asked.view.govern(governed(PlacementArgs(), Placement(usage=half, factors=UsagePercents(cpu_pct=10))))
    assert (before["NodeNames"], asked.ask("a", cpu="1000", name="second")["NodeNames"]) == ([], ["a"])


def test_the_best_is_10_and_close_ones_keep_their_order() -> None:
    asked = Batch(a=1_000, b=1_160, c=1_320)
    asked.ask("a", "b", "c")
    assert asked.rank("a", "b", "c") == {"a": 10, "b": 9, "c": 8}


def test_nodes_that_another_rule_left_out_meanwhile_are_not_ranked() -> None:
    asked = Batch(a=1_000, b=1_160, c=1_320)
    asked.ask("a", "b", "c")
    assert asked.rank("b", "c") == {"b": 10, "c": 9}


def test_what_was_judged_too_long_ago_is_judged_anew() -> None:
    asked = Batch(a=1_000, b=1_160)
    asked.ask("a", "b")
    asked.say("a", 0, stale_ms=9_000)
    asked.clock.now_s += 2
    assert asked.rank("a", "b") == {"a": 0, "b": 10}


def test_a_node_that_would_refuse_the_pod_attracts_nothing_where_nobody_asked_it_before() -> None:
    asked = Batch(a=1_000, busy=7_000)
    assert asked.rank("a", "busy") == {"a": 10, "busy": 0}


def test_a_pod_counts_at_the_best_as_soon_as_that_is_told() -> None:
    asked = Batch(a=1_000, b=1_160)
    asked.ask("a", "b", name="first")
    asked.rank("a", "b", name="first")
    asked.ask("a", "b", name="second")
    assert asked.rank("a", "b", name="second")["b"] == 10


def test_where_one_node_alone_passes_nobody_asks_again_and_the_pod_counts_all_the_same() -> None:
    asked = Batch(a=0)
    for number in range(2):
        assert asked.ask("a", name=f"p{number}", cpu="2000")["NodeNames"] == ["a"]
    assert asked.ask("a", name="p2", cpu="2000")["FailedAndUnresolvableNodes"] == {
        "a": "slacktide: batch_short:cpu: pod requests 2000m, but only 0m is free"
    }
    assert [asked.answers.answered(f"uid-p{number}") for number in range(3)] == [True, True, False]


def test_a_scheduler_that_sends_whole_nodes_is_told_what_to_set() -> None:
    with pytest.raises(BadMessageError, match="nodeCacheCapable: true"):
        Batch().answers.filter(question(manifest(), None))


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"Pod": {}, "NodeNames": []}', b'{"Pod": 1, "NodeNames": []}'])
def test_what_is_no_such_question_is_refused(body: bytes) -> None:
    with pytest.raises(BadMessageError):
        Batch().answers.filter(body)


@pytest.mark.parametrize(
    "other",
    [
        {"status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "yesterday"}]}},
        {"status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": 5}]}},
        {"status": {"conditions": {"type": "PodScheduled"}}},
        {"status": {"conditions": [None]}},
        {"metadata": {"name": "p", "uid": "u", "ownerReferences": "DaemonSet"}},
        {"spec": {"nodeName": 5}},
    ],
)
def test_a_pod_that_cannot_be_read_is_refused_by_the_path_of_its_field(other: dict[str, Any]) -> None:
    body = {"Pod": {"metadata": {"name": "p", "uid": "u"}} | other, "NodeNames": ["a"]}
    with pytest.raises(BadMessageError, match=r"\.(status\.conditions|metadata\.ownerReferences|spec\.nodeName)"):
        Batch(a=0).answers.filter(json.dumps(body).encode())


async def test_a_body_that_cannot_be_unpacked_is_no_such_question_either() -> None:
    asked = Batch(a=0)
    async with serving(asked.answers, lambda: "", "127.0.0.1", 0) as port, ClientSession() as session:
        url = f"http://127.0.0.1:{port}/filter"

        async def status(body: bytes) -> int:
            async with session.post(url, data=body, headers={"Content-Encoding": "gzip"}) as answer:
                return answer.status

        assert await status(gzip.compress(question(manifest(), ["a"]))) == 200
        assert await status(b"no such thing") == 400


def test_an_answer_is_told_with_reasons_by_how_many_and_the_five_best() -> None:
    asked = Batch(**{f"n{number}": 1_000 + 160 * number for number in range(7)}, full=8_000)
    for number in range(7):
        asked.say(f"s{number}", 0, stale_ms=9_000)
    asked.ask(*(f"n{number}" for number in range(7)), *(f"s{number}" for number in range(7)), "full")
    [told] = asked.told
    assert (told.pod_uid, told.namespace, told.name) == ("uid-p", "batch", "p")
    assert (told.asked, told.passed) == (15, 7)
    assert told.refused == [
        RefusingNodes(reason="stale", why="its agent is silent", count=7, nodes=["s0", "s1", "s2", "s3", "s4"]),
        RefusingNodes(reason="usage_exceeds_threshold:cpu", why=OVER.format(100), count=1, nodes=["full"]),
    ]
    assert [(one.node, one.level) for one in told.best] == [("n0", 10), ("n1", 9), ("n2", 8), ("n3", 7), ("n4", 6)]


def test_ranks_that_nobody_filtered_for_are_told_as_they_were_answered() -> None:
    asked = Batch(a=1_000, b=1_160, busy=7_000)
    assert asked.rank("a", "b", "busy") == {"a": 10, "b": 9, "busy": 0}
    [told] = asked.told
    assert (told.asked, told.passed) == (3, 2)
    assert [(one.node, one.level) for one in told.best] == [("a", 10), ("b", 9)]


def test_what_is_judged_anew_is_told_anew() -> None:
    asked = Batch(a=1_000, b=1_160)
    asked.ask("a", "b")
    asked.say("a", 4_000, seq=2)
    asked.clock.now_s += 2
    assert asked.rank("a", "b") == {"a": 9, "b": 10}
    assert [[one.node for one in told.best] for told in asked.told] == [["a", "b"], ["b", "a"]]


def test_a_node_named_twice_is_told_of_once() -> None:
    asked = Batch(a=1_000)
    asked.ask("a", "a")
    assert [(one.asked, one.passed) for one in asked.told] == [(1, 1)]


def test_judgements_that_nobody_asks_the_ranks_of_are_let_go() -> None:
    """Each names all nodes, and thousands of pods may wait."""
    asked = Batch(a=1_000, b=1_160)
    for number in range(100):
        asked.ask("a", "b", name=f"p{number}")
        asked.clock.now_s += 0.1
    assert len(asked.answers._judged) <= 12


def test_of_a_pod_that_waits_what_did_not_change_is_told_once_a_minute() -> None:
    placements = Placements(Cluster("127.0.0.1:1"), lambda: 0)

    def say(at_ms: int, *reasons: str) -> int:
        before = len(placements._waiting)
        refused = [RefusingNodes(reason=reason, count=1, nodes=["a"]) for reason in reasons]
        placements.publish(PodPlacement(pod_uid="u", namespace="n", name="p", decided_ms=at_ms, asked=2,
                                    passed=2 - len(refused), refused=refused))  # fmt: skip
        return len(placements._waiting) - before

    assert say(0, "stale", "frozen") == 1
    assert say(AGAIN_MS - 1, "stale", "frozen") == 0
    assert say(AGAIN_MS, "stale", "frozen") == 1
    assert say(AGAIN_MS + 1, "stale", "evicting") == 1
    assert say(AGAIN_MS + 2) == 1
    assert say(AGAIN_MS + 3, "stale", "evicting") == 1


def test_of_thousands_that_wait_it_is_told_no_more_often() -> None:
    placements = Placements(Cluster("127.0.0.1:1"), lambda: 0)
    refused = [RefusingNodes(reason="stale", count=1, nodes=["a"])]
    for at_ms in (1, 20_000):
        for number in range(2_000):
            placements.publish(PodPlacement(pod_uid=f"u{number}", namespace="n", name="p", decided_ms=at_ms, asked=1,
                                        passed=0, refused=refused))  # fmt: skip
    assert len(placements._waiting) == 2_000


class Waiting(Batch):
    """A pod that all of these nodes refused, and that a watch has shown."""

    def __init__(self, cpu: str = "1000", **uses: int) -> None:
        super().__init__(**uses)
        self.view.changed(parsed(manifest("p", cpu)), at_s=0.0)
        assert not self.ask(*uses, cpu=cpu)["NodeNames"]
        assert self.woken() == []


def test_a_pod_that_all_nodes_refused_is_woken_when_one_nodes_load_has_fallen() -> None:
    asked = Waiting(a=7_000, b=7_500)
    asked.say("a", 6_900, seq=2)
    assert asked.woken() == [], "it is still over its threshold"
    asked.say("b", 1_000, seq=2)
    assert asked.woken() == ["p"]
    assert asked.ask("a", "b")["NodeNames"] == ["b"]


def test_so_it_is_when_more_is_sold() -> None:
    asked = Waiting(cpu="4001", a=1_000)
    asked.receive(figures("a", seq=2, batch=4_001)[2])
    assert asked.woken() == ["p"]


def test_so_it_is_when_a_pod_leaves_or_goes_elsewhere_than_it_was_sent() -> None:
    asked = Batch(a=1_000)
    asked.ask("a", name="first", cpu="3000")
    first, second = (parsed(manifest(name, "3000")) for name in ("first", "second"))
    for one in (first, second):
        asked.view.changed(one, at_s=0.0)
    assert not asked.ask("a", name="second", cpu="3000")["NodeNames"]
    asked.view.gone(first.key)
    assert asked.woken() == ["second"]


def test_so_it_is_when_the_policy_allows_more_use() -> None:
    asked = Waiting(a=7_000)
    asked.view.govern(governed(PlacementArgs(), Placement(usage=UsagePercents(cpu_pct=100, mem_pct=100))))
    assert asked.woken() == ["p"]


def test_so_it_is_when_a_silent_nodes_agent_is_back() -> None:
    asked = Batch()
    asked.say("a", 0, stale_ms=9_000)
    asked.view.changed(parsed(manifest()), at_s=0.0)
    asked.ask("a")
    asked.say("a", 0, seq=2)
    assert asked.woken() == ["p"]


def test_no_refusal_has_a_percent_sign() -> None:
    """A kube-scheduler makes its event with the refusal as a format: ``65%: node`` became ``65%!:(MISSING) node``."""
    asked = Batch(a=3_000, b=3_000)
    asked.view.limit("b", Thresholds(usage=Percents(cpu_pct=40, mem_pct=0)))
    refused = asked.ask("a", "b", cpu="4000")["FailedAndUnresolvableNodes"]

    assert refused.keys() == {"a", "b"}
    assert "%" not in "".join(refused.values())
