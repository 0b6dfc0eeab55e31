"""Formats findings and ages for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from slacktide.streams.explain.evidence import Finding

WIDTH = 110


def findings_text(findings: Sequence[Finding]) -> str:
    """Format findings with their advice, problems first."""
    if not findings:
        return "no problems found"
    return "\n".join(line for one in findings for line in _finding(one))


def _finding(one: Finding) -> Iterator[str]:
    lines = wrap(f"{one.name}: {one.text}", WIDTH, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        yield f"{'' if number else one.severity:<7}  {line}"
    for number, line in enumerate(wrap(one.advice, WIDTH - 9, break_long_words=False, break_on_hyphens=False)):
        yield f"         {'' if number else 'to do: ':<7}{line}"


def age(span_ms: int) -> str:
    """Format an age."""
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if span_ms >= 2 * unit:
            return f"{span_ms / unit:.1f} {name} ago"
    return f"{span_ms / 1000:.1f} s ago"
