"""Texts for snapshots: what a report, an answer or a list of findings says, one line a fact.

A test compares such a text with ``snapshot`` (syrupy). The texts stand in ``__snapshots__/<test module>.ambr`` beside
the tests and are read in review like code; ``make test ARGS="FILE --snapshot-update"`` writes them anew. One that no
test of a module asks for fails the run of that module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

if TYPE_CHECKING:
    from click.testing import Result

    from slacktide.deploy.cli.doctor.finding import Finding as Check
    from slacktide.streams.analysis.explain.evidence import Finding

HASH = re.compile(r"\b(?=\d*[a-f])[0-9a-f]{12,64}\b")


def situations(argument: str, cases: Mapping[str, Any]) -> pytest.MarkDecorator:
    """A case a situation; its key names it, here and in the snapshots."""
    return pytest.mark.parametrize(argument, [pytest.param(case, id=name) for name, case in cases.items()])


def cases(file: str) -> dict[str, dict[str, Any]]:
    """Situations that are plain data, by the test that asks for them: ``cases/<test module>.yaml`` beside it."""
    found: dict[str, dict[str, Any]] = yaml.load(
        (Path(file).parent / f"cases/{Path(file).stem}.yaml").read_text(), yaml.CSafeLoader
    )
    return found


def checks(found: Iterable[Check], *, good: bool = False) -> str:
    """What doctor found; with ``good``, of what is well too, and else how many."""
    every = list(found)
    said = [one for one in every if good or one.verdict != "ok"]
    lines = [f"{one.verdict} {one.check}: {one.found}\n  needed: {one.needed}{_advice(one.advice)}" for one in said]
    return "\n".join([*lines, *([] if good else [f"{len(every) - len(said)} ok"])])


def findings(found: Iterable[Finding], *parts: str) -> str:
    """What explain found, with names; with ``parts``, only what is of one of them (``lint`` of ``lint.idle``)."""
    said = [one for one in found if not parts or one.name.startswith(parts)]
    return "\n".join(f"{one.severity} {one.name}: {one.text}{_advice(one.advice)}" for one in said)


def _advice(text: str) -> str:
    return f"\n  advice: {text}" if text else ""


def json_text(body: Any) -> str:
    """A message, a dataclass or an answer as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()


def stable(text: str, folder: Path | None = None) -> str:
    """The text without what a change elsewhere changes: a test's folder, and versions (hashes), which are numbered."""
    hashes = list(dict.fromkeys(HASH.findall(text)))
    for number, each in enumerate(hashes, 1):
        text = text.replace(each, f"<hash {number}>")
    return text if folder is None else text.replace(str(folder), "<folder>")


def command_text(result: Result, folder: Path | None = None) -> str:
    """What a command printed, and its exit status."""
    return stable(f"{result.output.rstrip()}\nexit status {result.exit_code}", folder)


def refusal(error: type[Exception], call: Callable[[], object]) -> str:
    """The text of the error that a call ends in."""
    with pytest.raises(error) as refused:
        call()
    return str(refused.value)
