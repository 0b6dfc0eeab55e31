"""The console's cluster page beyond sums: evictions by rule, the guard, lag, dead letters; an eviction's credit."""

from pathlib import Path

import pytest

from slacktide.deploy.console.answers import Question, answer
from slacktide.deploy.console.history.node_figures import limit_milli
from slacktide.deploy.console.history.queries import History
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import Spent
from slacktide.schemas.sample import Limits
from slacktide.schemas.tick import Reached, WorkerTick
from slacktide.schemas.topics import CREDIT, DEAD_LETTER, OUTCOME, SAMPLE, TICK, Topic
from slacktide.streams.records import Record
from testbed.chains import Chain, evicted, logged, outcome
from testbed.console import stored
from testbed.samples import BOOT, FACTS, START_MS
from testbed.snapshots import json_text, stable
from testbed.vectors import each_row

POD = "jobs/etl-x2lqp"


def credit(number: int, granted: int, boot: str = BOOT) -> EvictionCredit:
    return EvictionCredit(node="node-1", boot_id=boot, epoch=1, number=number, granted=granted, ttl_ms=60_000)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Two minutes: two evictions, the guard in charge at 110 s, a dead letter, a worker behind, grants that change."""
    path: Path = tmp_path_factory.mktemp("standing") / "history.sqlite"
    chain = Chain()
    chain.run(1, 125)
    offsets: dict[str, int] = {}

    def put(after_s: float, body: Message, topic: Topic, key: str = "node-1") -> None:
        offset = offsets[topic.name] = offsets.get(topic.name, -1) + 1
        chain.records.append(logged(body, topic, key=key, offset=offset, at_ms=START_MS + round(1_000 * after_s)))

    put(20, credit(1, 1), CREDIT)
    put(40, credit(2, 1), CREDIT)  # a renewal
    put(60, evicted(60, spent=Spent(evictions=1)), OUTCOME)
    put(70, credit(3, 4), CREDIT)
    put(80, evicted(80, spent=Spent(evictions=2)), OUTCOME)
    put(80.1, evicted(80, "etl-other", rule="BECPUEvict", spent=Spent(evictions=3)), OUTCOME)
    put(80.2, evicted(80, "etl-third", result="refused", reason="no credit", spent=Spent(evictions=3)), OUTCOME)
    dead_letter = DeadLetter(
        topic=SAMPLE.name, partition=3, offset=7, reason="truncated", reader="stream", refused_ms=0
    )
    put(90, dead_letter, DEAD_LETTER, key="bad")
    reached = [Reached(partition=3, position=10, end=2_010), Reached(partition=4, position=5, end=5)]
    put(100, WorkerTick(worker="w", number=5, ticked_ms=START_MS, partitions=reached), TICK, key="w")
    put(110, outcome(110, origin="guard"), OUTCOME)
    stored(path, chain.records)
    return History(path)


def _asked(after_s: int, **given: str) -> Question:
    return Question(at_ms=START_MS + 1_000 * after_s, given=given)


def lines(history: History, after_s: int, **given: str) -> list[str]:
    found: list[str] = answer(history, "explain", _asked(after_s, **given))["lines"]
    return found


@pytest.mark.parametrize("after_s", [30, 112])
def test_the_cluster_counts_what_was_done_within_the_hour_up_to_the_moment(
    history: History, after_s: int, snapshot
) -> None:
    assert json_text(answer(history, "cluster", _asked(after_s))["standing"]) == snapshot


@pytest.mark.parametrize("figure", ["evicted_hour", "guarded_nodes", "lag_records", "letters_hour"])
def test_each_of_these_figures_opens_the_records_that_it_counts(history: History, figure: str, snapshot) -> None:
    assert stable("\n".join(lines(history, 112, figure=figure))) == snapshot


def test_an_eviction_shows_the_credit_that_it_spent_and_who_granted_it(history: History, snapshot) -> None:
    events = answer(history, "pod", _asked(120, pod=POD))["events"]
    assert json_text(events) == snapshot
    assert f"    {events[1]['credit']}" in lines(history, 120, pod=POD, figure="events")


def test_a_grant_of_another_boot_is_named_as_such(tmp_path: Path) -> None:
    chain = Chain()
    chain.run(1, 70)
    act = evicted(60, spent=Spent(evictions=1))
    records: list[Record] = [
        *chain.records,
        logged(credit(1, 2, "older"), CREDIT, key="node-1", at_ms=START_MS + 10_000),
        logged(act, OUTCOME, key="node-1", at_ms=START_MS + 50_000),
    ]
    stored(tmp_path / "history.sqlite", records)
    [event] = answer(History(tmp_path / "history.sqlite"), "pod", _asked(60, pod=POD))["events"]
    assert event["credit"].endswith(f"the grant is from another boot, {CREDIT.name} 0:0")


@each_row("limits", "told")
def test_the_limit_in_the_figures_is_what_explain_tells(limits: Limits | None, told: int | None) -> None:
    assert limit_milli(limits, FACTS) == told
