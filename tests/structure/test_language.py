"""The check of plain English finds what it is for, and a budget only shrinks."""

import json
from pathlib import Path

import pytest
from structure import language
from structure.language import blocks, complaints, long_sentences, lowered, main, unclear_names, unclear_texts

LONG = " ".join(["word"] * 31)
KIND = "unclear names"


@pytest.mark.parametrize(
    "page",
    [
        f"{LONG}.",
        f"Short one. {LONG}. Short one.",
        f"- {LONG}\n- short",
        f"| {LONG} | short |\n|---|---|",
        f"1. {LONG}",
        "- item\n  " + LONG,
        f"a paragraph\n    {LONG}",
        LONG.replace("word", "[word](https://example.org)"),
    ],
)
def test_a_sentence_of_31_words_is_long(page: str) -> None:
    assert len(long_sentences(page)) == 1


@pytest.mark.parametrize(
    "page",
    [
        " ".join(["word"] * 30) + ".",
        f"```\n{LONG}\n```",
        f"text\n\n    {LONG}\n    {LONG}",
        f"<!-- {LONG} -->",
        f"`{LONG}`",
        " ".join(["word"] * 20) + ". " + " ".join(["word"] * 20),
        "\n".join(["- ten words are not many and so this is short"] * 5),
        " ".join(["word"] * 30) + " - | ...",
    ],
)
def test_code_comments_and_30_words_are_not(page: str) -> None:
    assert long_sentences(page) == []


def test_what_stands_behind_a_block_of_code_is_read() -> None:
    assert list(blocks("a\n\n    code\n\nb")) == ["a", "b"]


@pytest.mark.parametrize(
    "source",
    [
        "def _tell(): ...",
        "async def hear_of(): ...",
        "class WhatWasSaid: ...",
        "told = 1",
        "self._heard = 1",
        "def f(said): ...",
        "for told in []: ...",
        "hearing: int = 0",
        "with f() as desk: ...",
    ],
)
def test_a_name_with_such_a_word_is_unclear(source: str) -> None:
    assert len(unclear_names(Path("module.py"), source)) == 1


def test_so_is_that_of_a_file() -> None:
    assert unclear_names(Path("wallet.py"), "") == ["wallet"]


def test_other_words_and_names_of_others_are_not() -> None:
    source = "import told\nfrom said import hear as listen\nessay = sayings = desktop = other.said()\n"

    assert unclear_names(Path("module.py"), source) == []


def test_a_docstring_with_such_a_word_is_unclear() -> None:
    source = '''"""A module.

    It says so.
    """
    x = 1
    """What was heard of ``told``."""
    text = "said"
    # said'''.replace("\n    ", "\n")

    assert unclear_texts(source) == ["It says so.", "What was heard of ``told``."]


def test_more_than_the_budget_is_refused_and_so_is_less() -> None:
    listed = {KIND: {"worse.py": ["said", "told"], "better.py": ["said"], "same.py": ["said"], "new.py": ["said"]}}
    budget = {KIND: {"worse.py": 1, "better.py": 2, "same.py": 1, "clean.py": 1}}

    assert [line.partition(":")[0] for line in complaints(listed, budget)] == [
        "better.py",
        "clean.py",
        "new.py",
        "worse.py",
    ]


def test_a_budget_is_lowered_and_never_raised() -> None:
    listed = {KIND: {"worse.py": ["said", "told"], "better.py": ["said"], "new.py": ["said"]}}

    assert lowered(listed, {KIND: {"worse.py": 1, "better.py": 2, "clean.py": 1}}) == {
        KIND: {"worse.py": 1, "better.py": 1}
    }


def test_the_command_fails_and_names_the_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").write_text(f"{LONG}.")
    budget = tmp_path / "budget.json"
    budget.write_text(json.dumps({"long sentences": {}, KIND: {}}))
    monkeypatch.setattr(language, "ROOT", tmp_path)
    monkeypatch.setattr(language, "BUDGET", budget)

    assert main([]) == 1
    assert LONG in capsys.readouterr().out
    assert main(["--lower"]) == 1

    budget.write_text(json.dumps({"long sentences": {"README.md": 2}, KIND: {}}))
    assert main([]) == 1
    assert main(["--lower"]) == 0
    assert json.loads(budget.read_text())["long sentences"] == {"README.md": 1}
