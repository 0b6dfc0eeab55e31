"""Pages in Chinese have the structure and the commands of the English ones, so that neither falls behind."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGLISH, CHINESE = ((ROOT / name).read_text() for name in ("README.md", "README.zh-CN.md"))
OTHERS = {"README.md", "README.zh-CN.md"}
"""Each names the other."""
STATES = {"works": "可用", "partly": "部分", "not yet": "尚无"}


def headings(text: str) -> list[int]:
    """Their levels, in order."""
    return [len(found) for found in re.findall(r"^(#+) ", text, re.MULTILINE)]


def code(text: str) -> list[str]:
    """The lines of code blocks."""
    return re.findall(r"^    \S.*", text, re.MULTILINE)


def links(text: str) -> set[str]:
    """Where links and pictures lead."""
    return {found.removeprefix("../") for found in re.findall(r"\]\(([^)]+)\)", text)} - OTHERS


def names(text: str) -> set[str]:
    """What stands between backticks."""
    return set(re.findall(r"`([^`]+)`", text))


def rows(text: str) -> list[int]:
    """The number of cells of each row of a table, in order."""
    return [line.count("|") for line in text.splitlines() if line.startswith("|")]


def items(text: str) -> int:
    """How many list items there are."""
    return len(re.findall(r"^- ", text, re.MULTILINE))


PARTS = [headings, code, links, names, rows, items]
EACH_PART = pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)


@pytest.mark.parametrize("page", sorted((ROOT / "docs/zh").glob("*.md")), ids=lambda page: page.stem)
@EACH_PART
def test_a_page_in_chinese_has_what_the_english_one_has(part: Callable[[str], object], page: Path) -> None:
    assert part(page.read_text()) == part((ROOT / "docs" / page.name).read_text())


def test_tutorial_operations_and_the_way_from_koordinator_are_translated() -> None:
    assert {page.stem for page in (ROOT / "docs/zh").glob("*.md")} >= {"tutorial", "operations", "koordinator"}


@EACH_PART
def test_both_languages_have_the_same(part: object) -> None:
    assert callable(part)
    assert part(CHINESE) == part(ENGLISH)
    assert part(ENGLISH), "there is something to compare"


def states(text: str, words: set[str]) -> list[str]:
    """The second column of the table of states."""
    cells = [line.split(" | ")[1] for line in text.splitlines() if line.startswith("| ") and line.count(" | ") == 2]
    return [cell for cell in cells if cell in words]


def test_both_languages_claim_the_same_states() -> None:
    english = states(ENGLISH, set(STATES))

    assert len(english) >= 15
    assert [STATES[state] for state in english] == states(CHINESE, set(STATES.values()))
