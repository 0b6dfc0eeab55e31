"""Run the demo and keep its screen as a picture: ``python tests/demo/record.py docs/demo.svg --nodes 1``.

The picture shows the end of the last block that the loop controlled. The run is one block of the usual three.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import click
from rich.console import Console

from slacktide.deploy.demo import session
from slacktide.deploy.demo.conditions import conditions
from slacktide.deploy.demo.screen import PlainScreen
from slacktide.deploy.demo.view import Frame, View

WIDTH, HEIGHT = 118, 36
SECONDS = 30.0
AT_THE_END_S = 1.0
FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""A picture asks no other host for fonts."""


class RecordingScreen(PlainScreen):
    """Prints a line a second, and keeps the last view of a controlled block."""

    def __init__(self) -> None:
        super().__init__()
        self.picture = ""

    def show(self, frame: Frame) -> None:
        super().show(frame)
        if frame.condition is not None and frame.condition.limited and 0 < frame.left_s <= AT_THE_END_S:
            self.picture = picture_of(frame)


def picture_of(frame: Frame) -> str:
    """The live view as SVG."""
    console = Console(
        record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(View(frame))
    return FONT_FACES.sub("", console.export_svg(title="slacktide demo"))


@click.command()
@click.argument("picture", type=click.Path(dir_okay=False, writable=True, path_type=Path))
@click.option("--nodes", type=int, default=None, help="Virtual nodes, also where the machine could do it for real.")
def main(picture: Path, nodes: int | None) -> None:
    """Run one block of the demo, and write its screen to PICTURE."""
    screen = RecordingScreen()
    session.PlainScreen = lambda: screen
    options = session.DemoSettings(seconds=SECONDS, nodes=nodes, plain=True, no_console=True)
    failure = session.Session(options, conditions(SECONDS, blocks=1, compared_s=5.0)).run()
    if failure or not screen.picture:
        sys.exit(failure or "the demo ended before its controlled block did")
    picture.write_text(screen.picture)


if __name__ == "__main__":
    main()
