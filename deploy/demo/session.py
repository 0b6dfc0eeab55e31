"""``slacktide demo``: runs the demo once, with setup, conditions, output, report, cleanup."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
import uvloop

from slacktide.agents.clock import SystemClock
from slacktide.deploy.demo.backend import Backend
from slacktide.deploy.demo.chart import Scale
from slacktide.deploy.demo.conditions import Condition, Scenario, conditions
from slacktide.deploy.demo.conductor import Conductor
from slacktide.deploy.demo.groups import NoGroupsError
from slacktide.deploy.demo.pods import CEILING_PCT, batch_uids, service_pod
from slacktide.deploy.demo.real import MemoryBackend, RealBackend, groups_here
from slacktide.deploy.demo.report import as_json, not_closed
from slacktide.deploy.demo.screen import LiveScreen, PlainScreen, Screen
from slacktide.deploy.demo.stack import Stack
from slacktide.deploy.demo.story import Story
from slacktide.deploy.demo.view import Frame
from slacktide.deploy.demo.virtual import VirtualBackend
from slacktide.deploy.runtime.settings import configured, setting
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, SlacktideError
from slacktide.schemas.message import Message
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, OUTCOME, SAMPLE, Topic
from slacktide.streams.kafka import read_topic
from slacktide.streams.records import Record
from slacktide.streams.samples import SampleReader

M = TypeVar("M", bound=Message)
FOLDER = "slacktide-demo-"
NODES_USUAL = 2
"""Default number of virtual nodes."""
OVERHEAD_S = 2.0
"""Approximate overhead per condition."""
NODES_MAX = 20
SECONDS_MIN = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Options of the demo."""

    scenario: Scenario = setting(  # noqa: RUF009 - it gives a field
        "Resource that batch work takes: `cpu`, or `memory`, where CPU weights do not protect the service. "
        "`memory` needs real control groups.",
        click.Choice(get_args(Scenario)),
        default="cpu",
    )
    seconds: float = setting(
        "Seconds of controlled time, in three blocks. Each other condition adds 15 s.",
        click.FloatRange(min=SECONDS_MIN),
        default=60.0,
    )
    nodes: int | None = setting(
        "Number of virtual nodes. They are used even if the machine could run real processes.",
        click.IntRange(1, NODES_MAX),
        default=None,
    )
    plain: bool = setting(
        "Print one line per second instead of the view. Default if stdout is not a terminal.", default=False
    )
    report: Path | None = setting(  # noqa: RUF009 - it gives a field
        "Write the figures to FILE as JSON.", click.Path(dir_okay=False, writable=True, path_type=Path), default=None
    )
    no_console: bool = setting("Do not start the console.", default=False)


class Session:
    """One run."""

    def __init__(self, settings: DemoSettings, plan: Sequence[Condition] | None = None) -> None:
        """Create it; ``plan``: other conditions than the default."""
        self._settings = settings
        self._clock = SystemClock()
        self._plan = conditions(settings.seconds, scenario=settings.scenario) if plan is None else plan

    def run(self) -> str:
        """Run to the end or Ctrl-C; returns why the loop did not close, or ""."""
        sweep(Path(tempfile.gettempdir()))
        with (
            tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-") as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            # not to the terminal, which shows the view
            logging.basicConfig(filename=Path(folder) / "demo.log", level="INFO", force=True)
            return runner.run(self._run(Path(folder)))

    async def _run(self, folder: Path) -> str:
        stop = asyncio.get_running_loop().create_future()
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(name, _stop_by, stop, name)
        try:
            backend = choose(self._settings.nodes, folder, scenario=self._settings.scenario)
        except NoGroupsError as exc:
            return f"The memory scenario needs root, and control groups with the memory controller: {exc}"
        stack = Stack(folder, self._clock, console=not self._settings.no_console)
        story = Story(batch_uids(backend.nodes, backend.machine.capacity_milli))
        conductor = Conductor(backend, story, self._clock, publish=stack.publish, trouble=stack.trouble)
        screen = PlainScreen() if self._settings.plain or not sys.stdout.isatty() else LiveScreen()
        failure = ""
        try:
            with screen.live:
                await first(
                    asyncio.create_task(self._lead(backend, stack, story, conductor), name="lead"),
                    asyncio.create_task(self._show(screen, backend, stack, story, conductor), name="show"),
                    stop,
                )
        except SlacktideError as exc:
            failure = str(exc)
        finally:
            await stack.stop()
            await backend.close()
        report = conductor.report()
        if stop.done() and not stop.cancelled():
            screen.note(f"stopped by {stop.result().name}; the figures are incomplete")
        screen.summary(report, backend)
        if self._settings.report is not None:
            self._settings.report.write_bytes(as_json(report))
        return failure or not_closed(report)

    async def _lead(self, backend: Backend, stack: Stack, story: Story, conductor: Conductor) -> None:
        """Start everything, then run the conditions."""
        conductor.stage = "starting the service"
        await backend.open()
        conductor.stage = "starting broker, stream worker and agent"
        await stack.start(backend)
        feeding = asyncio.create_task(feed(stack.bootstrap, story, backend.nodes))
        try:
            await first(feeding, asyncio.create_task(conductor.run(self._plan)))
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def _show(self, screen: Screen, backend: Backend, stack: Stack, story: Story, conductor: Conductor) -> None:
        while True:
            screen.show(self._frame(backend, stack, story, conductor))
            await asyncio.sleep(screen.every_s)

    def _frame(self, backend: Backend, stack: Stack, story: Story, conductor: Conductor) -> Frame:
        capacity_milli = backend.machine.capacity_milli
        return Frame(
            mode=backend.mode,
            why=backend.why,
            takes_s=sum(self._spans_s()),
            console=stack.console,
            now_ms=self._clock.wall_ms(),
            story=story,
            scale=Scale(
                capacity_milli=capacity_milli,
                ceiling_milli=capacity_milli * CEILING_PCT // 100,
                request_milli=service_pod("", capacity_milli).cpu_milli,
            ),
            condition=conductor.condition,
            stage=conductor.stage,
            left_s=conductor.left_s(),
            done_part=self._done_part(conductor),
            report=conductor.report(),
        )

    def _spans_s(self) -> list[float]:
        return [condition.settle_s + condition.measured_s + OVERHEAD_S for condition in self._plan]

    def _done_part(self, conductor: Conductor) -> float:
        spans_s = self._spans_s()
        windows = conductor.ledger.windows
        done_s = sum(spans_s[: len(windows)]) - conductor.left_s()
        return min(1.0, done_s / sum(spans_s))


def sweep(folder: Path) -> None:
    """Remove leftovers of killed demos: the folder name has the process id."""
    for left in folder.glob(f"{FOLDER}*-*"):
        pid = left.name.removeprefix(FOLDER).partition("-")[0]
        if not pid.isdigit():
            continue
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except PermissionError:  # it runs as another user
            continue


def _stop_by(stop: asyncio.Future[signal.Signals], name: signal.Signals) -> None:
    if not stop.done():
        stop.set_result(name)


async def first(*tasks: asyncio.Future[Any]) -> None:
    """Wait for the first task to end and cancel the others; re-raise their errors."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def choose(virtual_nodes: int | None, folder: Path, usual: int = NODES_USUAL, scenario: Scenario = "cpu") -> Backend:
    """Return the real machine if possible and not overridden, else virtual nodes.

    Raises NoGroupsError if the memory scenario has no real cgroups.
    """
    if scenario == "memory":
        groups = groups_here()
        try:
            return MemoryBackend(groups, folder)
        except NoGroupsError:
            groups.close()
            raise
    if virtual_nodes is not None:
        return VirtualBackend(virtual_nodes, folder, "as asked")
    try:
        return RealBackend(groups_here(), folder)
    except NoGroupsError as exc:
        return VirtualBackend(usual, folder, str(exc))


async def feed(bootstrap: Cluster, story: Story, nodes: Sequence[str]) -> None:
    """Read until cancelled, of a single node only its partition. Raises LogError if Kafka is unavailable."""
    key = nodes[0] if len(nodes) == 1 else None
    readers = [
        asyncio.create_task(_follow(bootstrap, topic, take, key), name=f"reads {topic.name}")
        for topic, take in (
            (SAMPLE, _samples(story.sample)),
            (COMMAND, _decoded(COMMAND, story.command)),
            (OUTCOME, _decoded(OUTCOME, story.outcome)),
            (ALLOCATABLE, _decoded(ALLOCATABLE, story.allocatable)),
        )
    ]
    try:
        await asyncio.gather(*readers)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _follow(bootstrap: Cluster, topic: Topic, take: Callable[[Record], None], key: str | None) -> None:
    async with aclosing(read_topic(bootstrap, topic.name, follow=True, key=key)) as records:
        async for record in records:
            if record.value is not None:
                take(record)


def _samples(take: Callable[[NodeSample], None]) -> Callable[[Record], None]:
    return _taken(SampleReader().read, take)


def _decoded(topic: Topic, take: Callable[[M], None]) -> Callable[[Record], None]:
    kind: type[M] = topic.message  # type: ignore[assignment] # the table pairs them
    return _taken(lambda record: decode(record.value, kind), take)


def _taken(read: Callable[[Record], M], take: Callable[[M], None]) -> Callable[[Record], None]:
    def take_record(record: Record) -> None:
        with suppress(BadMessageError):  # the worker makes a dead letter of it
            take(read(record))

    return take_record


@click.command(epilog="Example: slacktide demo --seconds 30 --report demo.json")
@configured(DemoSettings)
def command(settings: DemoSettings) -> None:
    """Watch a latency-sensitive service and batch work share one machine.

    As root with writable control groups, it runs real processes, and removes the groups afterwards. Otherwise it uses
    virtual nodes. Conditions: the service alone, with uncontrolled batch work, with weights only, and controlled by
    Slacktide, three times each. With `--scenario memory` batch work takes memory, too. Then the conditions are: alone,
    weights, controlled. It prints a summary at the end or on Ctrl-C. Exit code 1: the loop did not close.

    While it runs, a console shows the same in a browser, at the printed address. It needs the extra slacktide[console].
    """
    folder = None if settings.report is None else settings.report.absolute().parent
    if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise click.BadParameter(f"{folder} is not a writable folder", param_hint="'--report'")
    if settings.scenario == "memory" and settings.nodes is not None:
        raise click.BadParameter(
            "--scenario memory needs real processes, because virtual nodes have no page cache: remove one of both "
            "options",
            param_hint="'--nodes'",
        )
    if failure := Session(settings).run():
        raise click.ClickException(failure)
