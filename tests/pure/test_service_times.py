"""What a node's services ran and waited between two reads, from trees of plain files and from plain counters."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import msgspec
import pytest
from prometheus_client import REGISTRY

from slacktide.agents.node import services
from slacktide.agents.node.cgroup.hierarchy import find
from slacktide.agents.node.metrics import AgentMetrics
from slacktide.agents.node.service_times import NodeTimes, PodTimes, ServiceTimesReader, service_minutes
from slacktide.agents.node.services import Metered, ServiceMeter
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import LogError
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.service import ServiceMinute
from slacktide.streams.records import Out
from testbed.lone_agent import SteppedClock
from testbed.waiting import soon

MIN_NS = 60_000_000_000
FACTS = NodeFacts(name="node-1", capacity=Resources(cpu_milli=8_000), allocatable=Resources())


def pod(uid: str, owner: str = "web") -> Pod:
    return Pod(uid=uid, namespace="shop", name=uid, owner=owner, kube_qos="Burstable")


class Tree:
    """The cgroups of a node of either version, made by either driver of the kubelet."""

    def __init__(self, folder: Path, version: int, *, by_systemd: bool) -> None:
        self.mount, self.version, self.by_systemd = folder / "cgroup", version, by_systemd
        self.kubepods = "kubepods.slice" if by_systemd else "kubepods"
        self.unified = self.mount if version == 2 else self.mount / "unified"
        for root in self._roots:
            (root / self.best_effort).mkdir(parents=True, exist_ok=True)
        (self.unified / "cgroup.controllers").write_text("cpu\n")

    @property
    def best_effort(self) -> str:
        return f"{self.kubepods}/{'kubepods-besteffort.slice' if self.by_systemd else 'besteffort'}"

    def reader(self) -> ServiceTimesReader:
        return ServiceTimesReader(find(self.mount, self.kubepods))

    def group(self, uid: str, tier: str = "burstable") -> str:
        """Of a pod: guaranteed for the tier ""."""
        if not self.by_systemd:
            return str(PurePosixPath(self.kubepods, tier, f"pod{uid}"))
        above = f"kubepods-{tier}" if tier else "kubepods"
        return str(PurePosixPath(self.kubepods, f"{above}.slice" if tier else "", f"{above}-pod{uid}.slice"))

    def used(self, group: str, us: int, throttled_us: int = 0) -> None:
        """What a cgroup ran in all, and how long its own limit stopped it."""
        if self.version == 2:
            self._write(self.mount, group, "cpu.stat", f"usage_usec {us}\nthrottled_usec {throttled_us}\n")
        else:
            self._write(self.mount / "cpuacct", group, "cpuacct.usage", f"{us * 1_000}\n")
            self._write(self.mount / "cpu", group, "cpu.stat", f"nr_periods 0\nthrottled_time {throttled_us * 1_000}\n")

    def stalled(self, group: str, cpu_us: int, mem_us: int) -> None:
        for kind, us in (("cpu", cpu_us), ("memory", mem_us)):
            self._write(self.unified, group, f"{kind}.pressure", f"some avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n")

    @property
    def _roots(self) -> Sequence[Path]:
        return [self.mount] if self.version == 2 else [self.mount / "cpu", self.mount / "cpuacct", self.unified]

    def _write(self, root: Path, group: str, name: str, text: str) -> None:
        (root / group).mkdir(parents=True, exist_ok=True)
        (root / group / name).write_text(text)


@pytest.fixture(params=["v1", "v1 systemd", "v2", "v2 systemd"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    return Tree(tmp_path, 1 if "v1" in request.param else 2, by_systemd="systemd" in request.param)


def test_counters_are_read_of_pods_outside_the_best_effort_cgroup(tree: Tree) -> None:
    web, db, batch = tree.group("web"), tree.group("db", ""), tree.group("batch", "besteffort")
    for group, us in ((tree.kubepods, 900), (tree.best_effort, 500), (web, 300), (db, 100), (batch, 500)):
        tree.used(group, us)
    tree.used(f"{web}/c1", 300, throttled_us=40)
    for group in (web, db, batch):
        tree.stalled(group, 70, 20)
    reader = tree.reader()
    found = reader.read({"web", "db", "batch", "unknown"}, 7)
    assert found is not None
    assert (found.mono_ns, found.be_cpu_us, found.ls_cpu_us) == (7, 500, 400)
    assert found.pods.keys() == {"web", "db"}
    assert (found.pods["web"].run_us, found.pods["web"].stall_us, found.pods["web"].mem_stall_us) == (300, 70, 20)
    assert sorted(found.pods["web"].throttled_us.values()) == [0, 40], "the pod's own, and its container's"
    only = reader.read({"db"}, 8)
    assert only is not None
    assert only.pods.keys() == {"db"}
    reader.close()


def test_a_pod_without_a_file_is_left_out(tree: Tree) -> None:
    for group in (tree.kubepods, tree.best_effort, tree.group("web"), tree.group("db"), tree.group("mute")):
        tree.used(group, 100)
    tree.stalled(tree.group("web"), 1, 1)
    tree.stalled(tree.group("db"), 1, 1)
    (tree.unified / tree.group("db") / "memory.pressure").write_text("refused\n")
    found = tree.reader().read({"web", "db", "mute"}, 0)
    assert found is not None
    assert found.pods.keys() == {"web"}


def test_without_pressure_of_cgroups_nothing_is_read(tree: Tree) -> None:
    for group in (tree.kubepods, tree.best_effort, tree.group("web")):
        tree.used(group, 100)
    found = tree.reader().read({"web"}, 0)
    assert found is not None
    assert not found.pods, "no file says how long it waited"
    if tree.version == 1:
        shutil.rmtree(tree.unified)
        assert tree.reader().read({"web"}, 0) is None


def times(mono_ns: int, be_cpu_us: int = 0, ls_cpu_us: int = 0, **pods: PodTimes) -> NodeTimes:
    return NodeTimes(mono_ns=mono_ns, be_cpu_us=be_cpu_us, ls_cpu_us=ls_cpu_us, pods=pods)


def ran(run_us: int, stall_us: int = 0, mem_stall_us: int = 0, **throttled_us: int) -> PodTimes:
    return PodTimes(run_us=run_us, stall_us=stall_us, mem_stall_us=mem_stall_us, throttled_us=throttled_us)


def test_a_minute_is_what_rose_of_all_pods_of_a_service() -> None:
    before = times(0, 1_000, 2_000, a=ran(100, 50, 5, main=10), b=ran(200, 60, 6), c=ran(7))
    now = times(MIN_NS, 31_000, 42_000, a=ran(1_100, 350, 25, main=110), b=ran(2_200, 160, 6), c=ran(8))
    pods = [pod("a"), pod("b"), pod("c", "db")]
    assert service_minutes(before, now, FACTS, pods, 77) == [
        ServiceMinute(
            service="shop/db",
            node="node-1",
            observed_ms=77,
            span_ms=60_000,
            pods=1,
            run_us=1,
            wait_us=0,
            be_cpu_us=30_000,
            ls_cpu_us=40_000,
            cpus=8,
        ),
        ServiceMinute(
            service="shop/web",
            node="node-1",
            observed_ms=77,
            span_ms=60_000,
            pods=2,
            run_us=1_000 + 2_000,
            wait_us=300 - 100 + 100,
            mem_wait_us=20,
            be_cpu_us=30_000,
            ls_cpu_us=40_000,
            cpus=8,
        ),
    ]


def test_throttling_by_a_pods_own_limit_makes_its_wait_no_less_than_none() -> None:
    before = times(0, a=ran(0, 0, main=0), b=ran(0, 0))
    now = times(MIN_NS, a=ran(10, 100, main=900), b=ran(10, 50))
    [minute] = service_minutes(before, now, FACTS, [pod("a"), pod("b")], 0)
    assert minute.wait_us == 50, "of the other pod"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, ran(10)),
        (ran(10), None),
        (ran(10), ran(9)),
        (ran(10, 5), ran(11, 4)),
        (ran(10, 5, 3), ran(11, 6, 2)),
        (ran(10, main=5), ran(11, main=4)),
        (ran(10, main=5), ran(11)),
        (ran(10), ran(11, main=0)),
        (ran(10, old=5), ran(11, new=5)),
    ],
    ids=["came", "went", "CPU fell", "wait fell", "memory wait fell", "throttling fell", "ended", "began", "replaced"],
)
def test_a_pod_that_was_not_there_all_the_time_is_left_out(before: PodTimes | None, now: PodTimes | None) -> None:
    def at(mono_ns: int, its: PodTimes | None) -> NodeTimes:
        return times(mono_ns, b=ran(mono_ns // 1_000_000), **({} if its is None else {"a": its}))

    [minute] = service_minutes(at(0, before), at(MIN_NS, now), FACTS, [pod("a"), pod("b")], 0)
    assert (minute.pods, minute.run_us) == (1, 60_000)
    assert service_minutes(at(0, before), at(MIN_NS, now), FACTS, [pod("a")], 0) == []


def test_without_the_nodes_own_figures_there_is_no_minute() -> None:
    before, now = times(0, 10, 10, a=ran(1)), times(MIN_NS, 20, 20, a=ran(2))
    pods = [pod("a"), pod("alone", "")]
    [minute] = service_minutes(before, now, FACTS, pods, 0)
    assert minute.service == "shop/web"
    unknown = msgspec.structs.replace(FACTS, capacity=Resources())
    for first, last, facts in (
        (before, replace(now, be_cpu_us=9), FACTS),
        (before, replace(now, ls_cpu_us=9), FACTS),
        (before, replace(now, mono_ns=0), FACTS),
        (before, now, unknown),
    ):
        assert service_minutes(first, last, facts, pods, 0) == []


class Node:
    facts, pods = FACTS, [pod("a"), pod("alone", "")]


class Counted:
    """Counters that grow with time. A read tells which pods were asked for; it may be that nothing can be read."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []
        self.blind = False

    def read(self, uids: set[str], mono_ns: int) -> NodeTimes | None:
        self.asked.append(uids)
        return None if self.blind else times(mono_ns, a=ran(mono_ns // 1_000))


class Sent:
    """A connection to Kafka, which may be broken, or refuse records."""

    def __init__(self) -> None:
        self.minutes = list[ServiceMinute]()
        self.broken, self.refuses, self.failed = False, 0, 0

    async def send(self, *outs: Out) -> int:
        if self.broken:
            raise LogError("no such topic")
        self.minutes += [decode(one.value, ServiceMinute) for one in outs]
        return self.refuses

    async def broke(self, _: LogError) -> None:
        self.failed += 1


def counted(what: str, node: str) -> float:
    return REGISTRY.get_sample_value(f"slacktide_agent_service_minutes{what}_total", {"node": node}) or 0


async def test_minutes_that_cannot_be_sent_are_dropped_and_the_next_ones_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "LOOK_S", 0.001)
    clock, sent, colocation = SteppedClock(0), Sent(), Colocation(enable=True, learned_caps="on")
    metered, metrics = Metered(reader=Counted()), AgentMetrics("losing")  # type: ignore[arg-type]
    meter = ServiceMeter(metered, clock, Node(), lambda: colocation, sent, metrics)  # type: ignore[arg-type]
    measuring = asyncio.create_task(meter.run())

    async def counts(minutes: float, dropped: float) -> None:
        async def now() -> tuple[float, float]:
            clock.pass_ms(60_000)
            return counted("", "losing"), counted("_dropped", "losing")

        await soon(now, "so many", enough=lambda found: found[0] >= minutes and found[1] >= dropped)

    sent.broken = True
    await counts(0, 2)
    assert sent.failed >= 2
    sent.broken = False
    await counts(1, 2)
    sent.refuses = 1
    before = counted("_dropped", "losing")
    await counts(1, before + 1)
    measuring.cancel()
    await asyncio.gather(measuring, return_exceptions=True)
    assert counted("", "losing") < len(sent.minutes), "a refused one is not sent"


async def test_each_minute_is_sent_while_the_policy_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "LOOK_S", 0.001)
    clock, reader, sent = SteppedClock(0), Counted(), Sent()
    offered, enable, mode, looks = sent.minutes, True, "off", 0

    def colocation() -> Colocation:
        nonlocal looks
        looks += 1
        return Colocation(enable=enable, learned_caps=mode)  # type: ignore[arg-type]

    metered = Metered(reader=reader)  # type: ignore[arg-type]
    meter = ServiceMeter(metered, clock, Node(), colocation, sent, AgentMetrics("metered"))  # type: ignore[arg-type]
    measuring = asyncio.create_task(meter.run())

    async def came(what: str, true: Callable[[], bool]) -> None:
        await soon(lambda: asyncio.sleep(0, true()), what)

    async def looked() -> None:
        """It has seen what is so now, and done what follows."""
        seen = looks
        await came("two looks", lambda: looks >= seen + 2)

    await looked()
    assert not reader.asked
    enable, mode = False, "on"
    await looked()
    assert not reader.asked, "the policy disables all colocation"
    enable, mode = True, "shadow"
    await came("a first read", lambda: len(reader.asked) == 1)
    clock.pass_ms(59_999)
    await looked()
    assert len(reader.asked) == 1
    clock.pass_ms(1)
    await came("a minute", lambda: len(offered) == 1)
    assert (offered[0].run_us, offered[0].span_ms) == (60_000_000, 60_000)
    reader.blind = True
    clock.pass_ms(60_000)
    await came("reads of nothing", lambda: len(reader.asked) > 3)
    reader.blind = False
    await looked()
    assert len(offered) == 1
    mode = "off"
    await looked()
    mode = "on"
    clock.pass_ms(3_600_000)
    seen = len(reader.asked)
    await came("another first read", lambda: len(reader.asked) > seen)
    clock.pass_ms(60_000)
    await came("its minute", lambda: len(offered) == 2)
    assert offered[1].span_ms == 60_000, "what was before does not count"
    assert reader.asked[0] == {"a"}, "only pods of services are read"
    measuring.cancel()
    await asyncio.gather(measuring, return_exceptions=True)
