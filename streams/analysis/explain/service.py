"""Explains what is known of a service: how much best-effort work slows it down, and the cap that follows. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import expm1, log
from typing import Final

import msgspec

from slacktide.schemas.policy import Colocation
from slacktide.schemas.policy.effective import cap_of_slope_pct
from slacktide.schemas.policy.strategies import LearnedCaps
from slacktide.schemas.service import BINS, LatencyFit, ServiceProfile, ServiceSlope, Shape
from slacktide.schemas.topics import SERVICE_MINUTE, SERVICE_PROFILE, SERVICE_SLOPE
from slacktide.streams.analysis.explain.evidence import Finding, Logged, Place, by_key, logged
from slacktide.streams.analysis.explain.node_log import policy_of
from slacktide.streams.learning.estimate import HOURS_TO_LEARN, WIDTH_TO_LEARN
from slacktide.streams.learning.shape import growth, line_slope, share_at
from slacktide.streams.records import Record

OLD_MS: Final = 2 * 3_600_000
"""A service whose newest minute is older does not run, or is not measured."""
HALF: Final = 0.5
"""Share of a node's CPU for which the slope is put into words."""
LOG_MAX: Final = 20.0
"""A larger logarithm of a slowdown is shown as this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """Percent by which the service slows down, with the ends of the interval that has the true value 9 times of 10."""

    pct: float
    low_pct: float
    high_pct: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenth:
    """What was measured while best-effort pods used this part of a node's CPU."""

    from_pct: int
    to_pct: int
    minutes: float
    """Decayed weight."""
    slowdown_pct: float
    """Mean, beyond that without best-effort work."""
    by_slope_pct: float
    """What the slope gives for the middle of the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyExplanation:
    """What follows from the service's latency."""

    half: Slowdown
    """Growth of the 99th percentile with half of a node's CPU used by best-effort pods."""
    alone_ms: float
    """99th percentile without best-effort work."""
    target_ms: float | None
    """None: no target was published."""
    target_at_pct: float | None
    """Percent of a node's CPU, used by best-effort pods, with which the 99th percentile is predicted to reach the
    target; 0: it is above the target without them; None: not even with all of a node's CPU, or there is no target."""
    missing: list[str]
    """What a latency with the status ``learning`` lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceExplanation:
    """One service's explanation. ``None`` for a cap: all of the node's CPU, or no slope is published."""

    service: str
    asked_ms: int
    place: Place
    """Position of the profile record."""
    age_ms: int
    mode: LearnedCaps
    """``learnedCaps`` of the cluster's strategy; ``off`` without a policy."""
    budget_pct: int
    """``interferenceBudgetPercent`` of the cluster's strategy."""
    cap_pct: int | None
    """By the published slope: percent of a node's CPU that best-effort pods may use."""
    half: Slowdown
    """By stalls, with half of a node's CPU used by best-effort pods."""
    alone_pct: float
    """Slowdown by stalls without best-effort work."""
    latency: LatencyExplanation | None
    """None: no latency was published. It counts, instead of stalls, if it is the profile's ``signal``."""
    missing: list[str]
    """What the stalls of a service with the status ``learning`` lack."""
    tenths: list[Tenth]
    minutes: str
    """The minutes behind the profile: topic, partition, first and last offset."""
    published_place: Place | None
    """Position of the record with the published slope; None: it was not read."""
    findings: list[Finding]
    profile: ServiceProfile
    """Without the sums of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRow:
    """One service in the list of all."""

    service: str
    signal: str
    """``pressure`` or ``latency``: what all figures of the row come from."""
    status: str
    slope_permille: int
    low_permille: int
    high_permille: int
    shape: Shape
    half_pct: float
    """Slowdown with half of a node's CPU used by best-effort pods."""
    node_hours: float
    nodes: int
    cap_pct: int | None
    place: Place
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """All services, the most sensitive first."""

    asked_ms: int
    mode: LearnedCaps
    budget_pct: int
    services: list[ServiceRow]


def profiles(records: Iterable[Record]) -> list[Logged[ServiceProfile]]:
    """Return the last profile of each existing service."""
    by_service = by_key(records, SERVICE_PROFILE)
    found = (logged(of_one, SERVICE_PROFILE, ServiceProfile, key) for key, of_one in by_service.items())
    return [each[-1] for each in found if each]


def colocation_in(records: Iterable[Record]) -> Colocation:
    """Return the cluster's colocation strategy in force; without a policy the defaults."""
    policy, _ = policy_of(records)
    return Colocation() if policy is None else policy.body.colocation


def explain_services(records: Iterable[Record], now_ms: int, colocation: Colocation) -> Services:
    """Return all services, those that are still learning last. ``records``: profiles."""
    rows = [
        ServiceRow(
            service=one.body.service,
            signal=one.body.signal,
            status=fit.status,
            slope_permille=fit.slope_permille,
            low_permille=fit.low_permille,
            high_permille=fit.high_permille,
            shape=fit.shape,
            half_pct=slowdown_at(fit, HALF).pct,
            node_hours=fit.node_hours,
            nodes=fit.nodes,
            cap_pct=_cap_pct(one.body, colocation),
            place=one.place,
            age_ms=max(0, now_ms - one.body.observed_ms),
        )
        for one in profiles(records)
        for fit in (counting(one.body),)
    ]
    rows.sort(key=lambda one: (one.status == "learning", -line_permille(one), one.service))
    return Services(
        asked_ms=now_ms, mode=colocation.learned_caps, budget_pct=colocation.interference_budget_pct, services=rows
    )


def explain_service(
    records: Iterable[Record], service: str, now_ms: int, colocation: Colocation
) -> ServiceExplanation | None:
    """Return one service by NAMESPACE/NAME; None: it has no profile.

    ``records``: profiles and published slopes. ``colocation``: the cluster's strategy.
    """
    records = list(records)
    found = logged(records, SERVICE_PROFILE, ServiceProfile, service)
    if not found:
        return None
    profile, place = found[-1].body, found[-1].place
    slopes = logged(records, SERVICE_SLOPE, ServiceSlope, service)
    missing = list(_missing(profile))
    return ServiceExplanation(
        service=service,
        asked_ms=now_ms,
        place=place,
        age_ms=max(0, now_ms - profile.observed_ms),
        mode=colocation.learned_caps,
        budget_pct=colocation.interference_budget_pct,
        cap_pct=_cap_pct(profile, colocation),
        half=slowdown_at(profile, HALF),
        alone_pct=(profile.alone_permille - 1_000) / 10,
        latency=_latency(profile.latency),
        missing=missing,
        tenths=list(_tenths(profile)),
        minutes=f"{SERVICE_MINUTE.name} {place.partition}:{profile.folded_from} to {profile.folded_to}",
        published_place=slopes[-1].place if slopes else None,
        findings=list(_findings(profile, colocation, missing, now_ms)),
        profile=_without_sums(profile),
    )


def why_none(mode: LearnedCaps, nodes: Sequence[str] | None = None) -> str:
    """Return why a service has no profile, and what to do.

    Args:
        mode: ``learnedCaps`` of the cluster's strategy.
        nodes: with a recent pod of its controller; None: not of one service.
    """
    if mode == "off":
        return "learnedCaps is off, so services are not measured: set it to shadow in colocation-config"
    if nodes is None:
        return "the first profile follows minutes of a latency-sensitive pod with a controller"
    if not nodes:
        return (
            "no recent pod list has a pod of this controller: give the name of the Deployment, StatefulSet or other "
            "controller, not that of a pod or Service"
        )
    return (
        f"a pod of it is on {nodes[0]}: its minutes count while it is latency-sensitive and uses at least 2% of a CPU, "
        "and the node has PSI of cgroups, which `slacktide doctor` reports there in pressure.stall"
    )


def counting(profile: ServiceProfile) -> ServiceProfile | LatencyFit:
    """Return the fit from which nodes get the slope: that of the latency as soon as it is learned."""
    return profile.latency if profile.signal == "latency" and profile.latency is not None else profile


def slowdown_at(fit: ServiceProfile | LatencyFit, share: float) -> Slowdown:
    """Return the slowdown for a share of a node's CPU, 0 to 1, that best-effort pods use."""
    slopes = (fit.slope_permille, fit.low_permille, fit.high_permille)
    pct, low_pct, high_pct = (_pct(growth(fit.shape, slope, share)) for slope in slopes)
    return Slowdown(pct=pct, low_pct=low_pct, high_pct=high_pct)


def line_permille(fit: ServiceProfile | LatencyFit | ServiceRow) -> float:
    """Return the slope that nodes use, in thousandths."""
    return 1_000 * line_slope(fit.shape, fit.slope_permille / 1_000)


def _pct(log_permille: float) -> float:
    """Return the percent of a logarithm of a slowdown, which is given in thousandths."""
    return round(100 * expm1(min(LOG_MAX, log_permille / 1_000)), 2)


def _without_sums(profile: ServiceProfile) -> ServiceProfile:
    latency = None if profile.latency is None else msgspec.structs.replace(profile.latency, sums=[])
    return msgspec.structs.replace(profile, sums=[], latency=latency)


def _latency(fit: LatencyFit | None) -> LatencyExplanation | None:
    if fit is None:
        return None
    return LatencyExplanation(
        half=slowdown_at(fit, HALF),
        alone_ms=fit.alone_us / 1_000,
        target_ms=None if fit.target_us is None else fit.target_us / 1_000,
        target_at_pct=_target_at_pct(fit),
        missing=list(_missing(fit)),
    )


def _target_at_pct(fit: LatencyFit) -> float | None:
    if not fit.target_us or not fit.nodes:
        return None
    if fit.alone_us >= fit.target_us:
        return 0.0
    least, slope = log(fit.target_us / max(fit.alone_us, 1.0)), fit.slope_permille / 1_000
    return round(100 * share_at(fit.shape, slope, least), 1) if 0 < least < slope else None


def _cap_pct(profile: ServiceProfile, colocation: Colocation) -> int | None:
    slope_permille = 0 if profile.published is None else profile.published.slope_permille
    return cap_of_slope_pct(slope_permille, colocation.interference_budget_pct)


def _tenths(profile: ServiceProfile) -> Iterator[Tenth]:
    width_pct = 100 // BINS
    for number, one in enumerate(profile.bins):
        yield Tenth(
            from_pct=number * width_pct,
            to_pct=(number + 1) * width_pct,
            minutes=one.minutes,
            slowdown_pct=_pct(one.mean_permille),
            by_slope_pct=slowdown_at(profile, (number + 0.5) / BINS).pct,
        )


def _missing(fit: ServiceProfile | LatencyFit) -> Iterator[str]:
    """Return what is missing before the slope counts as learned."""
    if fit.status != "learning":
        return
    if fit.node_hours < HOURS_TO_LEARN:
        yield f"{fit.node_hours:,.1f} of {HOURS_TO_LEARN:g} node-hours are measured"
    if not fit.nodes:
        yield "no node has 30 minutes in which the CPU use of best-effort pods varied"
        return
    half = (fit.high_permille - fit.low_permille) / 2_000
    share, width = WIDTH_TO_LEARN
    most = max(share * fit.slope_permille / 1_000, width)
    if half > most:
        yield f"the slope is known within ±{half:.2f}; it must be within ±{most:.2f}"
    elif fit.low_permille <= 0:
        yield "the interval of the slope includes 0"


def _findings(profile: ServiceProfile, colocation: Colocation, missing: list[str], now_ms: int) -> Iterator[Finding]:
    if colocation.learned_caps == "off":
        yield Finding(
            "service.off",
            "learnedCaps is off: services are not measured, and no cap applies",
            advice="set learnedCaps to shadow in colocation-config to measure services",
        )
    elif now_ms - profile.observed_ms > OLD_MS:
        hours = (now_ms - profile.observed_ms) / 3_600_000
        yield Finding(
            "service.old",
            f"the newest minute is {hours:,.1f} hours old: no pod of the service runs, or agents do not measure it",
            advice="run `slacktide doctor` on a node with a pod of the service: pressure.stall reports PSI of cgroups",
        )
    fit = counting(profile)
    if fit.status == "learning":
        yield Finding(
            "service.learning",
            f"the slope is not known yet, so there is no cap: {'; '.join(missing) or 'the next minutes decide'}",
            advice="wait: it takes hours in which best-effort pods use more CPU at some times than at others",
        )
        return
    cap_pct = _cap_pct(profile, colocation)
    if cap_pct is None:
        most = slowdown_at(fit, 1.0)
        yield Finding(
            "service.no-cap",
            f"no cap: with all of a node's CPU used by best-effort pods, {_effect(profile)} by {most.pct:.0f}%, and at "
            f"most by {most.high_pct:.0f}%",
        )
        return
    limits = "limits" if colocation.learned_caps == "on" else "would limit"
    yield Finding(
        "service.cap",
        f"the service {limits} best-effort pods to {cap_pct}% of the CPU of its nodes: beyond it, {_effect(profile)} "
        f"by more than {colocation.interference_budget_pct}%",
    )


def _effect(profile: ServiceProfile) -> str:
    if profile.signal == "latency":
        return "its 99th percentile is predicted to grow"
    return "it is predicted to slow down"
