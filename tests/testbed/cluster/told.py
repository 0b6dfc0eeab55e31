"""Commands in a page of ``docs``, with the output that it shows: indented lines, ``$`` before a command."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
NEEDS_A_NODE = "<!-- needs a node -->"
_HERE_DOCUMENT = re.compile(r"<<'(\w+)'")
_TIME = re.compile(r"\d+[smhd]|\d+m\d+s")
_REFUSALS = ("Error from server", "The ClusterColocationProfile", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    text: str
    shown: tuple[str, ...]
    """The lines that it prints, as far as they are shown."""
    needs_a_node: bool

    @property
    def refused(self) -> bool:
        return bool(self.shown) and (self.shown[0] == "no" or self.shown[0].startswith(_REFUSALS[:2]))

    def fits(self, printed: str) -> bool:
        if not self.shown:
            return True
        return re.fullmatch("\n".join(map(_pattern, self.shown)), printed.rstrip("\n")) is not None


def _pattern(line: str) -> str:
    if line == "...":
        return r"(?s:.*)"
    words = (r"\S+" if _TIME.fullmatch(word) else re.escape(word) for word in line.split())
    return r"[ \t]+".join(word.replace(r"\.\.\.", ".*") for word in words) + r"[ \t]*"


def commands(page: str) -> list[Command]:
    """The commands of a page, in their order; a mark holds for the block that follows it."""
    return list(_commands((DOCS / page).read_text().splitlines()))


def _commands(lines: list[str]) -> Iterator[Command]:
    marked = False
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.startswith("    $ "):
            if line and not line.startswith("    "):
                marked = line == NEEDS_A_NODE
            continue
        text = [line.removeprefix("    $ ")]
        if found := _HERE_DOCUMENT.search(text[0]):
            while text[-1] != found[1]:
                text.append(lines[at].removeprefix("    "))
                at += 1
        while text[-1].endswith("\\"):
            text.append(lines[at].removeprefix("    "))
            at += 1
        shown = []
        while at < len(lines) and lines[at].startswith("    ") and not lines[at].startswith("    $ "):
            shown.append(lines[at].removeprefix("    "))
            at += 1
        yield Command(text="\n".join(text), shown=tuple(shown), needs_a_node=marked)
