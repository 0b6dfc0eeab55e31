"""Learned slopes as an agent reads them, and the largest one on its node."""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from slacktide.agents.node import slopes as module
from slacktide.agents.node.protocol import inventory_of
from slacktide.agents.node.slopes import Slopes
from slacktide.schemas.codec import encode
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.service import ServiceSlope
from slacktide.schemas.topics import SERVICE_SLOPE
from slacktide.streams.records import Record

FACTS = NodeFacts(name="node-1", capacity=Resources(), allocatable=Resources())
ON, SHADOW = (Colocation(enable=True, learned_caps=mode) for mode in ("on", "shadow"))
OFF, DISABLED = Colocation(enable=True), Colocation(enable=False, learned_caps="on")


def pod(owner: str, **more: Any) -> Pod:
    return Pod(uid=owner, namespace="shop", name=owner, owner=owner, **({"kube_qos": "Burstable"} | more))


def record(service: str, slope_permille: int | None, **more: Any) -> Record:
    slope = ServiceSlope(service=service, slope_permille=slope_permille or 0, observed_ms=1, partition=0, folded_to=1)
    value = None if slope_permille is None else encode(slope)
    given = {"key": service.encode(), "value": value} | more
    return Record(topic=SERVICE_SLOPE.name, partition=0, offset=0, timestamp_ms=0, **given)


class Folder:
    """What an agent keeps, and how often it did."""

    def __init__(self, **kept: int) -> None:
        self.kept, self.writes = {f"shop/{name}": slope for name, slope in kept.items()}, 0

    def slopes(self) -> dict[str, int]:
        return self.kept

    def keep_slopes(self, slopes: Mapping[str, int]) -> None:
        self.kept, self.writes = dict(slopes), self.writes + 1


class Read:
    """What an agent knows, how often that changed, and what it refused."""

    def __init__(self, *records: Record, folder: Folder | None = None, whole: bool = True) -> None:
        self.changes, self.refused = 0, list[str]()
        self.slopes = Slopes(self._changed, folder or Folder())
        self.take(*records)
        if whole:
            self.slopes.whole()

    def _changed(self) -> None:
        self.changes += 1

    def take(self, *records: Record) -> None:
        self.slopes.take(records, lambda _, why: self.refused.append(why))

    def on(self, *pods: Pod, colocation: Colocation = ON) -> tuple[int, str]:
        facts = self.slopes.onto(FACTS, pods, colocation)
        assert msgspec.structs.replace(facts, slope_permille=0, slope_of="") == FACTS
        return facts.slope_permille, facts.slope_of


def test_the_largest_slope_of_the_nodes_services_is_in_its_facts() -> None:
    its = Read(record("shop/web", 300), record("shop/db", 900), record("shop/cache", 900), record("other/web", 5_000))
    assert its.on(pod("web")) == (300, "shop/web")
    assert its.on(pod("web"), pod("db")) == (900, "shop/db")
    assert its.on(pod("web"), pod("db"), pod("cache")) == (900, "shop/cache"), "the smallest name of equal ones"
    assert its.on(pod("unknown"), pod("")) == (0, "")
    assert its.on() == (0, "")
    assert its.on(pod("web"), pod("db"), colocation=SHADOW) == (900, "shop/db")
    assert its.on(pod("web"), pod("db"), colocation=OFF) == (0, "")
    assert its.on(pod("web"), pod("db"), colocation=DISABLED) == (0, ""), "no colocation, no cap of it"


def test_the_next_run_knows_the_slopes_of_the_nodes_own_services_until_it_has_read_the_topic() -> None:
    folder = Folder()
    its = Read(record("shop/web", 300), record("shop/db", 900), record("shop/batch", 5), folder=folder)
    assert its.on(pod("web"), pod("unknown"), pod("batch", kube_qos="BestEffort")) == (300, "shop/web")
    assert folder.kept == {"shop/web": 300}
    following = Read(folder=folder, whole=False)
    assert following.on(pod("web"), pod("db")) == (300, "shop/web"), "before anything was read"
    following.take(record("shop/web", 100))
    assert following.on() == (0, "")
    assert following.on(pod("web")) == (300, "shop/web"), "its pod was not listed for a moment"
    assert folder.kept == {"shop/web": 300}
    following.slopes.whole()
    assert (following.on(pod("web")), following.changes) == ((100, "shop/web"), 1)
    assert folder.kept == {"shop/web": 100}
    following.slopes.begin()
    assert following.on(pod("db")) == (0, "")
    assert folder.kept == {}


def test_while_the_policy_does_not_learn_nothing_is_kept_anew() -> None:
    folder = Folder(web=300)
    its = Read(record("shop/web", 100), folder=folder)
    for colocation in (OFF, DISABLED):
        assert its.on(pod("web"), colocation=colocation) == (0, "")
    assert (folder.kept, folder.writes) == ({"shop/web": 300}, 0)


def test_ended_and_best_effort_pods_have_no_say() -> None:
    its = Read(record("shop/web", 300), record("shop/db", 900))
    assert its.on(pod("web"), pod("db", phase="Succeeded")) == (300, "shop/web")
    assert its.on(pod("web"), pod("db", kube_qos="BestEffort")) == (300, "shop/web")
    assert its.on(pod("web"), pod("db", qos_label="BE")) == (900, "shop/db"), "it is outside the best-effort cgroup"


def test_what_was_in_the_facts_before_is_replaced() -> None:
    given = msgspec.structs.replace(FACTS, slope_permille=7, slope_of="forged/one")
    assert Read().slopes.onto(given, [pod("web")], ON) == FACTS


def test_a_revision_changes_only_with_the_largest_slope() -> None:
    its, pods = Read(record("shop/web", 300), record("shop/db", 900)), [pod("web"), pod("db")]

    def revision(colocation: Colocation = ON) -> str:
        return inventory_of(its.slopes.onto(FACTS, pods, colocation), pods).facts_revision

    first = revision()
    its.take(record("shop/web", 400))
    assert revision() == first
    its.take(record("shop/db", 901))
    assert revision() != first
    its.take(record("shop/db", 900))
    assert revision() == first
    assert revision(OFF) == inventory_of(FACTS, pods).facts_revision


def test_a_null_value_removes_a_slope_and_a_slope_of_nothing_is_none() -> None:
    its = Read(record("shop/web", 300))
    its.take(record("shop/web", None), record("shop/none", None))
    assert (its.on(pod("web")), its.changes) == ((0, ""), 2)
    its.take(record("shop/web", 0))
    assert its.on(pod("web")) == (0, "")


def test_nothing_changes_until_the_topic_was_read_completely() -> None:
    its = Read(record("shop/web", 300), record("shop/gone", 100))
    assert its.changes == 1
    its.slopes.begin()
    its.take(record("shop/web", 500))
    assert (its.on(pod("web")), its.changes) == ((300, "shop/web"), 1)
    its.take(record("shop/web", 600))
    its.slopes.whole()
    assert (its.on(pod("web")), its.changes) == ((600, "shop/web"), 2)
    assert its.on(pod("gone")) == (0, ""), "its removal was compacted away during an outage"
    its.slopes.whole()
    its.take(record("shop/web", 600))
    assert its.changes == 2
    its.slopes.begin()
    its.take(record("shop/web", 600))
    its.slopes.whole()
    assert its.changes == 2, "a new connection alone is no news"


def test_an_unusable_record_is_refused_and_stops_nothing() -> None:
    its = Read()
    its.take(
        record("shop/web", 1, value=b"{"),
        record("shop/web", 1, key=b"shop/other"),
        record("shop/web", 1, key=None),
        record("\ufffd", None, key=b"\xff"),
        record("shop/web", 2_000_000),
        record("shop/db", 7),
    )
    assert len(its.refused) == 4
    assert its.on(pod("web"), pod("db")) == (7, "shop/db")


def test_it_keeps_so_many_and_says_once_that_there_are_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SERVICES_MAX", 2)
    with caplog.at_level(logging.WARNING):
        its = Read(*(record(f"shop/{name}", 100) for name in "abcd"))
        its.take(record("shop/e", 100), record("shop/b", 200))
    assert its.on(*map(pod, "abcde")) == (200, "shop/b")
    assert its.on(*map(pod, "cde")) == (0, "")
    assert [one.getMessage() for one in caplog.records] == ["slopes of more services than an agent keeps are ignored"]
    its.take(record("shop/a", None), record("shop/c", 50))
    assert its.on(pod("c")) == (50, "shop/c")
