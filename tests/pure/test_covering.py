"""Which nodes a worker's heartbeats cover, and how often it publishes figures that did not change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.codec import decode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.heartbeat import KEY, Heartbeat, heartbeat_of
from slacktide.schemas.topics import COMMAND, DEAD_LETTER, METRIC
from slacktide.streams.records import FIGURES, Out
from slacktide.streams.worker import Worker
from slacktide.streams.worker.published import COVERED_MS, Covering
from testbed.samples import START_MS, inventory_record, keyframe, policy_record, record_of

PARTITION = 3


def worker_of(republish_ms: int = 5_000) -> Worker:
    worker = Worker("w", republish_ms=republish_ms)
    worker.policy(policy_record())
    return worker


def take(worker: Worker, seq: int, node: str = "node-1", **changes: object) -> list[Out]:
    return worker.samples([record_of(keyframe(seq, node, **changes), partition=PARTITION)], START_MS + seq * 1_000)


def beats(worker: Worker, stale: frozenset[str] = frozenset()) -> list[Out]:
    return worker.heartbeats([PARTITION], 7, stale, ticked_ms=5, now_ms=START_MS)


def covered(worker: Worker, stale: frozenset[str] = frozenset()) -> list[str]:
    found = [heartbeat_of(out.headers).nodes for out in beats(worker, stale)]
    assert found == [found[0]] * len(FIGURES), "the same in each topic"
    return found[0]


def published(outs: list[Out]) -> int:
    return sum(out.topic == METRIC.name for out in outs)


def test_a_heartbeat_names_owner_epoch_and_nodes_in_each_topic_of_figures() -> None:
    worker = worker_of()
    take(worker, 1)
    outs = beats(worker)
    assert [(out.topic, out.partition, out.key, out.value) for out in outs] == [
        (topic, PARTITION, KEY.encode(), None) for topic in FIGURES
    ]
    assert heartbeat_of(outs[0].headers) == Heartbeat(worker="w", epoch=7, ticked_ms=5, nodes=["node-1"])


def test_an_owner_that_covers_nobody_yet_names_its_epoch_all_the_same() -> None:
    assert len(beats(worker_of())) == len(FIGURES)
    assert covered(worker_of()) == []


@pytest.mark.parametrize(("republish_ms", "times"), [(5_000, 12), (30_000, 2)])
def test_figures_that_do_not_change_are_published_once_an_interval_and_covered_all_the_while(
    republish_ms: int, times: int
) -> None:
    worker, count = worker_of(republish_ms), 0
    for seq in range(1, 61):
        count += published(take(worker, seq))
        worker.covering.tick(1_000)
        assert covered(worker) == ["node-1"]
    assert count == times


def test_a_node_whose_samples_end_is_covered_for_4_seconds_and_again_while_it_is_called_stale() -> None:
    worker = worker_of(30_000)
    take(worker, 1)
    worker.covering.tick(COVERED_MS - 1)
    assert covered(worker) == ["node-1"]
    worker.covering.tick(1)
    assert covered(worker) == []
    assert published(worker.silent({"node-1": 9_000})) == 1
    worker.covering.tick(COVERED_MS)
    assert covered(worker, frozenset({"node-1"})) == ["node-1"]
    assert covered(worker) == [], "of a partition that is not read to its end nobody knows"


def test_a_node_that_this_worker_did_not_publish_is_not_covered() -> None:
    """Not while its windows are filled, nor where only an earlier owner published it."""
    worker = worker_of()
    worker.hold_back(PARTITION)
    take(worker, 1)
    assert covered(worker) == []
    worker.publish(PARTITION)
    take(worker, 2)
    assert covered(worker) == ["node-1"]
    worker.forget(PARTITION)
    assert covered(worker) == []


@pytest.mark.parametrize("topic", FIGURES)
def test_a_node_of_which_a_record_was_refused_is_not_covered_until_all_are_published_again(topic: str) -> None:
    worker = worker_of()
    [refused] = [out for out in take(worker, 1) if out.topic == topic]
    worker.refused(refused, "too large", START_MS)
    take(worker, 2)
    assert covered(worker) == []
    take(worker, 6)
    assert covered(worker) == ["node-1"]


def test_a_node_whose_figures_fail_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_of()
    take(worker, 1)
    with monkeypatch.context() as broken:
        broken.setattr("slacktide.streams.worker.publishing.node_score", lambda *_, **__: 1 // 0)
        assert [out.topic for out in take(worker, 6)] == [COMMAND.name, DEAD_LETTER.name]
    take(worker, 7)
    assert covered(worker) == []
    take(worker, 11)
    assert covered(worker) == ["node-1"]


def test_a_node_that_is_removed_is_not_covered() -> None:
    worker = worker_of()
    take(worker, 1)
    outs = worker.inventory(inventory_record(None, partition=PARTITION))
    assert {out.topic for out in outs} == set(FIGURES)
    assert covered(worker) == []


def test_a_node_whose_name_two_agents_use_is_not_covered() -> None:
    worker = worker_of()
    take(worker, 1, boot_id="000000000002-0000000b")
    for seq in range(2, 12):
        for boot_id in ("000000000001-0000000a", "000000000002-0000000b"):
            sample = keyframe(seq, boot_id=boot_id)
            record = record_of(sample, partition=PARTITION)
            record = type(record)(**{name: getattr(record, name) for name in record.__struct_fields__}
                                  | {"timestamp_ms": START_MS + seq * 1_000})  # fmt: skip
            worker.samples([record], START_MS + seq * 1_000)
        worker.covering.tick(1_000)
    assert covered(worker) == []


@pytest.mark.parametrize("name", [KEY, "#", "#heartbeat-1"])
def test_a_node_with_a_reserved_name_is_a_dead_letter(name: str) -> None:
    """Its figures would stand under a heartbeat's key."""
    worker = worker_of()
    [letter] = take(worker, 1, name)
    assert "names that begin with # are reserved" in decode(letter.value, DeadLetter).reason
    assert covered(worker) == []


SECONDS = st.lists(st.tuples(st.booleans(), st.integers(1, 8)), max_size=30)


@given(SECONDS)
def test_whatever_happens_a_node_is_covered_while_it_was_heard_within_4_seconds_pauses_included(
    seconds: list[tuple[bool, int]],
) -> None:
    covering, at_s, received_s = Covering(), 0, 0
    covering.published(0, "a")
    for sampled, passed_s in seconds:
        covering.tick(passed_s * 1_000)
        at_s += passed_s
        if sampled:
            covering.sampled([(0, "a"), (0, "never published"), (1, "a")])
            received_s = at_s
        assert covering.covered(0, ()) == (["a"] if (at_s - received_s) * 1_000 < COVERED_MS else [])
        assert covering.covered(0, {"a", "never published"}) == ["a"]
        assert covering.covered(1, {"a"}) == []
