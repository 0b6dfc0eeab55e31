"""Reads and sets knobs of pods, containers and tiers. Each write is confined to the cgroup that it is meant for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.apply import Holder
from slacktide.agents.node.cgroup.container_cpu import container_groups
from slacktide.agents.node.cgroup.files import read_once
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, BURSTABLE, GUARANTEED, Hierarchy
from slacktide.agents.node.cgroup.knob_files import FILES, KnobFile, as_reads_back
from slacktide.agents.node.cgroup.knobs import Knobs
from slacktide.agents.node.cgroup.permitted import Place, refusal
from slacktide.agents.node.cgroup.plan import (
    BEST_EFFORT_ITSELF,
    CPU_MAX_FILE,
    PERIOD_FILE,
    QUOTA_FILE,
    Bandwidth,
    Write,
    cpu_max_text,
)
from slacktide.agents.node.cgroup.read import why_of
from slacktide.agents.node.kernel import Held
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import TIERS, KnobKey, container_of, uid_of
from slacktide.schemas.knob_table import KNOBS, QUOTA_US_MIN, SHARES_MIN, Knob
from slacktide.streams.decisions.suppress.cpu_suppress_quota import PERIOD_US

_TIER_OF = {TIERS["Guaranteed"]: GUARANTEED, TIERS["Burstable"]: BURSTABLE, TIERS["BestEffort"]: BEST_EFFORT}
_ITSELF = BEST_EFFORT_ITSELF


class GroupKnobs:
    """Knobs of one node's cgroups."""

    def __init__(self, hierarchy: Hierarchy, holder: Holder, pod_group: Callable[[str], PurePosixPath | None]) -> None:
        self._known: Mapping[str, Pod] = {}
        self._found: dict[str, Place] = {}
        self._hierarchy = hierarchy
        self._holder = holder
        self._pod_group = pod_group
        self._files = FILES[hierarchy.version]

    def know(self, pods: Iterable[Pod]) -> None:
        """Set the known pods. Knobs of other pods are neither read nor set."""
        self._known = {pod.uid: pod for pod in pods}
        self._found.clear()

    def held(self, keys: Iterable[KnobKey]) -> Held:
        """Read knobs. Missing cgroups are left out."""
        values: dict[KnobKey, int | None] = {}
        lacking: dict[KnobKey, str] = {}
        for key in keys:
            place = self._place(key.group)
            if place is None:
                continue
            try:
                values[key] = self._read(place, key.knob)
            except (OSError, ValueError, CgroupError) as error:
                if os.path.isdir(f"{self._hierarchy.cpu}/{place.text}"):  # noqa: PTH112 - the path is a text
                    lacking[key] = self._why(place, key.knob, error)
                else:
                    self._found.pop(key.group, None)
        return Held(values=values, lacking=lacking)

    def put(self, key: KnobKey, value: int | None) -> None:
        """Implement ``Kernel.put``."""
        place = self._place(key.group)
        if place is None:
            raise CgroupError(key.group, "no such cgroup")
        why = refusal(place, key.knob, value)
        if why:
            raise CgroupError(f"{key.group} {key.knob}", f"never written: {why}")
        if key.knob == "cfs_quota_us":
            self._put_quota(place, value)
            return
        file = self._file(key.knob)
        text = file.text(value)
        self._door(place, file.controller, file.name).write(Write(place.inside, file.name, text))
        if key.knob == "cpu_idle" and value == 0:  # the kernel restores its own default weight, not the kubelet's
            self.put(KnobKey(key.group, "cpu_shares"), SHARES_MIN)

    def as_reads_back(self, knob: Knob, value: int | None) -> int | None:
        """Return the value that ``held`` returns after ``put``."""
        return as_reads_back(knob, value, self._hierarchy.version)

    def _place(self, group: str) -> Place | None:
        """Return the cgroup's place, cached while it exists, since finding it costs more than reading its knobs."""
        place = self._found.get(group)
        if place is None:
            place = self._look(group)
            if place is not None:
                self._found[group] = place
        return place

    def _look(self, group: str) -> Place | None:
        """Find the cgroup of a tier or of a known pod; None: it does not exist."""
        if group in _TIER_OF:
            tier = _TIER_OF[group]
            return Place(tier=tier, base=self._hierarchy.tier(tier), inside=_ITSELF) if self._by_kubelet() else None
        pod = self._known.get(uid_of(group))
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

    def _by_kubelet(self) -> bool:
        """Return whether a kubelet made the tiers. Otherwise the best-effort cgroup's knobs belong to systemd."""
        return (self._hierarchy.cpu / self._hierarchy.tier(BURSTABLE)).is_dir()

    def _read(self, place: Place, knob: Knob) -> int | None:
        if knob == "cfs_quota_us":
            held = self._own(place)
            return None if held.quota_us is None else held.quota_us * PERIOD_US // held.period_us
        file = self._file(knob)
        return file.read(self._text(place, file.controller, file.name))

    def _own(self, place: Place) -> Bandwidth:
        """Return a cgroup's own bandwidth, also while it is cut to fit."""
        if self._hierarchy.version == 2:
            held = Bandwidth(*parse.cpu_max(self._text(place, "cpu", CPU_MAX_FILE)))
        else:
            quota_us = parse.quota_us(self._text(place, "cpu", QUOTA_FILE))
            held = Bandwidth(quota_us, parse.period_us(self._text(place, "cpu", PERIOD_FILE)))
        return held if place.tier != BEST_EFFORT else self._holder.own(self._below(place), held)

    def _text(self, place: Place, controller: str, name: str) -> bytes:
        return read_once(f"{self._root(controller)}/{place.text}/{name}")

    def _below(self, place: Place) -> PurePosixPath:
        return place.path.relative_to(self._hierarchy.tier(BEST_EFFORT))

    def _put_quota(self, place: Place, quota_us: int | None) -> None:
        try:
            period_us = self._own(place).period_us
        except (OSError, ValueError) as error:
            raise CgroupError(f"{place.text} cfs_quota_us", self._why(place, "cfs_quota_us", error)) from error
        wanted = Bandwidth(
            None if quota_us is None else max(QUOTA_US_MIN, quota_us * period_us // PERIOD_US), period_us
        )
        if place.tier == BEST_EFFORT:
            self._holder.hold_own(self._below(place), wanted)
            return
        file = KNOBS["cfs_quota_us"].files(self._hierarchy.version)[0]
        text = cpu_max_text(wanted) if file == CPU_MAX_FILE else str(wanted.quota_us)
        self._door(place, "cpu", file).write(Write(place.inside, file, text))

    def _file(self, knob: Knob) -> KnobFile:
        file = self._files.get(knob)
        if file is None:
            raise CgroupError(knob, f"cgroup v{self._hierarchy.version} does not have it")
        return file

    def _root(self, controller: str) -> Path:
        root = self._hierarchy.cpu if controller == "cpu" else self._hierarchy.memory
        if root is None:
            raise CgroupError(controller, f"the controller is not mounted under {self._hierarchy.mount}")
        return root

    def _door(self, place: Place, controller: str, *writable: str) -> Knobs:
        return Knobs(self._hierarchy, self._root(controller) / place.base, frozenset(writable))

    def _why(self, place: Place, knob: Knob, error: OSError | ValueError | CgroupError) -> str:
        if isinstance(error, CgroupError):
            return error.why
        if not isinstance(error, FileNotFoundError):
            return why_of(error)
        controller = KNOBS[knob].controller
        why = f"no file {Path(error.filename).name}"
        if self._hierarchy.version == 1:
            return why
        try:
            handed_on = controller.encode() in self._text(place, controller, "cgroup.controllers").split()
        except OSError:
            return why
        return why if handed_on else f"{why}: the {controller} controller is not delegated to the cgroup"
