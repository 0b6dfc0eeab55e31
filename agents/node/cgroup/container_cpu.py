"""CPU quota, CPU use and throttling of containers, whose cgroups are found by the ids in the pod list."""

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.files import KeptFile, Room
from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.agents.node.cgroup.parse import Counters, PodCounters, rates
from slacktide.agents.node.cgroup.plan import CPU_MAX_FILE, PERIOD_FILE, QUOTA_FILE
from slacktide.agents.node.cgroup.read import CpuTime, Notes, kept
from slacktide.agents.node.interfaces import UNLIMITED_US, ContainerCpu, ContainersLook
from slacktide.schemas.inventory import Pod

_BY_CGROUPFS = ("{}", "crio-{}")
_BY_SYSTEMD = ("cri-containerd-{}.scope", "crio-{}.scope", "docker-{}.scope")


def names_of(container_id: str, *, systemd: bool) -> tuple[str, ...]:
    """Return names that containerd, CRI-O and Docker may give a container's cgroup. Only whole names match. Pure."""
    return tuple(name.format(container_id) for name in (_BY_SYSTEMD if systemd else _BY_CGROUPFS))


def container_groups(hierarchy: Hierarchy, root: Path, pod_group: PurePosixPath, pod: Pod) -> dict[str, PurePosixPath]:
    """Return existing cgroups of a pod's containers, by container name. Containers without an id are not found."""
    found: dict[str, PurePosixPath] = {}
    for container in pod.containers:
        names = names_of(container.id, systemd=hierarchy.by_systemd) if container.id else ()
        group = next((pod_group / name for name in names if (root / pod_group / name).is_dir()), None)
        if group is not None:
            found[container.name] = group
    return found


_NORMAL_PERIOD_US = 100_000
_CALM_LOOKS = 2
"""A pod is skipped after this many calm looks in a row: neither throttled nor above its limits."""
_SPARED_LOOKS = 9
"""For at most this many looks in a row only the throttling of a calm pod is read."""


class _Quota:
    def __init__(self, hierarchy: Hierarchy, group: PurePosixPath, room: Room) -> None:
        def file(name: str) -> KeptFile:
            return kept(hierarchy, hierarchy.cpu, str(group), name, room)

        unified = hierarchy.version == 2
        self._quota = file(CPU_MAX_FILE if unified else QUOTA_FILE)
        self._period = None if unified else file(PERIOD_FILE)

    def read_us(self, notes: Notes) -> int | None:
        """Return the quota; None: it could not be read."""
        if self._period is None:
            held = notes.figure(self._quota, parse.cpu_max)
        else:
            quota = notes.figure(self._quota, lambda text: (parse.quota_us(text),))
            period_us = notes.figure(self._period, parse.period_us)
            held = None if quota is None or period_us is None else (*quota, period_us)
        if held is None:
            return None
        quota_us, period_us = held
        return UNLIMITED_US if quota_us is None else quota_us * _NORMAL_PERIOD_US // period_us

    def close(self) -> None:
        for one in (self._quota, self._period):
            if one is not None:
                one.close()


class _Container:
    def __init__(self, hierarchy: Hierarchy, group: PurePosixPath, room: Room) -> None:
        self.folder = f"{hierarchy.cpu}/{group}"
        self._quota = _Quota(hierarchy, group, room)
        self._time = CpuTime(hierarchy, str(group), room)

    def read(self, notes: Notes) -> tuple[int, PodCounters] | None:
        """Return the quota and counters; None: the container ended, or its quota could not be read."""
        noted = len(notes.missing)
        quota_us, counters = self._quota.read_us(notes), self._time.read(notes)
        if len(notes.missing) > noted and not self.there:
            del notes.missing[noted:]
        return None if quota_us is None else (quota_us, counters)

    def throttled(self) -> int | None:
        """Return the throttled periods so far; None: unknown."""
        return self._time.throttled_periods(Notes())

    @property
    def there(self) -> bool:
        return os.path.isdir(self.folder)  # noqa: PTH112 - the path is a text

    def close(self) -> None:
        self._quota.close()
        self._time.close()


class _Key(NamedTuple):
    """Identity of a container. A restarted container has another id."""

    name: str
    id: str


class _Pod:
    def __init__(self, hierarchy: Hierarchy, group: PurePosixPath, room: Room) -> None:
        self._hierarchy = hierarchy
        self._group = group
        self._room = room
        self._quota = _Quota(hierarchy, group, room)
        self._containers: dict[_Key, _Container] = {}
        self._limits_us: dict[_Key, int] = {}
        self._kept: Pod | None = None
        self._before: Counters | None = None
        self._calm = self._spared = 0

    def keep(self, pod: Pod) -> None:
        """Open the files of these containers, and close all others."""
        if pod is not self._kept:  # the same object until the pod list changes
            self._kept = pod
            self._limits_us = {
                _Key(one.name, one.id): one.limits.cpu_milli * _NORMAL_PERIOD_US // 1000
                for one in pod.containers
                if one.limits.cpu_milli and one.id
            }
            for key in self._containers.keys() - self._limits_us:
                self._containers.pop(key).close()
        lacking = [key for key in self._limits_us if key not in self._containers]
        if not lacking:
            return
        names = {key.name for key in lacking}
        wanted = msgspec.structs.replace(pod, containers=[one for one in pod.containers if one.name in names])
        groups = container_groups(self._hierarchy, self._hierarchy.cpu, self._group, wanted)
        for key in lacking:
            if key.name in groups:
                self._containers[key] = _Container(self._hierarchy, groups[key.name], self._room)
                self._calm = 0

    def may_be_spared(self, *, still: bool) -> bool:
        """Return whether the pod is still calm. Called once per look. ``still``: the pod used no CPU."""
        if self._calm < _CALM_LOOKS or self._spared >= _SPARED_LOOKS or self._before is None:
            return False
        known = self._before.pods
        self._spared += 1
        return still or all(
            (name := "/".join(key)) in known and one.throttled() == known[name].throttled_periods
            for key, one in self._containers.items()
        )

    def read(self, uid: str, mono_ns: int, notes: Notes) -> list[ContainerCpu]:
        self._spared = 0
        figures = {key: figure for key, one in self._containers.items() if (figure := one.read(notes)) is not None}
        for key in [key for key, one in self._containers.items() if key not in figures and not one.there]:
            self._containers.pop(key).close()
        pod_quota_us = self._quota.read_us(notes) if figures else None
        now = Counters(mono_ns=mono_ns, cpu_ns=None, pods={"/".join(key): one for key, (_, one) in figures.items()})
        rate, before, self._before = rates(self._before, now), self._before, now
        was_calm = before is not None and all(
            quota_us <= self._limits_us[key]
            and (name := "/".join(key)) in before.pods
            and before.pods[name].throttled_periods == counters.throttled_periods
            for key, (quota_us, counters) in figures.items()
        )
        self._calm = self._calm + 1 if was_calm else 0
        return [
            ContainerCpu(
                pod=uid,
                container=key.name,
                quota_us=quota_us,
                pod_quota_us=pod_quota_us,
                used_milli=used.cpu_milli,
                periods=used.periods,
                throttled_periods=used.throttled_periods,
            )
            for key, (quota_us, _) in figures.items()
            if pod_quota_us is not None and (used := rate.pods["/".join(key)])
        ]

    def close(self) -> None:
        self._quota.close()
        for one in self._containers.values():
            one.close()


class ContainersReader:
    """Reads the containers of given pods. It keeps no files of other pods open.

    ``pod_group`` returns a pod's cgroup by uid. ``still``: whether a pod has used no CPU for some seconds.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        room: Room,
        pod_group: Callable[[str], PurePosixPath | None],
        still: Callable[[str], bool],
    ) -> None:
        self._hierarchy = hierarchy
        self._room = room
        self._pod_group = pod_group
        self._still = still
        self._pods: dict[str, _Pod] = {}

    def read(self, pods: Sequence[Pod], mono_ns: int, spare: Collection[str] = ()) -> ContainersLook:
        """Read containers with a limit and a cgroup. Skip calm pods among ``spare`` (uids)."""
        notes = Notes()
        wanted = {pod.uid for pod in pods}
        for uid in self._pods.keys() - wanted:
            self._pods.pop(uid).close()
        containers: list[ContainerCpu] = []
        calm: list[str] = []
        for pod in pods:
            one = self._pods.get(pod.uid)
            if one is None:
                group = self._pod_group(pod.uid)
                if group is None:
                    continue
                one = self._pods[pod.uid] = _Pod(self._hierarchy, group, self._room)
            one.keep(pod)
            if pod.uid in spare and one.may_be_spared(still=self._still(pod.uid)):
                calm.append(pod.uid)
            else:
                containers += one.read(pod.uid, mono_ns, notes)
        return ContainersLook(containers=containers, calm=frozenset(calm), missing=notes.missing)

    def close(self) -> None:
        """Close all files."""
        for uid in list(self._pods):
            self._pods.pop(uid).close()
