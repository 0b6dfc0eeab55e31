"""``slacktide demo``: see the loop work."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import click

from slacktide.deploy.demo.conditions import Scenario
from slacktide.deploy.demo.session import DemoOptions, Session
from slacktide.deploy.runtime.settings import configured, setting

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
    if settings.report is not None and not _takes_files(folder := settings.report.absolute().parent):
        raise click.BadParameter(f"{folder} is not a writable folder", param_hint="'--report'")
    if settings.scenario == "memory" and settings.nodes is not None:
        raise click.BadParameter(
            "--scenario memory needs real processes, because virtual nodes have no page cache: remove one of both "
            "options",
            param_hint="'--nodes'",
        )
    options = DemoOptions(
        seconds=settings.seconds,
        virtual_nodes=settings.nodes,
        plain=settings.plain or not sys.stdout.isatty(),
        report=settings.report,
        console=not settings.no_console,
        scenario=settings.scenario,
    )
    if failure := Session(options).run():
        raise click.ClickException(failure)


def _takes_files(folder: Path) -> bool:
    """Check before the run that the report can be written."""
    return folder.is_dir() and os.access(folder, os.W_OK)
