"""When the bridge writes what to a node: decided without an API server."""

from __future__ import annotations

import msgspec
import pytest
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
from slacktide.agents.cluster.bridge.writing import FROZEN_S, Write, Writing
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.policy import Colocation
from slacktide.schemas.units import cpu_milli, cpu_text, mem_text, whole
from testbed.messages import any_message
from testbed.policies import policy_from

LARGE = Resources(cpu_milli=2**40, mem_bytes=2**50)
FACTS = NodeFacts(name="node-1", capacity=LARGE, allocatable=LARGE)
SMALL = Resources(cpu_milli=8_000, mem_bytes=16 * 2**30)
BARE = shown({"cpu": "8"}, {"cpu": "8"})
COLOCATION = Colocation()
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


def both(**amounts: int) -> Shown:
    """The same in capacity and allocatable."""
    figures = dict.fromkeys(NAMES) | amounts
    return Shown(capacity=figures, allocatable=figures)


ON = both(batch_cpu_milli=1_000, batch_mem_bytes=2**30)


def test_what_appears_is_written_to_both_in_one_patch() -> None:
    write = status_write(BARE, allocatable(), COLOCATION, 0)
    assert write is not None
    wanted = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1073741824",
              "kubernetes.io/mid-cpu": None, "kubernetes.io/mid-memory": None,
              "kubernetes.io/free-cpu": None, "kubernetes.io/free-memory": None}  # fmt: skip
    assert write.body == {"status": {"capacity": wanted, "allocatable": wanted}}


@pytest.mark.parametrize(
    ("cpu", "since_s", "reason"),
    [(1_000, 10_000, None), (1_100, 299, None), (1_101, 0, "moved"), (899, 0, "moved"), (1_001, 300, "due")],
)
def test_a_change_of_more_than_a_tenth_is_written_at_once_and_a_smaller_one_after_300_s(
    cpu: int, since_s: float, reason: str | None
) -> None:
    write = status_write(ON, allocatable(cpu=cpu), COLOCATION, since_s)
    assert (write and write.reason) == reason


def test_what_is_withdrawn_is_urgent() -> None:
    gone = status_write(ON, allocatable(cpu=None, mem=None), COLOCATION, 0)
    stale = status_write(ON, allocatable(cpu=100, stale_ms=10_000), COLOCATION, 0)
    less = status_write(ON, allocatable(cpu=100), COLOCATION, 0)
    assert [one and one.urgent for one in (gone, stale, less)] == [True, True, False]


def test_capacity_and_allocatable_that_differ_are_mended() -> None:
    apart = Shown(capacity=ON.capacity, allocatable=BARE.allocatable)
    write = status_write(apart, allocatable(), COLOCATION, 0)
    assert write is not None
    assert write.urgent


def test_the_older_names_of_the_resources_are_left_alone() -> None:
    assert shown({"koordinator.sh/batch-cpu": "5"}, {}) == BARE


@given(FIGURES, FIGURES, any_message(NodeAllocatable), st.floats(0, 1_000))
def test_what_is_written_is_what_was_said_and_nothing_where_it_stands_already(
    capacity: dict, alloc: dict, said: NodeAllocatable, since_s: float
) -> None:
    before = Shown(capacity=capacity, allocatable=alloc)
    write = status_write(before, said, COLOCATION, since_s)
    if write is None:
        return
    figures = {field: getattr(said, field) for field in NAMES}
    assert write.figures == figures
    assert status_write(Shown(capacity=figures, allocatable=figures), said, COLOCATION, since_s) is None


class _Run:
    """Nodes, time, and an API server that takes every write."""

    def __init__(self, facts: NodeFacts = FACTS) -> None:
        self.writing = Writing()
        self.writing.node("u", facts, BARE, 0)
        self.wrote: list[tuple[float, Write]] = []

    def second(self, now_s: float) -> None:
        for write in self.writing.due(now_s):
            self.wrote.append((now_s, write))
            self.writing.wrote(write, now_s, done=True)
            if write.kind == "status":
                patch = write.body["status"]
                self.writing.node("u", FACTS, shown(patch["capacity"], patch["allocatable"]), now_s)

    def times(self, kind: str) -> list[float]:
        return [now_s for now_s, write in self.wrote if write.kind == kind]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 2**20), min_size=50, max_size=80), st.integers(1, 10))
def test_in_steady_state_a_node_is_written_to_within_the_budget(figures: list[int], hold_s: int) -> None:
    run = _Run()
    for now_s in range(hold_s * len(figures)):
        run.writing.allocatables.receive(allocatable(cpu=figures[now_s // hold_s], seq=now_s), now_s)
        run.writing.metrics.receive(metric(observed_ms=now_s * 1_000, seq=now_s), now_s)
        run.second(now_s)
    for kind, each_s, saved in (("status", 120, node_status.SAVED_MAX), ("metric", 60, 0)):
        times = run.times(kind)
        for first, begin_s in enumerate(times):
            assert all(
                count <= 1 + saved + (end_s - begin_s) / each_s for count, end_s in enumerate(times[first:], start=1)
            )


def test_with_no_word_of_a_node_for_15_s_nothing_is_written_and_nothing_withdrawn() -> None:
    run = _Run()
    run.writing.allocatables.receive(allocatable(), 0)
    run.second(0)
    assert run.times("status") == [0]
    run.writing.allocatables.receive(allocatable(cpu=5_000, seq=2), 20)
    assert run.writing.frozen(20 + FROZEN_S - 0.1) == 0
    assert run.writing.frozen(20 + FROZEN_S) == 1
    run.second(20 + FROZEN_S)
    assert run.times("status") == [0]
    run.second(20 + FROZEN_S - 1)
    assert len(run.times("status")) == 2


def test_a_dry_run_by_a_node_strategy_takes_the_resources_of_its_nodes_and_writes_none() -> None:
    run = _Run()
    run.writing.node("uid", FACTS, ON, 0)
    dry = {"name": "canary", "nodeSelector": {"matchLabels": {"pool": "canary"}}, "resourceDryRun": True}
    run.writing.policy(policy_from(colocation={"enable": True, "nodeConfigs": [dry]}))
    run.writing.allocatables.receive(allocatable(), 0)
    assert run.writing.due(0) == []
    run.writing.node("uid", msgspec.structs.replace(FACTS, labels={"pool": "canary"}), ON, 1)
    [taken] = run.writing.due(1)
    run.writing.shows("node-1", BARE)

    assert set(taken.body["status"]["allocatable"].values()) == {None}
    assert run.writing.due(20) == [], "and nothing comes back"


def test_an_older_samples_figures_displace_none() -> None:
    run = _Run()
    run.writing.allocatables.receive(allocatable(cpu=2_000, seq=9), 0)
    run.writing.allocatables.receive(allocatable(cpu=1_000, seq=8), 1)
    assert run.writing.allocatables.of("node-1", 1).batch_cpu_milli == 2_000
    run.writing.allocatables.receive(allocatable(cpu=1_000, seq=8, boot_id="0-z"), FROZEN_S)
    assert run.writing.allocatables.of("node-1", FROZEN_S).batch_cpu_milli == 1_000


@given(FIGURES, st.none() | st.integers(0, 2**40), st.none() | st.integers(0, 2**50))
def test_no_figure_above_the_nodes_own_capacity_is_written(
    figures: dict[str, int | None], cpu_milli: int | None, mem_bytes: int | None
) -> None:
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


def test_figures_above_the_nodes_capacity_are_written_as_its_capacity_and_told_of_once() -> None:
    """1 PiB of memory on a node of 16 GiB; until they are below it again."""
    run = _Run()
    run.writing.node("uid", msgspec.structs.replace(FACTS, capacity=SMALL), BARE, 0)
    forged, honest = allocatable(mem=2**50, seq=2), allocatable(seq=3)
    run.writing.allocatables.receive(forged, 0)
    [write] = run.writing.due(0)

    assert write.body["status"]["capacity"]["kubernetes.io/batch-memory"] == str(16 * 2**30)
    told = [run.writing.overstated(one) for one in (forged, forged, honest, forged)]
    why = f"batch_mem_bytes is {2**50}, above the Node's capacity of {16 * 2**30}"
    assert told == [why, "", "", why]
    assert run.writing.capped == {"node-1"}
    run.writing.gone("node-1")
    assert (run.writing.capped, run.writing.overstated(forged)) == (set(), "")


def test_a_silent_nodes_metric_grows_old() -> None:
    run = _Run()
    run.writing.metrics.receive(metric(), 0)
    run.second(0)
    run.writing.metrics.receive(metric(observed_ms=1_700_000_060_000, stale_ms=9_000), 60)
    run.second(60)
    run.writing.metrics.receive(metric(observed_ms=1_700_000_061_000), 61)
    run.second(61)
    assert run.times("metric") == [0, 61]


def test_a_longer_interval_of_the_policy_is_kept_and_a_shorter_one_is_not() -> None:
    said = metric()
    for interval_s, due in ((30, [False, True, True]), (90, [False, False, True])):
        colocation = Colocation(metric_report_interval_s=interval_s)
        ages = [node_status.is_metric_due(said, 1, age, colocation) for age in (59, 60, 90)]
        assert ages == due


def test_a_fleet_is_written_to_a_share_at_a_time_those_who_waited_longest_first() -> None:
    writing = Writing()
    names = [f"node-{number:04}" for number in range(900)]
    for name in names:
        writing.node("u", NodeFacts(name=name, capacity=FACTS.capacity, allocatable=FACTS.allocatable), BARE, 0)
    reported: dict[str, list[int]] = {}
    for now_s in range(130):
        for name in names:
            writing.metrics.receive(metric(node=name, observed_ms=now_s), now_s)
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
        writing.allocatables.receive(allocatable(node=name), 0)
    assert len(writing.due(0)) == 900
    for write in writing.due(0):
        writing.wrote(write, 0, done=True)
        patch = write.body["status"]
        writing.shows(write.node, shown(patch["capacity"], patch["allocatable"]))
    for name in names:
        writing.allocatables.receive(allocatable(node=name, cpu=9_000, seq=2), 11)
    assert len(writing.due(11)) == node_status.share(len(names)) == 15


def test_a_failed_report_is_tried_again_after_a_while() -> None:
    run = _Run()
    for now_s in (0, 1, 9, 10):
        run.writing.metrics.receive(metric(), now_s)
        for write in run.writing.due(now_s):
            run.wrote.append((now_s, write))
            run.writing.wrote(write, now_s, done=False)
    assert run.times("metric") == [0, 10]


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
