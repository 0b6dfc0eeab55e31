"""Checks a command against the agent's own decision: no higher limits, and no other victims."""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.agents.node.protocol import Taken
from slacktide.schemas.command import Hold, NodeCommand
from slacktide.schemas.knob_table import QUOTA_US_MIN
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.streams.decisions.evict.node_evict import Eviction
from slacktide.streams.decisions.knobs import WantedSetting
from slacktide.streams.decisions.node_decision import NodeDecision
from slacktide.streams.decisions.suppress.cpu_suppress import RULE, TARGET, looser

PERIOD_US_MIN, PERIOD_US_MAX = 1_000, 1_000_000
"""The kernel's range, on cgroup v1 and v2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The accepted parts of a command. Pods and settings are the agent's own; the command only selects them."""

    hold: Hold
    evict: tuple[Eviction, ...]
    settings: tuple[WantedSetting, ...]


def accepted(command: NodeCommand, taken: Taken, current: NodeSample, own: NodeDecision) -> Accepted | None:
    """Return the accepted parts of a command; None: it disagrees with ``own``, the agent's decision for ``current``."""
    hold = _hold_of(command, taken)
    if hold is None or own.limits.limits is None:
        return None
    if not _holdable(hold.limits, taken) or looser(hold.limits, own.limits.limits):
        return None
    evict, settings = _victims(command, current, own), _settings(command, own)
    return None if evict is None or settings is None else Accepted(hold=hold, evict=evict, settings=settings)


def _hold_of(command: NodeCommand, taken: Taken) -> Hold | None:
    if not command.hold:
        limits = taken.sample.limits
        return None if limits is None else Hold(id=command.id, rule=RULE, target=TARGET, limits=limits, bound="kept")
    return next((hold for hold in command.hold if (hold.rule, hold.target) == (RULE, TARGET)), None)


def _holdable(limits: Limits, taken: Taken) -> bool:
    if limits.be_cpuset is not None:
        held = taken.sample.limits and taken.sample.limits.be_cpuset
        known = {one.cpu for one in taken.facts.processors} | set(held or ())
        ascending = limits.be_cpuset == sorted(set(limits.be_cpuset))  # as the field is defined, and as it reads back
        if not limits.be_cpuset or not ascending or not known.issuperset(limits.be_cpuset):
            return False
    quota_us, period_us = limits.be_cfs_quota_us, limits.be_cfs_period_us
    return PERIOD_US_MIN <= period_us <= PERIOD_US_MAX and (quota_us is None or quota_us >= QUOTA_US_MIN)


def _victims(command: NodeCommand, current: NodeSample, own: NodeDecision) -> tuple[Eviction, ...] | None:
    """Return the command's victims in order, without terminating ones; None: the agent would not evict one of them."""
    mine = {one.pod.uid: one for one in own.evict}
    wanted = [one.uid for one in command.evict if one.uid not in current.evict.dying]
    if not mine.keys() >= set(wanted):
        return None
    return tuple(mine[uid] for uid in dict.fromkeys(wanted))


def _settings(command: NodeCommand, own: NodeDecision) -> tuple[WantedSetting, ...] | None:
    """Return the command's settings; None: the agent would not set one of them."""
    mine = {(one.group, one.knob, one.value): one for one in own.settings}
    wanted = [(one.group, one.knob, one.value) for one in command.settings]
    return tuple(mine[one] for one in dict.fromkeys(wanted)) if mine.keys() >= set(wanted) else None
