"""Prints the demo's output: the live view or one line per second, then the summary."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from slacktide.deploy.demo.backend import Backend
from slacktide.deploy.demo.report import NEXT, Report, rows, sentences, verdict
from slacktide.deploy.demo.view import Frame, View, plain_line
from slacktide.deploy.runtime.text import show


class PlainScreen:
    """Lines of ``key=value``."""

    every_s = 1.0
    live: AbstractContextManager[object] = nullcontext()

    def __init__(self) -> None:
        self._begun = False
        self._console = ""

    def show(self, frame: Frame) -> None:
        """Print one line; first a header, and once the console's address."""
        if not self._begun:
            show(f"slacktide demo: {frame.mode}: {frame.why}; takes about {frame.takes_s:.0f} s")
            self._begun = True
        if frame.console != self._console:
            self._console = frame.console
            self.note(frame.console)
        show(plain_line(frame))

    def note(self, text: str) -> None:
        """Print it unchanged."""
        show(f"slacktide demo: {text}")

    def summary(self, report: Report, backend: Backend) -> None:
        """Print the table without colours and borders."""
        show(f"slacktide demo: {report.mode}: {backend.why}")
        for name, meaning, p99, slowdown, used, batch in rows(report):
            service = f"service p99 {p99:>8}  slowdown {slowdown:>8}"
            show(f"{name:<14} {meaning:<38} {service}  utilization {used:>4}  batch work {batch:>9}")
        for name, value in sentences(report):
            show(f"{name}: {value}")
        show(verdict(report))
        for command, what in NEXT:
            show(f"next: {command:<40} {what}")


class LiveScreen:
    """Uses the whole terminal, and restores it at the end."""

    every_s = 0.5

    def __init__(self) -> None:
        self._console = Console()
        self.live = Live(console=self._console, screen=True, auto_refresh=False, redirect_stdout=False)
        """To be open while the demo runs."""

    def show(self, frame: Frame) -> None:
        """Draw the frame."""
        self.live.update(View(frame), refresh=True)

    def note(self, text: str) -> None:
        """Print it dimmed."""
        self._console.print(f"  [dim]{text}[/]", highlight=False)

    def summary(self, report: Report, backend: Backend) -> None:
        """Print a table, with the other figures below."""
        table = Table(box=box.SIMPLE_HEAD, title=f"slacktide demo, {report.mode}", title_justify="left")
        table.add_column("condition", style="bold")
        table.add_column("what it is")
        for name in ("service p99", "slowdown", "utilization", "batch work"):
            table.add_column(name, justify="right")
        for row in rows(report):
            table.add_row(*row)
        self._console.print(table)
        for name, value in sentences(report):
            self._console.print(f"  [bold]{name}[/]: {value}", highlight=False)
        self._console.print(f"\n  {verdict(report)}\n", highlight=False)
        for command, what in NEXT:
            self._console.print(f"  [bold]{command:<40}[/] {what}", highlight=False)
        self._console.print(f"  [dim]{backend.why}[/]", highlight=False)


Screen = PlainScreen | LiveScreen
