"""``slacktide demo``: runs the demo once, with setup, conditions, output, report, cleanup."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click
import uvloop

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli import nodes
from slacktide.deploy.demo.conditions import Condition, Scenario, conditions
from slacktide.deploy.demo.conductor import Conductor
from slacktide.deploy.demo.groups import NoGroupsError
from slacktide.deploy.demo.pods import batch_uids
from slacktide.deploy.demo.report import as_json, not_closed
from slacktide.deploy.demo.screen import LiveScreen, PlainScreen
from slacktide.deploy.demo.stack import Stack
from slacktide.deploy.demo.story import Story
from slacktide.deploy.demo.workload import choose, own_folder
from slacktide.deploy.runtime.settings import configured, setting
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, SlacktideError
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, OUTCOME, SAMPLE, Topic
from slacktide.streams.kafka import read_topic
from slacktide.streams.samples import SampleReader
from slacktide.streams.tasks import ended, unwatched

NODES_MAX = 20
SECONDS_MIN = 6.0
TOP_EVERY_S = 1.0


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
        self._top = ""

    def run(self) -> str:
        """Run to the end or Ctrl-C; returns why the loop did not close, or ""."""
        with own_folder() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            # not to the terminal, which shows the view
            logging.basicConfig(filename=folder / "demo.log", level="INFO", force=True)
            return runner.run(self._run(folder))

    async def _run(self, folder: Path) -> str:
        stop: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(name, _stop_by, stop, name)
        try:
            backend = choose(self._settings.nodes, folder, scenario=self._settings.scenario)
        except NoGroupsError as exc:
            return f"The memory scenario needs root, and control groups with the memory controller: {exc}"
        stack = Stack(backend, folder, self._clock, console=not self._settings.no_console)
        story = Story(batch_uids(backend.nodes, backend.machine.capacity_milli))
        conductor = Conductor(
            backend,
            story,
            self._clock,
            self._plan,
            publish=lambda condition: stack.publish(suppress=condition.limited),
            trouble=stack.trouble,
        )
        screen = shown_on(self._settings)
        failure = ""
        try:
            with screen.live:
                tasks = [self._lead(stack, conductor), self._show(screen, stack, conductor)]
                tasks += [self._look(stack)] if isinstance(screen, LiveScreen) else []
                await first(*map(asyncio.create_task, tasks), stop)
        except SlacktideError as exc:
            failure = str(exc)
        finally:
            await stack.stop()
            await backend.close()
        report = conductor.report()
        if stop.done() and not stop.cancelled():
            screen.note(f"stopped by {stop.result().name}; the figures are incomplete")
        screen.summary(report, backend.why)
        if self._settings.report is not None:
            self._settings.report.write_bytes(as_json(report))
        return failure or not_closed(report)

    async def _lead(self, stack: Stack, conductor: Conductor) -> None:
        """Start everything, then run the conditions."""
        conductor.stage = "starting the service"
        await conductor.backend.open()
        conductor.stage = "starting broker, stream worker and agent"
        await stack.start()
        feeding = feed(stack.bootstrap, conductor.story, conductor.backend.nodes)
        await first(asyncio.create_task(feeding), asyncio.create_task(conductor.run()))

    async def _show(self, screen: PlainScreen, stack: Stack, conductor: Conductor) -> None:
        while True:
            screen.show(conductor, stack.console, self._top)
            await asyncio.sleep(screen.every_s)

    async def _look(self, stack: Stack) -> None:
        """Read the nodes as ``slacktide top`` does."""
        while True:
            await asyncio.sleep(TOP_EVERY_S)
            if stack.running:
                shown = partial(nodes.shown, stack.bootstrap, (), "name", "text", problems=False)
                reading = asyncio.create_task(asyncio.to_thread(shown))
                unwatched(reading)
                try:
                    self._top = await asyncio.shield(reading)
                except SlacktideError:
                    continue  # it shows the last one
                finally:
                    await asyncio.wait([reading])  # the broker stops next


def shown_on(settings: DemoSettings) -> PlainScreen:
    """Return what prints the output."""
    return PlainScreen() if settings.plain or not sys.stdout.isatty() else LiveScreen()


def _stop_by(stop: asyncio.Future[signal.Signals], name: signal.Signals) -> None:
    if not stop.done():
        stop.set_result(name)


async def first(*tasks: asyncio.Future[Any]) -> None:
    """Wait for the first task to end and cancel the others; re-raise their errors."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await ended(*tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def feed(bootstrap: Cluster, story: Story, of_nodes: Sequence[str]) -> None:
    """Read until cancelled, of a single node only its partition. Raises LogError if Kafka is unavailable."""
    key = of_nodes[0] if len(of_nodes) == 1 else None
    samples = SampleReader()

    async def follow(topic: Topic, take: Callable[[Any], None]) -> None:
        read = samples.read if topic is SAMPLE else lambda record: decode(record.value, topic.message)
        async with aclosing(read_topic(bootstrap, topic.name, follow=True, key=key)) as records:
            async for record in records:
                if record.value is not None:
                    with suppress(BadMessageError):  # the worker makes a dead letter of it
                        take(read(record))

    takers = ((SAMPLE, story.sample), (COMMAND, story.command), (OUTCOME, story.outcome))
    readers = [follow(topic, take) for topic, take in (*takers, (ALLOCATABLE, story.allocatable))]
    await first(*(asyncio.create_task(reader) for reader in readers))


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
