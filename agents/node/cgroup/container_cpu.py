"""What containers may use of the CPU, how much they did, and how often they were stopped at it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.containers import container_groups
from slacktide.agents.node.cgroup.files import KeptFile, Room
from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.agents.node.cgroup.plan import CPU_MAX_FILE, PERIOD_FILE, QUOTA_FILE
from slacktide.agents.node.cgroup.rates import Counters, PodCounters, rates
from slacktide.agents.node.cgroup.read import CpuTime, Notes, kept
from slacktide.agents.node.container_cpu import UNLIMITED_US, ContainerCpu, ContainersLook
from slacktide.schemas.inventory import Pod

_NORMAL_PERIOD_US = 100_000


class _Quota:
    """The quota of one group, per 100 ms."""

    def __init__(self, hierarchy: Hierarchy, group: PurePosixPath, room: Room) -> None:
        def file(name: str) -> KeptFile:
            return kept(hierarchy, hierarchy.cpu, str(group), name, room)

        unified = hierarchy.version == 2
        self._quota = file(CPU_MAX_FILE if unified else QUOTA_FILE)
        self._period = None if unified else file(PERIOD_FILE)

    def read_us(self, notes: Notes) -> int | None:
        """None: it could not be read."""
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
    """The files of one container; a pod's quota is read with the first of its containers."""

    def __init__(self, hierarchy: Hierarchy, group: PurePosixPath, room: Room) -> None:
        self.folder = f"{hierarchy.cpu}/{group}"
        self._quota = _Quota(hierarchy, group, room)
        self._time = CpuTime(hierarchy, str(group), room)

    def read(self, notes: Notes) -> tuple[int, PodCounters] | None:
        """Quota and counters; None: it ended, or its quota could not be read."""
        noted = len(notes.missing)
        quota_us, counters = self._quota.read_us(notes), self._time.read(notes)
        if len(notes.missing) > noted and not os.path.isdir(self.folder):  # noqa: PTH112 - the path is a text
            del notes.missing[noted:]
            return None
        return None if quota_us is None else (quota_us, counters)

    def close(self) -> None:
        self._quota.close()
        self._time.close()


class _Place(NamedTuple):
    """Where a container is."""

    group: PurePosixPath
    pod: str
    name: str


class ContainersReader:
    """The containers of the pods that it is asked for; of others it keeps no file."""

    def __init__(self, hierarchy: Hierarchy, room: Room, pod_group: Callable[[str], PurePosixPath | None]) -> None:
        self._hierarchy = hierarchy
        self._room = room
        self._pod_group = pod_group
        self._containers: dict[PurePosixPath, _Container] = {}
        self._pods: dict[PurePosixPath, _Quota] = {}
        self._before: Counters | None = None

    def read(self, pods: Sequence[Pod], mono_ns: int) -> ContainersLook:
        """Read those that have a limit, and a group."""
        notes = Notes()
        places = list(self._places(pods))
        self._keep(places)
        pod_quotas_us = {group: quota.read_us(notes) for group, quota in self._pods.items()}
        figures = {place: self._containers[place.group].read(notes) for place in places}
        known = {place: figure for place, figure in figures.items() if figure is not None}
        now = Counters(mono_ns=mono_ns, cpu_ns=None, pods={str(place.group): one[1] for place, one in known.items()})
        rate = rates(self._before, now)
        self._before = now
        containers = []
        for place, (quota_us, _) in known.items():
            pod_quota_us, used = pod_quotas_us[place.group.parent], rate.pods[str(place.group)]
            if pod_quota_us is not None:
                containers.append(
                    ContainerCpu(
                        pod=place.pod,
                        container=place.name,
                        quota_us=quota_us,
                        pod_quota_us=pod_quota_us,
                        used_milli=used.cpu_milli,
                        periods=used.periods,
                        throttled_periods=used.throttled_periods,
                    )
                )
        return ContainersLook(containers=containers, missing=notes.missing)

    def close(self) -> None:
        """Let go of all files."""
        self._keep(())

    def _places(self, pods: Sequence[Pod]) -> Iterator[_Place]:
        for pod in pods:
            group = self._pod_group(pod.uid)
            limited = [one for one in pod.containers if one.limits.cpu_milli]
            if group is not None and limited:
                found = msgspec.structs.replace(pod, containers=limited)
                for name, place in container_groups(self._hierarchy, self._hierarchy.cpu, group, found).items():
                    yield _Place(place, pod.uid, name)

    def _keep(self, places: Sequence[_Place]) -> None:
        """Keep files of these groups and of their pods', and of no others."""
        containers = {place.group for place in places}
        pods = {group.parent for group in containers}
        for group in self._containers.keys() - containers:
            self._containers.pop(group).close()
        for group in self._pods.keys() - pods:
            self._pods.pop(group).close()
        for group in containers - self._containers.keys():
            self._containers[group] = _Container(self._hierarchy, group, self._room)
        for group in pods - self._pods.keys():
            self._pods[group] = _Quota(self._hierarchy, group, self._room)
