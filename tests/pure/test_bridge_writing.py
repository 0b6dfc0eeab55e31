"""When the bridge writes what to a node: decided without an API server."""

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.agents.cluster.bridge import node_status
from slacktide.agents.cluster.bridge.node_status import (
    NAMES,
    Shown,
    capped,
    figures_of,
    overstated,
    shown,
    status_write,
)
from slacktide.agents.cluster.bridge.writing import NodeSelector, Write, Writing
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.policy import Colocation
from slacktide.schemas.units import cpu_milli, cpu_text, mem_text, whole
from testbed.messages import any_message
from testbed.policies import policy_from
from testbed.scenarios import run, scenarios

LARGE = Resources(cpu_milli=2**40, mem_bytes=2**50)
FACTS = NodeFacts(name="node-1", capacity=LARGE, allocatable=LARGE)
SMALL = Resources(cpu_milli=8_000, mem_bytes=16 * 2**30)
BARE = shown({"cpu": "8"}, {"cpu": "8"})
COLOCATION = Colocation()
RESOURCES = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
AMOUNT = st.none() | st.integers(0, 2**40)
FIGURES = st.fixed_dictionaries(dict.fromkeys(NAMES, AMOUNT))


def allocatable(cpu: int | None = 1_000, mem: int | None = 2**30, **other) -> NodeAllocatable:
    known = {"node": "node-1", "boot_id": "1-a", "seq": 1, "observed_ms": 1_700_000_000_000, "policy_version": "p"}
    known |= {"facts_revision": "f", "pods_revision": "r", "window_ms": 1, "covered_ms": 1}
    return NodeAllocatable(**known | {"batch_cpu_milli": cpu, "batch_mem_bytes": mem} | other)


def metric(observed_ms: int = 1_700_000_000_000, **other) -> NodeMetric:
    use = Use(cpu_milli=1, mem_bytes=1)
    known = {"node": "node-1", "boot_id": "1-a", "seq": 1, "policy_version": "p", "facts_revision": "f", "samples": 1}
    known |= {"pods_revision": "r", "window_ms": 1, "covered_ms": 1, "node_use": use, "system_use": use}
    return NodeMetric(**known | {"observed_ms": observed_ms} | other)


def test_the_older_names_of_the_resources_are_left_alone() -> None:
    assert shown({"koordinator.sh/batch-cpu": "5"}, {}) == BARE


@given(FIGURES, FIGURES, any_message(NodeAllocatable), st.floats(0, 1_000))
def test_what_is_written_is_what_was_said_and_nothing_where_it_stands_already(capacity, alloc, said, since_s) -> None:
    before = Shown(capacity=capacity, allocatable=alloc)
    write = status_write(before, said, COLOCATION, since_s)
    if write is None:
        return
    figures = {field: getattr(said, field) for field in NAMES}
    assert write.figures == figures
    assert status_write(Shown(capacity=figures, allocatable=figures), said, COLOCATION, since_s) is None


def test_with_a_selector_only_nodes_with_the_label_are_written_to() -> None:
    """Another controller may write to the others."""
    run = _Run()
    run.writing.selector = NodeSelector("colocation-agent", "slacktide")
    run.node(0, {"colocation-agent": "slacktide-dry-run"})
    run.allocatable(1)
    run.metric(1)
    assert run.second(2) == []
    assert run.writing.shown == {}
    assert run.writing.concerns(run._facts), "its agent may run dry"

    run.node(3, {"colocation-agent": "slacktide"})
    assert [kind for kind, *_ in run.second(4)] == ["status", "metric"]

    run.node(5)
    run.allocatable(6, cpu=10)
    assert run.second(120) == []
    assert not run.writing.concerns(run._facts)


class _Run:
    """Nodes, time, and an API server that takes every write."""

    def __init__(self, *, small: bool = False) -> None:
        self.writing = Writing()
        self._facts = msgspec.structs.replace(FACTS, capacity=SMALL) if small else FACTS
        self.writing.node("u", self._facts, BARE, 0)
        self.wrote: list[tuple[float, Write]] = []
        self.failed: set[float] = set()
        """When no write succeeded."""

    def second(self, now_s: float, *, done: bool = True) -> list[list[Any]]:
        writes = self.writing.due(now_s)
        self.failed |= set() if done else {now_s}
        for write in writes:
            self.wrote.append((now_s, write))
            self.writing.wrote(write, now_s, done=done)
            if write.kind == "status" and done:
                patch = write.body["status"]
                self.writing.node("u", self._facts, shown(patch["capacity"], patch["allocatable"]), now_s)
        return [[one.kind, *([one.body["status"]] if one.kind == "status" else [])] for one in writes]

    def node(self, now_s: float, labels: dict[str, str] | None = None, amounts: list[str | None] | None = None) -> None:
        """It shows these amounts of batch resources."""
        self._facts = msgspec.structs.replace(self._facts, labels=labels or {})
        status = dict(zip(RESOURCES, amounts or (), strict=False))
        self.writing.node("u", self._facts, shown(status, status), now_s)

    def allocatable(self, now_s: float, cpu: int | None = 1_000, mem: int | None = 2**30, **of: Any) -> None:
        self.writing.allocatables.take(allocatable(cpu, mem, **of), now_s)

    def metric(self, now_s: float, **of: Any) -> None:
        self.writing.metrics.take(metric(**of), now_s)

    def policy(self, **colocation: Any) -> None:
        self.writing.policy(policy_from(colocation=colocation))

    def known(self, now_s: float) -> int | None:
        found = self.writing.allocatables.of("node-1", now_s)
        return found and found.batch_cpu_milli

    def frozen(self, now_s: float) -> int:
        return self.writing.frozen(now_s)

    def overstated(self, mem: int) -> list[Any]:
        return [self.writing.overstated(allocatable(mem=mem)), sorted(self.writing.capped)]

    def gone(self) -> None:
        self.writing.gone("node-1")

    def metric_due(self, interval_s: int, *ages_s: int) -> list[bool]:
        of = Colocation(metric_report_interval_s=interval_s)
        return [node_status.is_metric_due(metric(), 1, age_s, of) for age_s in ages_s]

    def status(
        self, since_s: float, capacity: list[str | None], alloc: list[str | None], **of: Any
    ) -> list[Any] | None:
        """What is written where a node shows these amounts of batch resources, and was written to so long ago."""
        amounts = [dict(zip(RESOURCES, one, strict=False)) for one in (capacity, alloc)]
        found = status_write(shown(*amounts), allocatable(**of), COLOCATION, since_s)
        return found and [found.reason, found.urgent, found.body["status"]]

    def times(self, kind: str) -> list[float]:
        return [now_s for now_s, write in self.wrote if write.kind == kind]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 2**20), min_size=50, max_size=80), st.integers(1, 10))
def test_in_steady_state_a_node_is_written_to_within_the_budget(figures: list[int], hold_s: int) -> None:
    run = _Run()
    for now_s in range(hold_s * len(figures)):
        run.writing.allocatables.take(allocatable(cpu=figures[now_s // hold_s], seq=now_s), now_s)
        run.writing.metrics.take(metric(observed_ms=now_s * 1_000, seq=now_s), now_s)
        run.second(now_s)
    for kind, each_s, saved in (("status", 120, node_status.SAVED_MAX), ("metric", 60, 0)):
        times = run.times(kind)
        for first, begin_s in enumerate(times):
            assert all(
                count <= 1 + saved + (end_s - begin_s) / each_s for count, end_s in enumerate(times[first:], start=1)
            )


SELDOM = st.sampled_from([False] * 4 + [True])
STEPS = st.tuples(st.integers(1, 30), st.integers(1, 2**20), SELDOM, SELDOM, SELDOM)


@settings(max_examples=20, deadline=None)
@given(st.lists(STEPS, min_size=20, max_size=60))
def test_a_node_is_written_to_once_a_minute_unless_an_offer_is_withdrawn(steps) -> None:
    """However long it was quiet, and whatever fails. What is withdrawn waits only for what the watch takes."""
    run, now_s = _Run(), 0
    for seconds, cpu, gone, degraded, fails in steps:
        for _ in range(seconds):
            now_s += 1
            run.allocatable(now_s, None if gone else cpu, seq=now_s, degraded=degraded)
            run.second(now_s, done=not fails)
    writes = [(at_s, write) for at_s, write in run.wrote if write.kind == "status"]
    assert all(later_s - at_s >= node_status.GAP_S for (at_s, _), (later_s, _) in pairwise(writes))
    unforced = [at_s for at_s, write in writes if not write.of.urgent and at_s not in run.failed]
    assert all(later_s - at_s >= 60 for at_s, later_s in pairwise(unforced))


@given(FIGURES, st.none() | st.integers(0, 2**40), st.none() | st.integers(0, 2**50))
def test_no_figure_above_the_nodes_own_capacity_is_written(figures, cpu_milli, mem_bytes) -> None:
    capacity = Resources(cpu_milli=cpu_milli, mem_bytes=mem_bytes)
    said = allocatable(figures["batch_cpu_milli"], figures["batch_mem_bytes"],
                       mid_cpu_milli=figures["mid_cpu_milli"], mid_mem_bytes=figures["mid_mem_bytes"],
                       free_cpu_milli=figures["free_cpu_milli"], free_mem_bytes=figures["free_mem_bytes"])  # fmt: skip
    written = figures_of(capped(said, capacity))

    for field, amount in written.items():
        limit = (cpu_milli if "cpu" in field else mem_bytes) or 0
        assert (amount or 0) <= limit
        assert amount == figures[field] or (amount == limit and f"{field} is" in overstated(said, capacity))
    assert (written == figures_of(said)) == (overstated(said, capacity) == "")


def test_a_fleet_is_written_to_a_share_at_a_time_those_who_waited_longest_first() -> None:
    writing = Writing()
    names = [f"node-{number:04}" for number in range(900)]
    for name in names:
        writing.node("u", NodeFacts(name=name, capacity=FACTS.capacity, allocatable=FACTS.allocatable), BARE, 0)
    reported: dict[str, list[int]] = {}
    for now_s in range(130):
        for name in names:
            writing.metrics.take(metric(node=name, observed_ms=now_s), now_s)
        due = writing.due(now_s)
        assert len(due) <= node_status.share(len(names)) == 15
        for write in due:
            reported.setdefault(write.node, []).append(now_s)
            writing.wrote(write, now_s, done=True)
    assert {len(times) for times in reported.values()} <= {2, 3}
    assert len(reported) == len(names)


def test_nodes_that_show_nothing_yet_do_not_wait_for_a_share() -> None:
    """A fleet's first figures are written at once, and no node's budget is exceeded by it; what moves then waits."""
    writing = Writing()
    names = [f"node-{number:04}" for number in range(900)]
    for name in names:
        writing.node("u", NodeFacts(name=name, capacity=FACTS.capacity, allocatable=FACTS.allocatable), BARE, 0)
        writing.allocatables.take(allocatable(node=name), 0)
    assert len(writing.due(0)) == 900
    for write in writing.due(0):
        writing.wrote(write, 0, done=True)
        patch = write.body["status"]
        writing.shows(write.node, shown(patch["capacity"], patch["allocatable"]))
    for name in names:
        writing.allocatables.take(allocatable(node=name, cpu=9_000, seq=2), 60)
    assert len(writing.due(60)) == node_status.share(len(names)) == 15


@given(st.integers(0, 2**50))
def test_amounts_are_read_back_as_they_were(amount: int) -> None:
    assert (cpu_milli(cpu_text(amount)), whole(mem_text(amount))) == (amount, amount)


def test_amounts_are_written_as_kubernetes_writes_them() -> None:
    use = Use(cpu_milli=138, mem_bytes=1_815_637_738)
    status = node_status.metric_status(metric(node_use=use, system_use=Use(cpu_milli=2_000, mem_bytes=17_828 * 1_024)))
    body = status["status"]["nodeMetric"]
    assert body["nodeUsage"] == {"resources": {"cpu": "138m", "memory": "1815637738"}}
    assert body["systemUsage"] == {"resources": {"cpu": "2", "memory": "17828Ki"}}
    spans = [node_status.duration_text(ms) for ms in (300_000, 600_000, 5_400_000, 5_000)]
    assert spans == ["5m0s", "10m0s", "1h30m0s", "5s"]


@scenarios("bridge_writing")
def test_bridge_writing(case: dict[str, Any]) -> None:
    run(case, _Run)
