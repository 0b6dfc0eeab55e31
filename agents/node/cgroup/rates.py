"""PURE: rates from the counters of two readings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from slacktide.schemas.sample import Missing

NO_PREVIOUS = "no previous reading"
RESET = "counter reset"
_What = tuple[str, str]
"""Pod uid ("": the node) and counter; formatted only if a figure is missing."""
_NODE_CPU: _What = ("", "cpu")
_CPU_MILLI_MAX = 1_000_000_000
"""More than any machine has: a higher rate means a wrong counter."""


class PodCounters(NamedTuple):
    """Counters of one pod's cgroup since its creation; None: unreadable. A tuple, since each sample creates many."""

    cpu_ns: int | None = None
    periods: int | None = None
    """0: never limited."""
    throttled_periods: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """All counters of one reading."""

    mono_ns: int
    cpu_ns: int | None
    """Busy time of all CPUs of the node."""
    pods: Mapping[str, PodCounters]


class PodRates(NamedTuple):
    """Rates of one pod between two readings. None: unknown; for periods: never limited."""

    cpu_milli: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates between two readings."""

    interval_ms: int
    cpu_milli: int | None
    pods: Mapping[str, PodRates]
    missing: list[Missing]
    """Why rates are None although their counters were read."""


def rates(before: Counters | None, now: Counters) -> Rates:
    """Compute rates since ``before``. A rate is None at the first reading, without elapsed time, or after a reset."""
    interval_ns = 0 if before is None else now.mono_ns - before.mono_ns
    if before is None or interval_ns <= 0:
        why = NO_PREVIOUS if before is None else "no time has passed since the previous reading"
        pods = dict.fromkeys(now.pods, PodRates())
        return Rates(interval_ms=0, cpu_milli=None, pods=pods, missing=[Missing(what="rates", why=why)])
    missing: list[Missing] = []
    cpu_milli = _milli(_NODE_CPU, before.cpu_ns, now.cpu_ns, interval_ns, missing)
    return Rates(
        interval_ms=interval_ns // 1_000_000,
        cpu_milli=cpu_milli,
        pods={uid: _pod(uid, before.pods.get(uid), pod, interval_ns, missing) for uid, pod in now.pods.items()},
        missing=missing,
    )


def _pod(uid: str, before: PodCounters | None, now: PodCounters, interval_ns: int, missing: list[Missing]) -> PodRates:
    if before is None:
        missing.append(Missing(what=f"pod {uid}", why=NO_PREVIOUS))
        return PodRates()
    cpu_milli = _milli((uid, "cpu"), before.cpu_ns, now.cpu_ns, interval_ns, missing)
    if not now.periods:
        return PodRates(cpu_milli=cpu_milli)
    throttled = _rise((uid, "throttled periods"), before.throttled_periods, now.throttled_periods, missing)
    periods = _rise((uid, "periods"), before.periods, now.periods, missing)
    return PodRates(cpu_milli=cpu_milli, periods=periods, throttled_periods=throttled)


def _rise(what: _What, before: int | None, now: int | None, missing: list[Missing]) -> int | None:
    if now is None:  # its reader has reported why
        return None
    if before is None or now < before:
        missing.append(Missing(what=_name_of(what), why=NO_PREVIOUS if before is None else RESET))
        return None
    return now - before


def _milli(what: _What, before: int | None, now: int | None, interval_ns: int, missing: list[Missing]) -> int | None:
    """Return the CPU use in millicores: 1000 is one CPU busy for the whole interval."""
    cpu_ns = _rise(what, before, now, missing)
    if cpu_ns is None:
        return None
    milli = round(cpu_ns * 1000 / interval_ns)
    if milli > _CPU_MILLI_MAX:
        missing.append(Missing(what=_name_of(what), why=f"implausible: {milli} millicores"))
        return None
    return milli


def _name_of(what: _What) -> str:
    uid, counter = what
    return f"pod {uid} {counter}" if uid else f"node {counter}"
