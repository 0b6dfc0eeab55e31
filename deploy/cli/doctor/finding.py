"""Defines the result of a check; summarizes results, and formats them as a table and as plain data. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat, zip_longest
from typing import Literal

from slacktide.deploy.runtime.text import count, table, wrapped

Verdict = Literal["ok", "warning", "failed"]
NAMED_MAX = 3
FOUND_WIDTH = 52
NEEDED_WIDTH = 40
ADVICE_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The state found, the required state, and the remedy."""

    check: str
    """The name, the same on every machine and in every release: part and subject, such as ``knob.cpu-quota``."""
    verdict: Verdict
    found: str
    needed: str
    advice: str
    """The remedy; "" if the check is ok."""


def good(check: str, found: str, needed: str) -> Finding:
    """Build a finding of a check that is ok."""
    return Finding(check=check, verdict="ok", found=found, needed=needed, advice="")


def warned(check: str, found: str, needed: str, advice: str) -> Finding:
    """Build a finding of a degraded state."""
    return Finding(check=check, verdict="warning", found=found, needed=needed, advice=advice)


def failed(check: str, found: str, needed: str, advice: str) -> Finding:
    """Build a finding of a state in which an agent or a worker would not work."""
    return Finding(check=check, verdict="failed", found=found, needed=needed, advice=advice)


def unknown(check: str, why: str, needed: str, right: str) -> Finding:
    """Build a finding of an unknown state, since a right in the cluster is missing."""
    return warned(check, f"unknown: {why}", needed, f"use a kubeconfig with the right to {right}")


def some(names: Sequence[str]) -> str:
    """Format the first three names, and the number of others."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more}"


def ready(findings: Sequence[Finding]) -> bool:
    """Return whether nothing failed; warnings are allowed."""
    return not any(one.verdict == "failed" for one in findings)


def plain(findings: Sequence[Finding]) -> dict[str, object]:
    """Return ``ready``, ``failed`` and ``warnings`` (counts), and ``checks`` in the order of the table.

    A check has ``check``, ``verdict`` (``ok``, ``warning`` or ``failed``), ``found``, ``needed`` and ``advice``, all
    text; ``advice`` is empty for ``ok``. A name may occur several times, once per object.
    """
    tally = Counter(one.verdict for one in findings)
    return {"ready": ready(findings), "failed": tally["failed"], "warnings": tally["warning"], "checks": findings}


def as_table(findings: Sequence[Finding]) -> str:
    """Format found and required states, then the remedies, failures first, and a summary."""
    rows: list[tuple[str, ...]] = []
    for one in findings:
        cells = zip_longest(wrapped(one.found, FOUND_WIDTH) or [""], wrapped(one.needed, NEEDED_WIDTH), fillvalue="")
        heads = chain([(one.verdict, one.check)], repeat(("", "")))
        rows += [(*head, *pair) for head, pair in zip(heads, cells, strict=False)]
    parts = [table(("VERDICT", "CHECK", "FOUND", "NEEDED"), rows)]
    to_do = []
    for verdict in ("failed", "warning"):
        for one in (one for one in findings if one.verdict == verdict):
            for number, line in enumerate(wrapped(f"{one.check}: {one.advice}", ADVICE_WIDTH)):
                to_do.append(f"  {'' if number else verdict:<7}  {line}")
    if to_do:
        parts.append("\n".join(["what to do:", *to_do]))
    tally = Counter(one.verdict for one in findings)
    warnings = count(tally["warning"], "warning")
    parts.append(f"ready, {warnings}" if ready(findings) else f"not ready: {tally['failed']} failed, {warnings}")
    return "\n\n".join(parts)
