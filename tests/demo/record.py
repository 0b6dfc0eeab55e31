"""Run the demo and keep its screen as a picture: ``python tests/demo/record.py docs/demo.svg --nodes 1``.

The picture shows the end of the last block that the loop controlled. The run is one block of the usual three.
"""

import io
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import click
from rich.console import Console, Group

from slacktide.deploy.cli import demo
from slacktide.deploy.demo.conditions import conditions
from slacktide.deploy.demo.conductor import Conductor
from slacktide.deploy.demo.screen import LiveScreen, PlainScreen, layout

WIDTH, HEIGHT = 118, 36
SECONDS = 30.0
AT_THE_END_S = 2.0
FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""A picture asks no other host for fonts."""


class RecordingScreen(LiveScreen):
    """Prints a line a second, and keeps the last view of a controlled block."""

    every_s = PlainScreen.every_s

    def __init__(self) -> None:
        super().__init__()
        self.live = nullcontext()
        self.picture = ""

    def show(self, running: Conductor, console: str, nodes: str) -> None:
        PlainScreen.show(self, running, console, nodes)
        if running.condition is not None and running.condition.limited and 0 < running.left_s <= AT_THE_END_S:
            self.picture = picture_of(running, nodes)


def picture_of(running: Conductor, nodes: str) -> str:
    """The live view as SVG."""
    console = Console(
        record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Group(*layout(running, WIDTH, HEIGHT, nodes=nodes)))
    return FONT_FACES.sub("", console.export_svg(title="slacktide demo"))


@click.command()
@click.argument("picture", type=click.Path(dir_okay=False, writable=True, path_type=Path))
@click.option("--nodes", type=int, default=None, help="Virtual nodes, also where the machine could do it for real.")
def main(picture: Path, nodes: int | None) -> None:
    """Run one block of the demo, and write its screen to PICTURE."""
    screen = RecordingScreen()
    demo.shown_on = lambda _: screen
    options = demo.DemoSettings(seconds=SECONDS, nodes=nodes, plain=True, no_console=True)
    failure = demo.Session(options, conditions(SECONDS, blocks=1, compared_s=5.0)).run()
    if failure or not screen.picture:
        sys.exit(failure or "the demo ended before its controlled block did")
    picture.write_text(screen.picture)


if __name__ == "__main__":
    main()
