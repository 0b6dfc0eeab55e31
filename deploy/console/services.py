"""Reads what is known of services at a moment from the history, as rows of a page and as the picture of one."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from slacktide.deploy.cli.explain.service_text import service_text
from slacktide.deploy.console.history.queries import History
from slacktide.schemas.policy import Colocation
from slacktide.schemas.topics import SERVICE_PROFILE
from slacktide.streams.analysis.explain.service import (
    ServiceExplanation,
    counting,
    explain_service,
    explain_services,
    slowdown_at,
)

SHOWN_MAX = 200
"""Limit for listed services; the filter finds the others."""
STEPS = 40
"""Points of a line in the picture."""


def listed_services(history: History, at_ms: int, text: str) -> dict[str, Any]:
    """Return all services, the most sensitive first; ``text``: filters them by name."""
    found = explain_services(history.objects.held(at_ms, SERVICE_PROFILE).records, at_ms, _colocation(history, at_ms))
    named = [one for one in found.services if text in one.service]
    return {
        "mode": found.mode,
        "budget_pct": found.budget_pct,
        "services": [asdict(one) | {"place": str(one.place)} for one in named[:SHOWN_MAX]],
        "services_count": len(named),
    }


def service_of(history: History, service: str, at_ms: int) -> ServiceExplanation | None:
    """Return one service by NAMESPACE/NAME; None: it has no profile at that moment."""
    record = history.objects.one(at_ms, SERVICE_PROFILE, service.encode())
    return None if record is None else explain_service([record], service, at_ms, _colocation(history, at_ms))


def detailed_service(one: ServiceExplanation) -> dict[str, Any]:
    """Return one service's details, the lines of its picture, and its explanation as text."""
    profile = one.profile
    fit = counting(profile)
    return {
        "service": one.service,
        "signal": profile.signal,
        "status": fit.status,
        "mode": one.mode,
        "budget_pct": one.budget_pct,
        "cap_pct": one.cap_pct,
        "half": one.half,
        "alone_pct": one.alone_pct,
        "latency": one.latency,
        "node_hours": fit.node_hours,
        "nodes": fit.nodes,
        "age_ms": one.age_ms,
        "place": str(one.place),
        "minutes": one.minutes,
        "findings": one.findings,
        "tenths": one.tenths,
        "line": [slowdown_at(profile, step / STEPS) for step in range(STEPS + 1)] if profile.nodes else [],
        "text": service_text(one),
    }


def service_lines(history: History, service: str, at_ms: int) -> Iterator[str]:
    """Explain a figure of a service in lines: the text of ``slacktide explain service``."""
    one = service_of(history, service, at_ms)
    if one is not None:
        yield from service_text(one).split("\n")


def _colocation(history: History, at_ms: int) -> Colocation:
    """Return the cluster's strategy in force; without a policy the defaults."""
    policy, _ = history.policy_at(at_ms)
    return Colocation() if policy is None else policy.body.colocation
