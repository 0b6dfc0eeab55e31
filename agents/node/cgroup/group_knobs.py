"""Reads and sets knobs of the groups of pods, containers and tiers, each through a door as narrow as its group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path, PurePosixPath

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.apply import Holder
from slacktide.agents.node.cgroup.containers import container_groups
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, BURSTABLE, GUARANTEED, Hierarchy
from slacktide.agents.node.cgroup.knob_files import FILES, QUOTA_FILES, KnobFile, as_told
from slacktide.agents.node.cgroup.knobs import Knobs, is_gone
from slacktide.agents.node.cgroup.permitted import Place, refusal
from slacktide.agents.node.cgroup.plan import (
    BEST_EFFORT_ITSELF,
    CPU_MAX_FILE,
    PERIOD_FILE,
    QUOTA_FILE,
    QUOTA_US_MIN,
    Bandwidth,
    Write,
    cpu_max_text,
)
from slacktide.agents.node.kernel import Held
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import TIERS, KnobKey, container_of, uid_of
from slacktide.schemas.sample import Knob
from slacktide.streams.decisions.cpu_suppress_cfs_quota import PERIOD_US

_TIER_OF = {TIERS["Guaranteed"]: GUARANTEED, TIERS["Burstable"]: BURSTABLE, TIERS["BestEffort"]: BEST_EFFORT}
_ITSELF = BEST_EFFORT_ITSELF
_SHARES_OF_BEST_EFFORT = 2


class GroupKnobs:
    """Knobs of one node's groups.

    Args:
        hierarchy: where the groups are.
        holder: of the best-effort group; quotas below it have to fit into its own.
        pod_group: a pod's group by its uid, relative to each root; None: it has none.

    """

    def __init__(self, hierarchy: Hierarchy, holder: Holder, pod_group: Callable[[str], PurePosixPath | None]) -> None:
        self.pods: Mapping[str, Pod] = {}
        """By uid; of no others is any knob read or set."""
        self._hierarchy = hierarchy
        self._holder = holder
        self._pod_group = pod_group
        self._files = FILES[hierarchy.version]

    def held(self, keys: Iterable[KnobKey]) -> Held:
        """What knobs hold now; groups that are not there are left out."""
        values: dict[KnobKey, int | None] = {}
        lacking: dict[KnobKey, str] = {}
        for group, wanted in groupby(keys, key=lambda key: key.group):
            place = self._place(group)
            if place is None:
                continue
            for key in wanted:
                try:
                    values[key] = self._read(place, key.knob)
                except CgroupError as error:
                    if self._there(place):
                        lacking[key] = self._why(place, key.knob, error)
        return Held(values=values, lacking=lacking)

    def put(self, key: KnobKey, value: int | None) -> None:
        """Make a knob hold this.

        Raises:
            CgroupError: its group is not there, the kernel refused, or it must not be set to this.

        """
        place = self._place(key.group)
        if place is None:
            raise CgroupError(key.group, "no such group here")
        why = refusal(place, key.knob, value)
        if why:
            raise CgroupError(f"{key.group} {key.knob}", f"never written: {why}")
        if key.knob == "cfs_quota_us":
            self._put_quota(place, value)
            return
        file = self._file(key.knob)
        text = file.text(value)
        self._door(place, file.controller, file.name).write(Write(place.inside, file.name, text))
        if key.knob == "cpu_idle" and value == 0:  # the kernel gives back its own default weight, not the kubelet's
            self.put(KnobKey(key.group, "cpu_shares"), _SHARES_OF_BEST_EFFORT)

    def as_told(self, knob: Knob, value: int | None) -> int | None:
        """What ``held`` says of a knob once this was put."""
        return as_told(knob, value, self._hierarchy.version)

    def _place(self, group: str) -> Place | None:
        """Where it is, if it is one of the node's tiers, or of a pod that is known; None: it is not there."""
        if group in _TIER_OF:
            tier = _TIER_OF[group]
            return Place(tier=tier, base=self._hierarchy.tier(tier), inside=_ITSELF)
        pod = self.pods.get(uid_of(group))
        base = None if pod is None else self._pod_group(pod.uid)
        if pod is None or base is None:
            return None
        tier = next((one for one in (BEST_EFFORT, BURSTABLE) if base.parent == self._hierarchy.tier(one)), GUARANTEED)
        name = container_of(group)
        if not name:
            return Place(tier=tier, base=base, inside=_ITSELF, pod=pod)
        container = next((one for one in pod.containers if one.name == name), None)
        if container is None:
            return None
        only = Pod(uid=pod.uid, namespace=pod.namespace, name=pod.name, containers=[container])
        inside = container_groups(self._hierarchy, self._hierarchy.cpu, base, only).get(name)
        if inside is None:
            return None
        return Place(tier=tier, base=base, inside=inside.relative_to(base), pod=pod, container=container)

    def _read(self, place: Place, knob: Knob) -> int | None:
        if knob == "cfs_quota_us":
            held = self._bandwidth(place)
            return None if held.quota_us is None else held.quota_us * PERIOD_US // held.period_us
        file = self._file(knob)
        return self._door(place, file.controller).read(place.inside, file.name, file.read)

    def _bandwidth(self, place: Place) -> Bandwidth:
        """Of a best-effort group its own, also while it is cut to fit."""
        if place.tier == BEST_EFFORT:
            return self._holder.own(place.path.relative_to(self._hierarchy.tier(BEST_EFFORT)))
        door = self._door(place, "cpu")
        if self._hierarchy.version == 2:
            return Bandwidth(*door.read(place.inside, CPU_MAX_FILE, parse.cpu_max))
        quota_us = door.read(place.inside, QUOTA_FILE, parse.quota_us)
        return Bandwidth(quota_us, door.read(place.inside, PERIOD_FILE, parse.period_us))

    def _put_quota(self, place: Place, quota_us: int | None) -> None:
        period_us = self._bandwidth(place).period_us
        wanted = Bandwidth(
            None if quota_us is None else max(QUOTA_US_MIN, quota_us * period_us // PERIOD_US), period_us
        )
        if place.tier == BEST_EFFORT:
            self._holder.hold_own(place.path.relative_to(self._hierarchy.tier(BEST_EFFORT)), wanted)
            return
        file = QUOTA_FILES[self._hierarchy.version]
        text = cpu_max_text(wanted) if file == CPU_MAX_FILE else str(wanted.quota_us)
        self._door(place, "cpu", file).write(Write(place.inside, file, text))

    def _file(self, knob: Knob) -> KnobFile:
        file = self._files.get(knob)
        if file is None:
            raise CgroupError(knob, f"cgroup v{self._hierarchy.version} has none")
        return file

    def _root(self, controller: str) -> Path:
        root = self._hierarchy.cpu if controller == "cpu" else self._hierarchy.memory
        if root is None:
            raise CgroupError(controller, f"the controller is not mounted under {self._hierarchy.mount}")
        return root

    def _door(self, place: Place, controller: str, *writable: str) -> Knobs:
        """To the pod's or the tier's group and what lies below, for these files only."""
        return Knobs(self._hierarchy, self._root(controller) / place.base, frozenset(writable))

    def _there(self, place: Place) -> bool:
        return (self._hierarchy.cpu / place.path).is_dir()

    def _why(self, place: Place, knob: Knob, error: CgroupError) -> str:
        """Why the kernel has no such knob here."""
        if not is_gone(error) or self._hierarchy.version == 1:
            return error.why if not is_gone(error) else f"no file {Path(error.path).name}"
        file, controller = Path(error.path).name, "cpu" if knob.startswith(("cpu", "cfs")) else "memory"
        try:
            handed_on = controller in (self._root(controller) / place.path / "cgroup.controllers").read_text().split()
        except OSError:
            handed_on = True
        return f"no file {file}" + ("" if handed_on else f": the {controller} controller is not handed on to the group")
