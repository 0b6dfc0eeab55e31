"""PURE: one check's result, and what all of them come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "failed"]
NAMED_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found, what is needed, what to do."""

    check: str
    """Its name, the same on every machine and in every release: part and subject, such as ``knob.cpu-quota``."""
    verdict: Verdict
    found: str
    needed: str
    advice: str
    """What to do; "" where it is ok."""


def good(check: str, found: str, needed: str) -> Finding:
    """As it should be."""
    return Finding(check=check, verdict="ok", found=found, needed=needed, advice="")


def warned(check: str, found: str, needed: str, advice: str) -> Finding:
    """Works, but something is lost."""
    return Finding(check=check, verdict="warning", found=found, needed=needed, advice=advice)


def failed(check: str, found: str, needed: str, advice: str) -> Finding:
    """An agent or a worker would not do its work here."""
    return Finding(check=check, verdict="failed", found=found, needed=needed, advice=advice)


def unknown(check: str, why: str, needed: str, right: str) -> Finding:
    """Not known, for want of a right in the cluster."""
    return warned(check, f"unknown: {why}", needed, f"ask with a kubeconfig that may {right}")


def some(names: Sequence[str]) -> str:
    """The first three, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more}"


def ready(findings: Sequence[Finding]) -> bool:
    """Whether nothing failed; warnings are allowed."""
    return not any(one.verdict == "failed" for one in findings)


def tally(findings: Sequence[Finding], verdict: Verdict) -> int:
    """How many have this verdict."""
    return sum(one.verdict == verdict for one in findings)
