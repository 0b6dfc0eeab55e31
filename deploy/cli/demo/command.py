"""``slacktide demo``: see the loop work."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from slacktide.deploy.cli.demo.session import Session, Wish
from slacktide.deploy.cli.settings import configured, setting

NODES_MAX = 20
SECONDS_MIN = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What can be asked of the demo."""

    seconds: float = setting(
        "Controlled time in all, in three blocks; the conditions that it is compared with add 3 x 15 s.",
        click.FloatRange(min=SECONDS_MIN),
        default=60.0,
    )
    nodes: int | None = setting(
        "Virtual nodes, this many, also where the machine could do it for real.",
        click.IntRange(1, NODES_MAX),
        default=None,
    )
    plain: bool = setting("A line a second instead of the view; also where stdout is no terminal.", default=False)
    report: Path | None = setting(  # noqa: RUF009 - it gives a field
        "Write the figures as JSON.", click.Path(dir_okay=False, writable=True, path_type=Path), default=None
    )


@click.command(epilog="Example: slacktide demo --seconds 30 --report demo.json")
@configured(DemoSettings)
def command(settings: DemoSettings) -> None:
    """See the loop work: a latency-sensitive service and batch work share a machine.

    As root with writable control groups: real processes in real groups, gone afterwards. Otherwise virtual
    nodes. The service alone, with the batch uncontrolled, with weights only, and controlled by the loop, three
    times over; at the end, or at Ctrl-C, what came of it. Exit code 1 if the loop did not close.
    """
    if settings.report is not None and not _takes_files(folder := settings.report.absolute().parent):
        raise click.BadParameter(f"{folder} is no folder that can be written to", param_hint="'--report'")
    wish = Wish(
        seconds=settings.seconds,
        virtual_nodes=settings.nodes,
        plain=settings.plain or not sys.stdout.isatty(),
        report=settings.report,
    )
    if failure := Session(wish).run():
        raise click.ClickException(failure)


def _takes_files(folder: Path) -> bool:
    """Asked before the run: its figures would be lost after it."""
    return folder.is_dir() and os.access(folder, os.W_OK)
