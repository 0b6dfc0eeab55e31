"""The extender's protocol: what a kube-scheduler asks, what it is answered, and what of that is told."""

import gzip
import json
from typing import Any

import pytest
from aiohttp import ClientSession

from slacktide.agents.cluster.scheduler.held_places import AGAIN_MS, Placements
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
from testbed.scenarios import run, scenarios
from testbed.scheduler_pods import parsed
from testbed.vectors import each_row

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

    def asks(self, name: str, *nodes: str, cpu: str = "1000") -> dict[str, Any]:
        """Who takes the pod, and why others do not."""
        answer = self.ask(*nodes, name=name, cpu=cpu)
        assert (answer["FailedNodes"], answer["Error"]) == ({}, ""), "an eviction of others would not help"
        return {"takes": answer["NodeNames"], "refused": answer["FailedAndUnresolvableNodes"]}

    def ranks(self, name: str, *nodes: str) -> dict[str, int]:
        return self.prioritize(manifest(name), *nodes)

    def passes(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def limits(self, node: str, cpu_pct: int) -> None:
        """Its own threshold."""
        self.view.limit(node, Thresholds(usage=Percents(cpu_pct=cpu_pct, mem_pct=0)))

    def govern(self, **placement: dict[str, int]) -> None:
        said = {name: UsagePercents(**percents) for name, percents in placement.items()}
        self.view.govern(governed(PlacementArgs(), Placement(**said)))

    def offers(self, node: str, seq: int, batch: int) -> None:
        self.receive(figures(node, seq=seq, batch=batch)[2])

    def shows(self, name: str, cpu: str = "1000") -> None:
        """A watch of the pods shows it."""
        self.view.changed(parsed(manifest(name, cpu)), at_s=0.0)

    def leaves(self, name: str) -> None:
        self.view.gone(("batch", name))

    def answered(self, *names: str) -> list[bool]:
        return [self.answers.answered(f"uid-{name}") for name in names]

    def published(self) -> list[Any]:
        """Of each placement, how many nodes were asked and took the pod, and the best with their levels."""
        return [[one.asked, one.passed, {best.node: best.level for best in one.best}] for one in self.told]


@scenarios("scheduler_answers")
def test_answers(case: dict[str, Any]) -> None:
    run(case, Batch)


def test_nodes_over_one_threshold_share_one_text_with_the_range_of_their_use() -> None:
    """A kube-scheduler counts equal texts, and an Event holds 1,024 characters."""
    asked = Batch(**{f"n{number}": 5_600 + 100 * number for number in range(20)})
    texts = set(asked.ask(*(f"n{number}" for number in range(20)))["FailedAndUnresolvableNodes"].values())

    assert texts == {f"slacktide: {OVER.format('70-93')}"}


def test_in_a_dry_run_all_nodes_pass_alike_and_what_would_be_decided_is_published() -> None:
    asked = Batch(a=1_000, busy=7_000)
    asked.view.dry_run = True
    answer = asked.ask("a", "busy", "nobody")

    assert answer == {
        "NodeNames": ["a", "busy", "nobody"], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""
    }  # fmt: skip
    assert asked.ranks("p", "a", "busy", "nobody") == {"a": 0, "busy": 0, "nobody": 0}
    assert asked.answers.answered("uid-p")
    [placement] = asked.told
    assert (placement.dry_run, placement.passed, len(placement.refused)) == (True, 1, 2)
    assert list(refused_by_all(placement)) == []


def test_a_scheduler_that_sends_whole_nodes_is_told_what_to_set() -> None:
    with pytest.raises(BadMessageError, match="nodeCacheCapable: true"):
        Batch().answers.filter(question(manifest(), None))


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"Pod": {}, "NodeNames": []}', b'{"Pod": 1, "NodeNames": []}'])
def test_what_is_no_such_question_is_refused(body: bytes) -> None:
    with pytest.raises(BadMessageError):
        Batch().answers.filter(body)


@each_row("other")
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


def test_no_refusal_has_a_percent_sign() -> None:
    """A kube-scheduler makes its event with the refusal as a format: ``65%: node`` became ``65%!:(MISSING) node``."""
    asked = Batch(a=3_000, b=3_000)
    asked.view.limit("b", Thresholds(usage=Percents(cpu_pct=40, mem_pct=0)))
    refused = asked.ask("a", "b", cpu="4000")["FailedAndUnresolvableNodes"]

    assert refused.keys() == {"a", "b"}
    assert "%" not in "".join(refused.values())
