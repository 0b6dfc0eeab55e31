"""Defines the result of a check, and summarizes results. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "failed"]
NAMED_MAX = 3


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


def tally(findings: Sequence[Finding], verdict: Verdict) -> int:
    """Count the findings with this verdict."""
    return sum(one.verdict == verdict for one in findings)
