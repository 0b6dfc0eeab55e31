"""Sets the best-effort CPU quota and CPU set: reads the cgroups, writes a plan, reads it back."""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeVar

import msgspec

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.files import Knobs, is_gone, why_of
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, Hierarchy
from slacktide.agents.node.cgroup.plan import (
    BEST_EFFORT_ITSELF,
    CPU_MAX_FILE,
    CPUSET_FILE,
    NO_SHARES,
    PERIOD_FILE,
    QUOTA_FILE,
    Bandwidth,
    Clipped,
    Cpus,
    Plan,
    Shares,
    Write,
    cpu_max_text,
    plan_cpuset_v1,
    plan_cpuset_v2,
    plan_own_v1,
    plan_shares_v2,
    plan_v1,
    plan_v2,
    shares_of,
    total,
)
from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.errors import CgroupError
from slacktide.streams.decisions.cpu_list import cpu_ranges

T = TypeVar("T")
FILE = "cgroup-originals.json"


class Originals:
    """Original quotas for ``plan.plan_v1``, in memory and on disk.

    An unreadable file is renamed to ``.bad`` and reported in ``trouble``. Its cgroups keep their current quota.
    """

    def __init__(self, state_folder: Path) -> None:
        self.path = state_folder / FILE
        self.trouble = ""
        """Why the file was unusable; the reader clears it."""
        self.clipped: dict[PurePosixPath, Clipped] = self._load()

    def keep(self, clipped: Mapping[PurePosixPath, Clipped]) -> None:
        """Replace the stored quotas. They are on disk when this returns.

        Raises:
            CgroupError: the file could not be written. Then no quota may be cut, since it could not be restored.
        """
        if clipped == self.clipped:
            return
        text = msgspec.json.format(msgspec.json.encode({str(path): known for path, known in clipped.items()}))
        part = self.path.with_suffix(".part")
        try:
            with part.open("wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path)
        except OSError as error:
            raise CgroupError(str(self.path), f"cannot store the limits to restore: {error.strerror}") from error
        self.clipped = dict(clipped)

    def _load(self) -> dict[PurePosixPath, Clipped]:
        try:
            entries = msgspec.json.decode(self.path.read_bytes(), type=dict[str, Clipped])
        except FileNotFoundError:
            return {}
        except (OSError, *MALFORMED) as error:
            self.trouble = f"malformed, renamed to {self.path.name}.bad; cgroups with reduced limits keep them: {error}"
            try:
                self.path.replace(self.path.with_name(f"{self.path.name}.bad"))
            except OSError as exc:
                self.trouble += f" ({exc.strerror})"
            return {}
        return {PurePosixPath(path): known for path, known in entries.items()}


def _existing(groups: Iterable[PurePosixPath], read: Callable[[PurePosixPath], T]) -> Iterator[tuple[PurePosixPath, T]]:
    """Read cgroups. Those removed meanwhile are left out."""
    for group in groups:
        try:
            yield group, read(group)
        except CgroupError as error:
            if group == BEST_EFFORT_ITSELF or not is_gone(error):
                raise


class Holder:
    """The best-effort cgroup of a node and the cgroups below it.

    Methods raise CgroupError if a file is missing or malformed, a write is refused, or another value reads back.
    """

    def __init__(self, hierarchy: Hierarchy, originals: Originals) -> None:
        self._version = hierarchy.version
        self._originals = originals
        self._hierarchy = hierarchy
        self._knobs = Knobs(hierarchy, hierarchy.best_effort)
        self._shares: Shares = NO_SHARES
        self._allowance: Bandwidth | None = None
        """The sum of the shares; None: no shares, or those of an earlier run."""
        self.spared: frozenset[str] = frozenset()
        """Uids of pods that the best-effort quota must not limit."""

    def held(self) -> Bandwidth:
        """Return the current limit of best-effort pods, by the best-effort cgroup's quota or by their shares."""
        tier, pods = self._read(BEST_EFFORT_ITSELF), self._divided()
        if tier.quota_us is not None:
            # A quota that also limits spared pods counts as none, so that the limit is decided again.
            return tier if pods is None else Bandwidth(None, tier.period_us)
        shared = [path for path, known in self._originals.clipped.items() if known.share]
        held = dict(self._held_by(shared if pods is None else pods))
        if pods is not None and self._allowance is not None and held == self._shares:
            return self._allowance
        if any(known.share and held.get(path) in known.ours for path, known in self._originals.clipped.items()):
            return Bandwidth(total(held, tier.period_us), tier.period_us)
        return tier

    def hold(self, wanted: Bandwidth) -> None:
        """Limit best-effort pods to ``wanted`` and read it back."""
        pods = self._divided()
        if pods is not None:
            self._divide(wanted, pods)
        elif self._version == 2:
            # Set the common quota first. Then restore the quotas of pods that had shares.
            self._knobs.carry_out(plan_v2(self._read(BEST_EFFORT_ITSELF), wanted))
            if self._originals.clipped:
                held = dict(self._held_by([BEST_EFFORT_ITSELF, *self._originals.clipped]))
                self._settle(plan_shares_v2(held, wanted, NO_SHARES, self._originals.clipped))
        else:
            self._hold_v1(wanted)
        if pods is None:
            self._shares, self._allowance = NO_SHARES, None
        now = self.held()
        if now != wanted:
            raise CgroupError(
                str(self._knobs.root), f"is {now} after {wanted} was written; check whether another process writes it"
            )

    def own(self, group: PurePosixPath, now: Bandwidth) -> Bandwidth:
        """Return the own bandwidth of a cgroup that has ``now``: the value before a cut, else ``now``."""
        known = self._originals.clipped.get(group)
        return known.own if known is not None and now in known.ours else now

    def hold_own(self, group: PurePosixPath, wanted: Bandwidth) -> None:
        """Set the own bandwidth of a cgroup below. It gets at most what the best-effort cgroup has now."""
        known = self._originals.clipped.get(group)
        if self._version == 1:
            held = dict(self._held_by([*group.parents, *self._knobs.groups(group)]))
            self._settle(plan_own_v1(held, group, wanted, self._originals.clipped, self._shares))
        elif known is None:
            self._knobs.write(Write(group, CPU_MAX_FILE, cpu_max_text(wanted)))
        else:  # keep a pod's share: its own quota is saved, and counts at the next ``hold``
            self._originals.keep(self._originals.clipped | {group: Clipped(wanted, known.ours, known.share)})

    def _divided(self) -> list[PurePosixPath] | None:
        """Pods that are limited each by its own quota; None: the best-effort cgroup's quota limits all."""
        if not self.spared:
            return None
        try:
            found = dict(self._hierarchy.pod_groups(BEST_EFFORT))
        except OSError as error:
            raise CgroupError(str(self._knobs.root), why_of(error)) from error
        if not self.spared & found.keys():
            return None
        return [PurePosixPath(group.rpartition("/")[2]) for uid, group in found.items() if uid not in self.spared]

    def _divide(self, wanted: Bandwidth, pods: list[PurePosixPath]) -> None:
        clipped = self._originals.clipped
        held = dict(self._held_by([BEST_EFFORT_ITSELF, *clipped, *pods]))
        own = {path: clipped[path].own if path in clipped else held[path] for path in pods if path in held}
        shares = shares_of(wanted, own)
        tier = Bandwidth(None, held[BEST_EFFORT_ITSELF].period_us)
        if self._version == 2:
            self._settle(plan_shares_v2(held, tier, shares, clipped))
        else:
            below = [group for pod in own for group in self._knobs.groups(pod)]
            held |= dict(self._held_by(below))
            self._settle(plan_v1(held, tier, clipped, shares))
        self._shares = shares or own
        self._allowance = wanted

    def _hold_v1(self, wanted: Bandwidth) -> None:
        """Try with the cgroups known to be cut, which saves hundreds of file reads. If the kernel refuses, read all."""
        known = [BEST_EFFORT_ITSELF, *self._originals.clipped]
        try:
            self._attempt_v1(known, wanted)
        except CgroupError as refusal:
            if not (isinstance(refusal.__cause__, OSError) and refusal.__cause__.errno == errno.EINVAL):
                raise
            self._attempt_v1(self._knobs.groups(), wanted)

    def _attempt_v1(self, groups: Iterable[PurePosixPath], wanted: Bandwidth) -> None:
        held = dict(self._held_by(groups))
        self._settle(plan_v1(held, wanted, self._originals.clipped))

    def _settle(self, plan: Plan) -> None:
        self._originals.keep(plan.before)
        self._knobs.carry_out(plan.writes)
        self._originals.keep(plan.after)

    def _held_by(self, groups: Iterable[PurePosixPath]) -> Iterator[tuple[PurePosixPath, Bandwidth]]:
        return _existing(groups, self._read)

    def _read(self, group: PurePosixPath) -> Bandwidth:
        if self._version == 2:
            return Bandwidth(*self._knobs.read(group, CPU_MAX_FILE, parse.cpu_max))
        quota_us = self._knobs.read(group, QUOTA_FILE, parse.quota_us)
        return Bandwidth(quota_us, self._knobs.read(group, PERIOD_FILE, parse.period_us))


EFFECTIVE_FILE = {1: "cpuset.effective_cpus", 2: "cpuset.cpus.effective"}
_ATTEMPTS = 3


class CpusetHolder:
    """The CPU set of a cgroup, by default the best-effort one, and of the cgroups below it.

    Methods raise CgroupError if CPUs cannot be read, a write is refused, or other CPUs read back.
    """

    def __init__(self, hierarchy: Hierarchy, root: Path, group: PurePosixPath | None = None) -> None:
        self._version = hierarchy.version
        self._pods = root / hierarchy.pods
        self._knobs = Knobs(hierarchy, root / (hierarchy.tier(BEST_EFFORT) if group is None else group))

    def allowed(self) -> Cpus:
        """Return the CPUs that pods may run on; empty if they cannot be read."""
        for file in (EFFECTIVE_FILE[self._version], CPUSET_FILE):
            try:
                return parse.cpus((self._pods / file).read_bytes())
            except (OSError, ValueError):
                continue
        return frozenset()

    def held(self, group: PurePosixPath = BEST_EFFORT_ITSELF, allowed: Cpus | None = None) -> Cpus | None:
        """Return the CPUs of the cgroup or of one below it; None: it has no cpuset controller.

        ``allowed``: of pods, if they were just read.
        """
        try:
            own = self._knobs.read(group, CPUSET_FILE, parse.cpus)
            if self._version == 1:
                return own or self._knobs.read(group, EFFECTIVE_FILE[1], parse.cpus) or None
        except CgroupError as error:
            if is_gone(error):
                return None
            raise
        # v2 accepts any CPU list. CPUs that the parent lacks are ignored; if none is left, all of the parent's count.
        allowed = self.allowed() if allowed is None else allowed
        return own & allowed or allowed or own or None

    def hold(self, wanted: Cpus) -> None:
        """Bind the cgroup to these CPUs and read them back."""
        if self._version == 2:
            self._knobs.carry_out(plan_cpuset_v2(wanted))
        else:
            self._hold_v1(wanted)
        now = self.held() or frozenset()
        if now != wanted:
            raise CgroupError(
                str(self._knobs.root / CPUSET_FILE),
                f"has CPUs {cpu_ranges(now)} after {cpu_ranges(wanted)} was written; check whether another "
                "process writes it, or has these CPUs exclusively (cpuset.cpus.partition)",
            )

    def _hold_v1(self, wanted: Cpus) -> None:
        """Read again if the kernel refuses because of a cgroup below, since one may have been created meanwhile."""
        for attempt in range(_ATTEMPTS):
            try:
                held = _existing(self._knobs.groups(), lambda group: self._knobs.read(group, CPUSET_FILE, parse.cpus))
                self._knobs.carry_out(plan_cpuset_v1(dict(held), wanted))
            except CgroupError as refusal:
                busy = isinstance(refusal.__cause__, OSError) and refusal.__cause__.errno == errno.EBUSY
                if not busy or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return
