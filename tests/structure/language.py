"""Plain English, counted: sentences over 30 words in pages, and words in names and docstrings that are not the field's.

``python tests/structure/language.py`` compares with the budget beside it and fails where a file has more than that. A
file that has fewer fails as well, so that the budget only shrinks: ``--lower`` writes the smaller counts.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUDGET = Path(__file__).with_name("language_budget.json")
WORDS_MAX = 30
ROOMS = ("agents", "deploy", "generate", "schemas", "streams")
NOT_OURS = {
    *("say", "says", "said", "saying", "tell", "tells", "told", "telling", "hear", "hears", "heard", "hearing"),
    *("desk", "wallet"),
}
"""Words for which Kafka's and Kubernetes' documentation has better ones: publish, report, read, received, …"""

BEGINS = re.compile(r"\s*(?:[-*]|\d+\.) |\||#")
"""A list item, a table's row or a heading: whatever stood before it has ended."""

Counts = dict[str, dict[str, int]]


def pages() -> list[Path]:
    """What readers read: the README and docs."""
    return [*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def modules() -> list[Path]:
    """Python files of the product."""
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def blocks(text: str) -> Iterator[str]:
    """Paragraphs, list items, headings and cells of tables, each as one line; code is left out."""
    text = re.sub(r"^```.*?^```\s*$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        if paragraph and (not line.strip() or BEGINS.match(line)):
            yield " ".join(paragraph)
            paragraph = []
        if line.startswith("|"):
            yield from (cell for cell in re.split(r"(?<!\\)\|", line) if cell.strip())
        elif line.startswith("#"):
            yield line
        elif line.strip() and (paragraph or not line.startswith("    ")):
            paragraph.append(line.strip())


def sentences(text: str) -> Iterator[str]:
    """Each sentence of a page; what stands between backticks, and a link, is as long as what is read of it."""
    for block in blocks(text):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", block))
        yield from re.split(r"(?<=[.!?])[)*\"]*\s+", plain)


def long_sentences(text: str) -> list[str]:
    """Those with more words than allowed: a word has a letter or a digit."""
    return [one for one in sentences(text) if len(re.findall(r"\S*\w\S*", one)) > WORDS_MAX]


def defined(text: str) -> set[str]:
    """The names that a module gives: to functions, classes, arguments, variables and attributes."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
    return names


def unclear_names(path: Path, text: str) -> list[str]:
    """Names, that of the file among them, with a word that is not the field's."""
    return sorted(name for name in {path.stem, *defined(text)} if NOT_OURS & set(words_of(name)))


def unclear_texts(text: str) -> list[str]:
    """The lines of docstrings, and of what stands below an attribute, with such a word."""
    return [
        line.strip()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in node.value.value.splitlines()
        if NOT_OURS & {word.lower() for word in re.findall(r"\w+", re.sub(r"``[^`]*``", "code", line))}
    ]


def words_of(name: str) -> list[str]:
    """Of ``what_was_said`` or ``SeenAndHeard``, in small letters."""
    return [word.lower() for part in name.split("_") for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", part)]


def found() -> dict[str, dict[str, list[str]]]:
    """What is long or unclear, by kind and file."""
    texts = {path: long_sentences(path.read_text()) for path in pages()}
    names = {path: unclear_names(path, path.read_text()) for path in modules()}
    docstrings = {path: unclear_texts(path.read_text()) for path in modules()}
    return {
        kind: {str(path.relative_to(ROOT)): listed for path, listed in by_path.items() if listed}
        for kind, by_path in (("long sentences", texts), ("unclear names", names), ("unclear docstrings", docstrings))
    }


def complaints(listed: Mapping[str, Mapping[str, list[str]]], budget: Counts) -> Iterator[str]:
    """Each file that is not as its budget says, with what stands there."""
    for kind, by_file in listed.items():
        allowed = budget.get(kind, {})
        for file in sorted({*by_file, *allowed}):
            here, most = by_file.get(file, []), allowed.get(file, 0)
            if len(here) > most:
                yield f"{file}: {len(here)} {kind}, {most} allowed:\n" + "\n".join(f"    {one}" for one in here)
            elif len(here) < most:
                yield f"{file}: only {len(here)} {kind}, {most} allowed; run tests/structure/language.py --lower"


def lowered(listed: Mapping[str, Mapping[str, list[str]]], budget: Counts) -> Counts:
    """The budget with smaller counts where there are fewer; none grows."""
    return {
        kind: {file: min(most, len(listed[kind][file])) for file, most in by_file.items() if file in listed[kind]}
        for kind, by_file in budget.items()
    }


def main(arguments: list[str]) -> int:
    """Print what exceeds the budget, or lower it.

    Returns:
        0 when each file is as its budget says.

    """
    listed, budget = found(), json.loads(BUDGET.read_text())
    if arguments == ["--lower"]:
        BUDGET.write_text(json.dumps(lowered(listed, budget), indent=1) + "\n")
        budget = json.loads(BUDGET.read_text())
    worse = list(complaints(listed, budget))
    print("\n".join(worse), end="\n" if worse else "")  # noqa: T201
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
