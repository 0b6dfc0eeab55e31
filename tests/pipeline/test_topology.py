"""What the apps of the topology have instead of Faust's own methods, and what breaks without each."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import faust
import pytest
from faust.tables.manager import TableManager
from faust.transport.consumer import Fetcher

from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.schemas.topics import SAMPLE
from slacktide.streams import topology
from slacktide.streams.engine import answering, app, transport
from slacktide.streams.engine.answering import Answering
from slacktide.streams.engine.session import Session, WorkerSettings
from slacktide.streams.engine.transport import Consumer, Turn
from slacktide.streams.records import Place
from slacktide.streams.worker import Worker
from testbed.samples import keyframe, sample
from testbed.stream_rig import Rig, until
from testbed.waiting import soon

NODES = [f"node-{number}" for number in range(6)]


def replaced(kind: type, stock: type) -> set[str]:
    """The methods of Faust that a class has its own version of: not what Faust asks each driver for."""
    own = {name for name, value in vars(kind).items() if callable(value) and not name.startswith("__")}
    return {name for name in own & set(dir(stock)) if not getattr(getattr(stock, name), "__isabstractmethod__", False)}


def test_five_methods_of_faust_are_replaced() -> None:
    """The hooks that every service of Faust's may have come besides."""
    hooks = {"on_init", "on_stop", "on_start"}
    consumer = replaced(Consumer, transport.FaustConsumer) - hooks
    assert consumer == {"_drain_messages", "force_commit", "on_partitions_revoked"}
    assert replaced(app.App, faust.App) & {"_create_directories", "on_start", "on_stop"} == {"_create_directories"}
    assert replaced(app._Tables, TableManager) == {"on_start"}


async def test_a_message_is_a_turn_of_all_partitions(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """``_drain_messages``: stock Faust makes a message of each record."""
    turns: list[Turn] = []
    decide = Session.decide

    async def noted(self: Session, turn: Turn, member: Consumer) -> None:
        turns.append(turn)
        await decide(self, turn, member)

    monkeypatch.setattr(Session, "decide", noted)
    backlog = [keyframe(1, node) for node in NODES] + [sample(seq, node) for seq in range(2, 100) for node in NODES]
    await rig.send(backlog)
    async with rig.worker():
        await rig.answered(backlog)

    assert len(turns) < len(backlog) / 20
    assert max(map(len, turns)) > 1, "a turn has several partitions"


async def test_what_is_not_answered_is_not_committed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """``force_commit``: stock Faust commits what an agent has seen, also if it failed."""

    async def fail(*_: object) -> dict[Place, int]:
        raise ArithmeticError("the worker has an error")

    first, second = [keyframe(1, node) for node in NODES], [sample(2, node) for node in NODES]
    await rig.send(first)
    async with rig.worker():
        await rig.answered(first)
    committed = await rig.committed()
    with monkeypatch.context() as patched:
        patched.setattr(Answering, "answer", fail)
        running = rig.start()
        await running.ready()
        await rig.send(second)
        with pytest.raises(ArithmeticError):
            await running.task
    assert await rig.committed() == committed
    async with rig.worker():
        await rig.answered(second)


async def test_a_turn_fetched_ahead_is_dropped_with_its_partition(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """``on_partitions_revoked``: its next owner fetches it again, answers it once, and suspects no crash before it."""
    entered, gate = asyncio.Event(), asyncio.Event()
    decide = Session.decide

    async def held(self: Session, turn: Turn, member: Consumer) -> None:
        entered.set()
        await gate.wait()
        await decide(self, turn, member)

    monkeypatch.setattr(transport, "TURNS_AHEAD_MAX", 3)
    monkeypatch.setattr("slacktide.streams.columns.batches.TURN_RECORDS_MAX", 4)
    first = rig.start("one")
    await first.ready()
    begun = [keyframe(1, node) for node in NODES]
    await rig.send(begun)
    await rig.answered(begun)
    await soon(rig.committed, "its commits", enough=bool)
    monkeypatch.setattr(Session, "decide", held)
    backlog = [keyframe(seq, node) for seq in range(2, 10) for node in NODES]
    await rig.send(backlog)
    async with asyncio.timeout(60):
        await entered.wait()
    monkeypatch.setattr(answering, "_OWNER", "another process")
    second = rig.start("two")
    joining = {"joining the group", "the consumer group is rebalancing"}
    await until(lambda: second.health.not_ready in joining, "another worker joins")
    gate.set()
    await rig.answered(backlog)
    await until(lambda: not (first.health.not_ready or second.health.not_ready), "both have partitions")
    after = [keyframe(seq, node) for seq in range(10, 12) for node in NODES]
    await rig.send(after)
    await rig.answered(after)
    await first.stopped()
    await second.stopped()

    assert all(len(each) == 1 for each in rig.answers.values()), "answered once"
    assert "a partition's last owner has crashed" not in caplog.text


async def test_an_app_makes_no_folder(rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``_create_directories``: a container's root may be read-only."""
    monkeypatch.chdir(tmp_path)
    async with rig.worker():
        assert content(tmp_path) == []


def content(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_start_waits_for_no_tables(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TableManager.on_start``: stock Faust sleeps for a second."""
    slept: list[object] = []
    sleep: Callable[..., Awaitable[None]] = TableManager.sleep

    async def noted(self: TableManager, *given: Any, **named: Any) -> None:
        slept.append(given)
        await sleep(self, *given, **named)

    monkeypatch.setattr(app._Tables, "sleep", noted, raising=False)
    async with rig.worker():
        assert slept == []


async def test_a_partition_without_a_commit_is_read_from_its_begin(rig: Rig) -> None:
    """The driver's ``seek_to_committed``: the client alone would keep its position."""
    samples = [keyframe(1, node) for node in NODES]
    await rig.send(samples)
    async with rig.worker():
        answers = await rig.answered(samples)
    ends: Mapping[int, int] = await rig.committed()

    assert len(answers) == len(NODES)
    assert sum(ends.values()) == len(await rig.read(SAMPLE.name))


async def test_a_fetcher_that_is_ended_as_room_comes_ends() -> None:
    """Otherwise it would wait until the flow goes on, which it does not in an app that stops."""
    settings = WorkerSettings(bootstrap=Cluster("127.0.0.1:9"))
    session = Session(Worker("w"), settings, asyncio.Event(), Health(), lambda: 0)
    worker = topology.samples_app(session, settings)
    member, turns = worker.member, [{}, {}]
    member._ahead = [*turns]
    draining = asyncio.create_task(member._drain_messages(Fetcher(worker)))
    for _ in range(5):
        await asyncio.sleep(0)
    member.stop_flow()
    member.answered(turns[0], {})
    await asyncio.sleep(0)
    draining.cancel()

    async with asyncio.timeout(60):
        await asyncio.wait({draining})
    session.forget_failure()
