"""Holds a quota: reads what groups hold, carries a plan out, reads it back."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.agents.node.cgroup.knobs import Knobs, is_gone
from slacktide.agents.node.cgroup.originals import Originals
from slacktide.agents.node.cgroup.plan import (
    BEST_EFFORT_ITSELF,
    CPU_MAX_FILE,
    PERIOD_FILE,
    QUOTA_FILE,
    Bandwidth,
    Plan,
    Write,
    cpu_max_text,
    plan_own_v1,
    plan_v1,
    plan_v2,
)
from slacktide.schemas.errors import CgroupError


class Holder:
    """The best-effort group of one node and what lies below it."""

    def __init__(self, hierarchy: Hierarchy, originals: Originals) -> None:
        self._version = hierarchy.version
        self._originals = originals
        self._knobs = Knobs(hierarchy, hierarchy.best_effort)

    def held(self) -> Bandwidth:
        """What the best-effort group holds now.

        Raises:
            CgroupError: it is not there, or not as it should be.

        """
        return self._read(BEST_EFFORT_ITSELF)

    def hold(self, wanted: Bandwidth) -> None:
        """Make the best-effort group hold ``wanted`` and read it back.

        Raises:
            CgroupError: a write was refused, or the group holds something else afterwards.

        """
        if self._version == 2:
            self._knobs.carry_out(plan_v2(self.held(), wanted))
        else:
            self._hold_v1(wanted)
        now = self.held()
        if now != wanted:
            raise CgroupError(
                str(self._knobs.root), f"holds {now} after {wanted} was written; does somebody else write it?"
            )

    def own(self, group: PurePosixPath, now: Bandwidth) -> Bandwidth:
        """Of a group below that holds ``now``: that, or what it held before it was cut to fit."""
        known = self._originals.clipped.get(group)
        return known.own if known is not None and now in known.ours else now

    def hold_own(self, group: PurePosixPath, wanted: Bandwidth) -> None:
        """Make this a lower group's own: it gets that, or as much of it as the best-effort group has just now.

        Raises:
            CgroupError: a write was refused.

        """
        if self._version == 2:
            self._knobs.write(Write(group, CPU_MAX_FILE, cpu_max_text(wanted)))
            return
        held = dict(self._held_by([*group.parents, *self._knobs.groups(group)]))
        self._settle_v1(plan_own_v1(held, group, wanted, self._originals.clipped))

    def _hold_v1(self, wanted: Bandwidth) -> None:
        """Try with the groups known to be cut; look at all groups below only where the kernel refuses.

        Pods under the best-effort group seldom have a quota of their own, and asking the kernel is
        cheaper than reading some hundred files at each change.
        """
        known = [BEST_EFFORT_ITSELF, *self._originals.clipped]
        try:
            self._attempt_v1(known, wanted)
        except CgroupError as refusal:
            if not (isinstance(refusal.__cause__, OSError) and refusal.__cause__.errno == errno.EINVAL):
                raise
            self._attempt_v1(self._knobs.groups(), wanted)

    def _attempt_v1(self, groups: Iterable[PurePosixPath], wanted: Bandwidth) -> None:
        held = dict(self._held_by(groups))
        self._settle_v1(plan_v1(held, wanted, self._originals.clipped))

    def _settle_v1(self, plan: Plan) -> None:
        self._originals.keep(plan.before)
        self._knobs.carry_out(plan.writes)
        self._originals.keep(plan.after)

    def _held_by(self, groups: Iterable[PurePosixPath]) -> Iterator[tuple[PurePosixPath, Bandwidth]]:
        for group in groups:
            try:
                yield group, self._read(group)
            except CgroupError as error:
                if group == BEST_EFFORT_ITSELF or not is_gone(error):
                    raise

    def _read(self, group: PurePosixPath) -> Bandwidth:
        if self._version == 2:
            return Bandwidth(*self._knobs.read(group, CPU_MAX_FILE, parse.cpu_max))
        quota_us = self._knobs.read(group, QUOTA_FILE, parse.quota_us)
        return Bandwidth(quota_us, self._knobs.read(group, PERIOD_FILE, parse.period_us))
