"""Formats the explanation of a service, and the list of all services, for a terminal."""

from collections.abc import Iterator, Sequence

from slacktide.deploy.cli.explain.node_text import age, findings_text
from slacktide.deploy.runtime.text import count, instant, table
from slacktide.schemas.service import LatencyFit, ServiceProfile
from slacktide.streams.analysis.explain.service import (
    LatencyExplanation,
    ServiceExplanation,
    Services,
    Slowdown,
    Tenth,
    counting,
    line_permille,
)

BAR_CHARS = 40
COLUMNS = (
    "SERVICE",
    "SIGNAL",
    "STATUS",
    "SLOPE",
    "INTERVAL",
    "SLOWDOWN BY HALF A NODE",
    "CAP",
    "NODE-HOURS",
    "NODES",
    "NEWEST MINUTE",
)
_MODES = {
    "off": "services are not measured",
    "shadow": "caps are shown, and not applied",
    "on": "nodes apply the cap of their most sensitive service",
}

_SIGNALS = {"latency": "latency, as users see it", "pressure": "pressure: the latency is not learned yet"}


def services_text(found: Services) -> str:
    """Return the list of all services."""
    rows = []
    for one in found.services:
        cap = "-" if one.cap_pct is None else f"{one.cap_pct}%"
        hours = f"{one.node_hours:,.1f}"
        interval = f"{slope_text(one.low_permille)} to {slope_text(one.high_permille)}"
        half = percent(one.half_pct)
        slope = slope_text(one.slope_permille) + (" bent" if one.shape == "bent" else "")
        rows.append(
            (one.service, one.signal, one.status, slope, interval, half, cap, hours, one.nodes, age(one.age_ms))
        )
    return "\n".join([_mode(found.mode, found.budget_pct), "", table(COLUMNS, rows)])


def service_text(one: ServiceExplanation) -> str:
    """Return the complete text of one service."""
    parts = ["\n".join(_head(one)), findings_text(one.findings)]
    if one.tenths:
        parts.append(("" if one.latency is None else "pressure: ") + _picture(one.tenths))
    return "\n\n".join(parts)


def slope_text(permille: int) -> str:
    """Format a slope, which is given in thousandths."""
    return f"{permille / 1_000:,.2f}"


def percent(value: float, digits: int = 0) -> str:
    """Format a percentage; never as -0%."""
    return f"{round(value, digits) + 0.0:,.{digits}f}%"


def _mode(mode: str, budget_pct: int) -> str:
    return f"learnedCaps {mode}: {_MODES[mode]}; interferenceBudgetPercent {budget_pct}"


def _head(one: ServiceExplanation) -> Iterator[str]:
    profile = one.profile
    yield f"service {one.service}, {counting(profile).status}"
    yield f"  {_mode(one.mode, one.budget_pct)}"
    if one.latency is not None and profile.latency is not None:
        yield f"  signal: {_SIGNALS[profile.signal]}"
        yield f"  latency, {profile.latency.status}"
        yield from (f"    {line}" for line in _latency(one.latency, profile.latency))
        yield f"  pressure, {profile.status}"
        yield from (f"    {line}" for line in _pressure(one))
    else:
        yield from (f"  {line}" for line in _pressure(one))
    cap = "none" if one.cap_pct is None else f"at most {one.cap_pct}% of a node's CPU for best-effort pods"
    yield f"  cap: {cap}"
    yield from _published(one)
    yield f"  learned of {one.minutes}; the newest minute ended {age(one.age_ms)}"
    yield f"  {one.place}"


def _pressure(one: ServiceExplanation) -> Iterator[str]:
    if one.profile.nodes:
        yield f"{_slope(one.profile)}:"
        yield f"  with half of a node's CPU used by best-effort pods it slows down by {_pct(one.half)}"
        alone = percent(one.alone_pct, 1)
        yield f"without best-effort pods it slows down by {alone}, because it waits for CPU or memory"
    yield _measured(one.profile)


def _latency(one: LatencyExplanation, fit: LatencyFit) -> Iterator[str]:
    if fit.nodes:
        yield f"{_slope(fit)}:"
        yield f"  with half of a node's CPU used by best-effort pods its 99th percentile grows by {_pct(one.half)}"
        yield f"99th percentile without best-effort pods: {one.alone_ms:,.1f} ms"
    if one.target_ms is not None:
        yield f"target: {one.target_ms:,.1f} ms{_reached(one) if fit.nodes else ''}"
    yield _measured(fit)
    if one.missing:
        yield f"missing: {'; '.join(one.missing)}"


def _reached(one: LatencyExplanation) -> str:
    if one.target_at_pct is None:
        return ", not reached with all of a node's CPU used by best-effort pods"
    if not one.target_at_pct:
        return ", exceeded without best-effort pods"
    return f", reached with {percent(one.target_at_pct)} of a node's CPU used by best-effort pods"


def _slope(fit: ServiceProfile | LatencyFit) -> str:
    slope, low, high = map(slope_text, (fit.slope_permille, fit.low_permille, fit.high_permille))
    return f"slope {slope}, 90% interval {low} to {high}{', bent' if fit.shape == 'bent' else ''}"


def _measured(fit: ServiceProfile | LatencyFit) -> str:
    return f"measured: {fit.node_hours:,.1f} node-hours on {count(fit.nodes, 'node')}"


def _published(one: ServiceExplanation) -> Iterator[str]:
    published = one.profile.published
    if published is None:
        yield "  published to nodes: no slope"
        return
    place = "" if one.published_place is None else f" ({one.published_place})"
    slope, since = slope_text(published.slope_permille), instant(published.observed_ms)
    fit = counting(one.profile)
    line = "" if fit.shape == "straight" else ", the straight line to the slowdown of 25%"
    yield f"  published to nodes: slope {slope}{line} since {since}{place}"
    if abs(published.slope_permille - line_permille(fit)) * 10 > published.slope_permille:
        yield "    it follows the learned slope in steps of at most a quarter each half hour"


def _pct(slowdown: Slowdown) -> str:
    return f"{percent(slowdown.pct)} [{percent(slowdown.low_pct)} to {percent(slowdown.high_pct)}]"


def _picture(tenths: Sequence[Tenth]) -> str:
    """Draw the measured slowdown of each tenth with minutes."""
    most = max((one.slowdown_pct for one in tenths if one.minutes), default=0.0)
    rows = []
    for one in tenths:
        if not one.minutes:
            continue
        bar = "█" * round(BAR_CHARS * one.slowdown_pct / most) if one.slowdown_pct > 0 else ""
        span = f"{one.from_pct:>2} to {one.to_pct}%"
        rows.append((span, f"{one.minutes:,.0f}", percent(one.by_slope_pct, 1), percent(one.slowdown_pct, 1), bar))
    head = ("BEST-EFFORT CPU", "MINUTES", "BY THE SLOPE", "MEASURED", "")
    return f"slowdown by the part of a node's CPU that best-effort pods used:\n{table(head, rows)}"
