"""Reports labels, annotations and fields of users that no rule can read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.third_party import ANNOTATION
from slacktide.streams.decisions.ignored_marks import ignored_marks
from slacktide.streams.explain.evidence import Finding


def ignored_findings(of: str, ignored: Sequence[str]) -> Iterator[Finding]:
    """Report each of an object. ``of``: pod, node or job."""
    for note in ignored:
        advice = "correct or remove it; a FieldIgnored Event on the object repeats this"
        yield Finding(name=f"{of}.ignored", text=note, advice=advice)


def ignored_node_findings(facts: NodeFacts | None) -> Iterator[Finding]:
    """Report those of a Node, except the one that has a finding of its own."""
    notes = [] if facts is None else ignored_marks(facts)
    return ignored_findings("node", [note for note in notes if ANNOTATION not in note])
