"""Which waiting pods are woken: those that a node would take now, and few of them at once."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.agents.cluster.scheduler import waiting as rules
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.cluster.scheduler.waiting import BACKOFF_MAX_S, BACKOFF_S, WAKES_PER_S, Shapes, Waiting
from slacktide.streams.decisions.load.pod_placement import Asking, PlacementArgs, asking
from testbed.kube_scheduler import figures
from testbed.scenarios import run, scenarios
from testbed.scheduler_pods import parsed

MANY = 10**6
"""Judgements."""
NODES = ("a", "b", "c")


def pod(name: str, size: int = 1, *, priority: int = 5500, sub: int = 0, created_s: int = 0) -> SchedulerPod:
    asks = {"kubernetes.io/batch-cpu": str(size), "kubernetes.io/batch-memory": "1"}
    created = f"2026-01-01T00:00:{created_s:02d}Z"
    return parsed({
        "metadata": {"name": name, "namespace": "batch", "uid": name, "creationTimestamp": created,
                     "labels": {"koordinator.sh/priority": str(sub)}},
        "spec": {"priority": priority, "containers": [{"name": "main", "resources": {"requests": asks}}]},
    })  # fmt: skip


class World:
    """Nodes with room for pods, and the kube-scheduler that asks: a node takes what is no larger than its room."""

    def __init__(self, *nodes: str) -> None:
        self.args = PlacementArgs()
        self.room = dict.fromkeys(nodes or NODES, 0)
        self.bound: set[str] = set()
        self.gone: set[str] = set()
        self.pods: dict[str, SchedulerPod] = {}
        self.judged = 0
        self.now_s = 1_000.0
        self._change = -1
        self._changed: dict[str, int] = {}
        self.waiting = Waiting(self)

    def changed_since(self, change: int, *, now_s: float) -> list[tuple[str, int]]:
        assert now_s == self.now_s
        return [(node, last) for node, last in self._changed.items() if last > change]

    def takes(self, asks: Asking, node: str, *, now_s: float) -> bool:
        assert now_s == self.now_s
        self.judged += 1
        return asks.wanted.cpu_milli <= self.room[node]

    def waits(self, pod: SchedulerPod) -> bool | None:
        return None if pod.uid in self.gone else pod.uid not in self.bound

    def set(self, node: str, room: int) -> None:
        """It has so much room from now on."""
        self.room[node] = room
        self._change += 1
        self._changed.pop(node, None)
        self._changed[node] = self._change

    def ask(self, pod: SchedulerPod, nodes: tuple[str, ...] = NODES) -> bool:
        """Whether it was bound to the first of these nodes that takes it."""
        asks = asking(pod.asked, self.args)
        for node in nodes:
            if asks.wanted.cpu_milli <= self.room[node]:
                self.waiting.accept(pod.uid)
                self.bound.add(pod.uid)
                self.set(node, self.room[node] - asks.wanted.cpu_milli)
                return True
        self.waiting.refuse(pod, asks, nodes, now_s=self.now_s, decided_ms=round(self.now_s * 1_000))
        return False

    def wake(self, judgements: int = MANY) -> list[str]:
        return [one.uid for one in self.waiting.wake(judgements, now_s=self.now_s)]

    def asks(self, name: str, *nodes: str, **said: int) -> bool:
        """Whether the pod is bound; it is the same until another is described."""
        if said or name not in self.pods:
            self.pods[name] = pod(name, **said)
        return self.ask(self.pods[name], nodes or NODES)

    def wakes(self) -> list[str]:
        return self.wake()

    def passes(self, seconds: float) -> None:
        self.now_s += seconds

    def seen(self, what: str, *names: str) -> None:
        """These are ``bound``, or ``gone``; no others are."""
        setattr(self, what, set(names))

    def another_answers(self, name: str, later_ms: int) -> int:
        """A replica did, so long after now: how many pods wait here still."""
        self.waiting.leave(name, round(self.now_s * 1_000) + later_ms)
        return len(self.waiting)

    def wake_fails(self, name: str) -> None:
        self.waiting.fail(name)

    def sets_room_unsaid(self, node: str, room: int) -> None:
        """Its figures are the same: what is made of them is not."""
        self.room[node] = room

    def policy(self, load_weight: int) -> None:
        self.args = replace(self.args, load_weight=load_weight)

    def counts(self) -> list[int]:
        """Pods that wait, and judgements of nodes."""
        return [len(self.waiting), self.judged]


@scenarios("scheduler_waiting")
def test_waiting(case: dict[str, Any]) -> None:
    run(case, World)


def test_wakes_of_one_pod_are_further_and_further_apart() -> None:
    world, one = World(), pod("p")
    gaps, woken_s = [], world.now_s
    for _ in range(7):
        world.set("a", 0)
        world.ask(one)
        world.set("a", 1)
        while not world.wake():
            world.now_s += 0.25
        gaps.append(world.now_s - woken_s)
        woken_s = world.now_s
    assert gaps == [0.0, BACKOFF_S, 2.0, 4.0, 8.0, BACKOFF_MAX_S, BACKOFF_MAX_S]
    assert world.ask(one)
    world.bound.clear()
    assert not world.ask(one)
    world.set("a", 1)
    assert world.wake() == ["p"], "a node was found for it meanwhile"


def test_of_too_many_pods_the_first_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "PODS_MAX", 3)
    world = World()
    for number in range(5):
        world.ask(pod(f"p{number}"))
    world.set("a", 9), world.set("b", 9), world.set("c", 9)
    assert sorted(world.wake()) == ["p2", "p3", "p4"]


def test_where_few_nodes_are_judged_at_once_each_has_its_turn() -> None:
    """Although all of them change all the time."""
    nodes = tuple(f"n{number}" for number in range(10))
    world = World(*nodes)
    world.ask(pod("p"), nodes)
    world.ask(pod("larger", 2), nodes)
    turns = 0
    while not (woken := world.wake(3)):
        assert world.judged == 3 * turns, "three nodes: what refuses the smaller pod refuses the larger one"
        for node in nodes:
            world.set(node, int(node == "n7"))
        turns += 1
        assert turns <= 5
    assert woken == ["p"]
    assert world.waiting.behind


@dataclass(frozen=True)
class Step:
    """Something happens: a node's room, a question, time."""

    do: Callable[[World, list[SchedulerPod]], object]
    said: str

    def __repr__(self) -> str:
        return self.said


SIZES = st.integers(1, 4)
STEPS = st.one_of(
    st.builds(
        lambda node, room: Step(lambda world, _: world.set(node, room), f"set({node}, {room})"),
        st.sampled_from(NODES),
        st.integers(0, 6),
    ),
    st.builds(
        lambda index, nodes: Step(
            lambda world, pods: pods[index].uid in world.bound or world.ask(pods[index], tuple(sorted(nodes))),
            f"ask({index}, {nodes})",
        ),
        st.integers(0, 5),
        st.frozensets(st.sampled_from(NODES), min_size=1),
    ),
    st.builds(
        lambda seconds: Step(lambda world, _: setattr(world, "now_s", world.now_s + seconds), f"pass({seconds})"),
        st.sampled_from([0.1, 1.0, 6.0]),
    ),
)


@given(st.lists(SIZES, min_size=6, max_size=6), st.lists(STEPS, max_size=40))
def test_who_is_woken_waits_and_some_node_that_refused_it_has_changed_and_takes_it(
    sizes: list[int], steps: list[Step]
) -> None:
    world = World()
    pods = [pod(f"p{number}", size) for number, size in enumerate(sizes)]
    asked_at: dict[str, int] = {}
    refused_by: dict[str, tuple[str, ...]] = {}
    real = world.waiting.refuse

    def refuse(pod: SchedulerPod, asks: Asking, nodes: tuple[str, ...], *, now_s: float, decided_ms: int) -> None:
        asked_at[pod.uid], refused_by[pod.uid] = world._change, nodes
        real(pod, asks, nodes, now_s=now_s, decided_ms=decided_ms)

    world.waiting.refuse = refuse  # type: ignore[method-assign, assignment]
    for step in steps:
        step.do(world, pods)
        for uid in world.wake():
            size = sizes[int(uid[1:])]
            news = {node for node, _ in world.changed_since(asked_at.pop(uid), now_s=world.now_s)}
            assert uid not in world.bound
            assert any(size <= world.room[node] for node in news.intersection(refused_by[uid]))


@given(st.lists(SIZES, min_size=6, max_size=6), st.lists(STEPS, max_size=40), st.integers(1, 3))
def test_in_the_end_no_pod_waits_for_a_node_that_would_take_it(
    sizes: list[int], steps: list[Step], judgements: int
) -> None:
    """Nobody asks again but who is woken; each asks all the nodes that refused it."""
    world = World()
    pods = [pod(f"p{number}", size) for number, size in enumerate(sizes)]
    asked: dict[str, SchedulerPod] = {}
    for step in steps:
        step.do(world, pods)
    for one in pods:
        if one.uid not in world.bound:
            world.ask(one)
            asked[one.uid] = one
    for node in NODES:
        world.set(node, 3)
    for _ in range(100):
        world.now_s += BACKOFF_MAX_S
        for uid in world.wake(judgements):
            world.ask(asked[uid])
    waits = [one for one in pods if one.uid not in world.bound]
    assert all(sizes[int(one.uid[1:])] > max(world.room.values()) for one in waits)


CROWD = {f"p{number}": pod(f"p{number}") for number in range(80)}


@settings(max_examples=20)
@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=1, max_size=10))
def test_wakes_in_all_are_bounded(pauses: list[float]) -> None:
    nodes = tuple(f"n{number}" for number in range(40))
    world, begun_s, woken = World(*nodes), 1_000.0, 0
    for one in CROWD.values():
        world.ask(one, nodes)
    for node in nodes:
        world.set(node, 9)
    for pause_s in pauses:
        world.now_s += pause_s
        for uid in world.wake():
            woken += 1
            assert world.ask(CROWD[uid], nodes)
        assert woken <= WAKES_PER_S * (1 + world.now_s - begun_s) + 1e-6
    assert woken >= min(len(CROWD), WAKES_PER_S)


def _asks(*, batch: bool, cpu: int, memory: int, priority: int) -> Asking:
    names = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory") if batch else ("cpu", "memory")
    requests = dict(zip(names, (f"{cpu}" if batch else f"{cpu}m", f"{memory}Mi"), strict=True))
    metadata = {"name": "p", "namespace": "batch", "uid": "p"}
    spec = {"priority": priority, "containers": [{"name": "main", "resources": {"requests": requests}}]}
    return asking(parsed({"metadata": metadata, "spec": spec}).asked, PlacementArgs())


ASKS = st.builds(
    _asks,
    batch=st.booleans(),
    cpu=st.integers(0, 8_000),
    memory=st.integers(0, 16_000),
    priority=st.sampled_from([9500, 7500, 5500, 3500]),
)


@given(st.lists(ASKS, min_size=1, max_size=8), st.integers(0, 8_000), st.integers(0, 6_000), st.booleans())
def test_shapes_are_judged_as_each_alone_would_be(some: list[Asking], use: int, batch: int, silent: bool) -> None:  # noqa: FBT001
    """By the real rules: a node that refuses the least of all amounts is asked no more, for it refuses all."""
    view, shapes = View(PlacementArgs()), Shapes()
    for one in figures("a", use=use, batch=batch, stale_ms=9_000 if silent else 0):
        view.receive(one, received_s=1_000.0, logged_s=0.0)
    for asks in some:
        shapes.of(asks).group(frozenset({"a"}))
    asked: list[Asking] = []

    def takes(asks: Asking) -> bool:
        asked.append(asks)
        return view.takes(asks, "a", now_s=1_000.0)

    willing, judgements = shapes.judged("a", takes)
    assert judgements == len(asked)
    assert {one.asks.shape for one in willing} == {asks.shape for asks in some if view.takes(asks, "a", now_s=1_000.0)}
