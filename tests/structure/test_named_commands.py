"""A command or a file of this project that a text, a script or a hint names is there."""

import re
from pathlib import Path

from structure.test_layout import ROOT, tracked

MAKEFILE, SETUP = (ROOT / "Makefile").read_text(), (ROOT / "tests/testbed/setup").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
NAMES = set(re.findall(r"^#   tests/testbed/setup ([\w-]+) ", SETUP, re.MULTILINE))
TEXTS = {".md", ".py", ".yaml", ".yml", ".toml", ".xml", ".sh", ""}
FOLDERS = "agents|bench|deploy|docs|generate|schemas|streams|tests"
COMMAND = re.compile(r"(?:`|^ {4}|\$ |&& )make ([a-z][a-z0-9-]*)|tests/testbed/setup ([a-z][\w-]*)", re.MULTILINE)
FILE = re.compile(
    rf"(?<![\w./{{}}<-])((?:{FOLDERS})/[\w./-]+\.(?:py|sh|md|yaml|json|jsonl|xml|toml|svg|png)(?:\.gz)?)\b"
)
ELSEWHERE = re.compile(r"\b(?:cmd|pkg|apis)/|agents/skills")


def texts() -> list[tuple[str, str]]:
    """Each text of the project by its path."""
    paths = [path for path in tracked() if path.suffix in TEXTS and "vectors" not in path.parts]
    return [(str(path.relative_to(ROOT)), path.read_text(errors="replace")) for path in paths]


def test_every_command_that_is_named_is_one() -> None:
    """A hint that named a folder which had moved could set nothing up."""
    unknown = [
        f"{name}: {found[0].strip()}"
        for name, text in texts()
        for found in COMMAND.finditer(text)
        if (found[1] or "help") not in TARGETS or (found[2] or "all") not in NAMES
    ]

    assert unknown == []


def test_every_file_that_a_script_names_is_there() -> None:
    gone = [
        f"{name}: {found[1]}"
        for name, text in texts()
        if not Path(name).suffix
        for found in FILE.finditer(text)
        if not (ROOT / found[1]).exists() and not ELSEWHERE.search(found[1])
    ]

    assert gone == []
