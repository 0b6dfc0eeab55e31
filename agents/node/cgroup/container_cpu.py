"""What containers may use of the CPU, how much they did, and how often they were stopped at it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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
from slacktide.agents.node.knobs.container_cpu import UNLIMITED_US, ContainerCpu, ContainersLook
from slacktide.schemas.inventory import Pod

_NORMAL_PERIOD_US = 100_000
_ANEW_LOOKS = 10
"""What hardly ever changes alone is read at every so many looks: a period, and what a calm container's pod holds."""


class _Quota:
    """The quota of one group, per 100 ms."""

    def __init__(self, hierarchy: Hierarchy, group: PurePosixPath, room: Room) -> None:
        def file(name: str) -> KeptFile:
            return kept(hierarchy, hierarchy.cpu, str(group), name, room)

        unified = hierarchy.version == 2
        self._quota = file(CPU_MAX_FILE if unified else QUOTA_FILE)
        self._period = None if unified else file(PERIOD_FILE)
        self._text = b""
        self._held_us: int | None = None
        self._spared = 0

    def read_us(self, notes: Notes) -> int | None:
        """None: it could not be read."""
        return notes.figure(self._quota, lambda text: self._told_us(text, notes))

    def held_us(self, notes: Notes) -> int | None:
        """As it was read some looks ago, or now."""
        return self._held_us if self._may_spare() else self.read_us(notes)

    def _may_spare(self) -> bool:
        self._spared = (self._spared + 1) % _ANEW_LOOKS
        return self._held_us is not None and self._spared != 0

    def _told_us(self, text: bytes, notes: Notes) -> int | None:
        if text != self._text or not self._may_spare():
            self._text, self._held_us = text, None
            self._held_us = self._parsed_us(text, notes)
        return self._held_us

    def _parsed_us(self, text: bytes, notes: Notes) -> int | None:
        if self._period is None:
            quota_us, period_us = parse.cpu_max(text)
        else:
            quota_us, period_us = parse.quota_us(text), notes.figure(self._period, parse.period_us) or 0
        if quota_us is None:
            return UNLIMITED_US if period_us else None
        return quota_us * _NORMAL_PERIOD_US // period_us if period_us else None

    def close(self) -> None:
        for one in (self._quota, self._period):
            if one is not None:
                one.close()


class _Container:
    """The files of one container."""

    def __init__(self, hierarchy: Hierarchy, group: PurePosixPath, room: Room) -> None:
        self.folder = f"{hierarchy.cpu}/{group}"
        self._quota = _Quota(hierarchy, group, room)
        self._time = CpuTime(hierarchy, str(group), room)
        self._before: tuple[int | None, int | None] = (None, None)
        self.calm = False
        """Neither throttled nor given another quota between the last two looks."""

    def read(self, notes: Notes) -> tuple[int, PodCounters] | None:
        """Quota and counters; None: it ended, or its quota could not be read."""
        noted = len(notes.missing)
        quota_us, counters = self._quota.read_us(notes), self._time.read(notes)
        if len(notes.missing) > noted and not self.there:
            del notes.missing[noted:]
        now = (quota_us, counters.throttled_periods)
        self._before, self.calm = now, now == self._before
        return None if quota_us is None else (quota_us, counters)

    @property
    def there(self) -> bool:
        return os.path.isdir(self.folder)  # noqa: PTH112 - the path is a text

    def close(self) -> None:
        self._quota.close()
        self._time.close()


class _Key(NamedTuple):
    """Whose files these are: a container that starts anew has another id."""

    pod: str
    name: str
    id: str


class ContainersReader:
    """The containers of the pods that it is asked for; of others it keeps no file."""

    def __init__(self, hierarchy: Hierarchy, room: Room, pod_group: Callable[[str], PurePosixPath | None]) -> None:
        self._hierarchy = hierarchy
        self._room = room
        self._pod_group = pod_group
        self._containers: dict[_Key, _Container] = {}
        self._pods: dict[str, _Quota] = {}
        self._before: Counters | None = None

    def read(self, pods: Sequence[Pod], mono_ns: int) -> ContainersLook:
        """Read those that have a limit, and a group."""
        notes = Notes()
        self._keep(pods)
        figures = {key: figure for key, one in self._containers.items() if (figure := one.read(notes)) is not None}
        stirred = {key.pod for key, one in self._containers.items() if not one.calm}
        pod_quotas_us = {
            uid: quota.read_us(notes) if uid in stirred else quota.held_us(notes) for uid, quota in self._pods.items()
        }
        now = Counters(mono_ns=mono_ns, cpu_ns=None, pods={"/".join(key): one for key, (_, one) in figures.items()})
        rate = rates(self._before, now)
        self._before = now
        containers = []
        for key, (quota_us, _) in figures.items():
            pod_quota_us, used = pod_quotas_us[key.pod], rate.pods["/".join(key)]
            if pod_quota_us is not None:
                containers.append(
                    ContainerCpu(
                        pod=key.pod,
                        container=key.name,
                        quota_us=quota_us,
                        pod_quota_us=pod_quota_us,
                        used_milli=used.cpu_milli,
                        periods=used.periods,
                        throttled_periods=used.throttled_periods,
                    )
                )
        for key in [key for key, one in self._containers.items() if key not in figures and not one.there]:
            self._containers.pop(key).close()
        return ContainersLook(containers=containers, missing=notes.missing)

    def close(self) -> None:
        """Let go of all files."""
        self._keep(())

    def _keep(self, pods: Sequence[Pod]) -> None:
        """Keep files of these pods' limited containers, and of no others; look for those that have none yet."""
        there: dict[_Key, _Container] = {}
        for pod in pods:
            keys = [_Key(pod.uid, one.name, one.id) for one in pod.containers if one.limits.cpu_milli and one.id]
            known = {key: self._containers.pop(key) for key in keys if key in self._containers}
            there |= known
            if len(known) < len(keys):
                there |= self._found(pod, [key for key in keys if key not in known])
        for gone in self._containers.values():
            gone.close()
        self._containers = there
        uids = {key.pod for key in there}
        for uid in self._pods.keys() - uids:
            self._pods.pop(uid).close()

    def _found(self, pod: Pod, keys: Sequence[_Key]) -> dict[_Key, _Container]:
        """Those of these containers that have a group now."""
        group = self._pod_group(pod.uid)
        if group is None:
            return {}
        names = {key.name for key in keys}
        wanted = msgspec.structs.replace(pod, containers=[one for one in pod.containers if one.name in names])
        groups = container_groups(self._hierarchy, self._hierarchy.cpu, group, wanted)
        if groups and pod.uid not in self._pods:
            self._pods[pod.uid] = _Quota(self._hierarchy, group, self._room)
        return {key: _Container(self._hierarchy, groups[key.name], self._room) for key in keys if key.name in groups}
