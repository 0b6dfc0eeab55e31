"""Defines the controllers of knobs; ``schemas.knob_table`` has the knobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One controller of control groups."""

    name: str
    needed: str
    required: bool
    """Whether an agent can do its work without it."""


CONTROLLERS = (
    Controller(name="cpu", needed="to limit best-effort CPU", required=True),
    Controller(name="cpuacct", needed="to measure each pod's CPU", required=True),
    Controller(name="memory", needed="to measure each pod's memory", required=False),
    Controller(name="cpuset", needed="for cpuSuppressPolicy cpuset", required=False),
    Controller(name="freezer", needed="to freeze best-effort pods that lack eviction credit", required=False),
)
