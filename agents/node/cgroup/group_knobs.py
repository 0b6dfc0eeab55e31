"""Reads and sets knobs of pods, containers and tiers. Each write is checked and confined to its cgroup."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.apply import CpusetHolder, Holder
from slacktide.agents.node.cgroup.container_cpu import container_groups
from slacktide.agents.node.cgroup.files import Knobs, read_once, why_of
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, BURSTABLE, GUARANTEED, Hierarchy
from slacktide.agents.node.cgroup.plan import (
    BEST_EFFORT_ITSELF,
    CPU_MAX_FILE,
    PERIOD_FILE,
    QUOTA_FILE,
    Bandwidth,
    Write,
    cpu_max_text,
    quota_text,
)
from slacktide.agents.node.interfaces import Held
from slacktide.schemas.bounds import KnobValue
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Container, Pod
from slacktide.schemas.knob import TIERS, KnobKey, container_of, uid_of
from slacktide.schemas.knob_table import KNOBS, PAGE_BYTES, QUOTA_US_MIN, SHARES_MAX, SHARES_MIN, GroupKind, Knob
from slacktide.streams.decisions.burst.node_burst import container_quota_us, may_burst, pod_quota_us
from slacktide.streams.decisions.cores.sharing import needs_no_quota
from slacktide.streams.decisions.cpu_list import cpu_list, cpu_ranges
from slacktide.streams.decisions.knobs import runs_last
from slacktide.streams.decisions.suppress.cpu_suppress_quota import PERIOD_US

_NO_LIMIT_BYTES = 1 << 62
"""Without a limit, cgroup v1 shows a number slightly below 2**63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobFile:
    """One control file with one value."""

    controller: str
    name: str
    read: Callable[[bytes], int | None]
    """Raises ValueError for malformed text."""
    text: Callable[[int | None], str]


def weight_of(shares: int) -> int:
    """Return the v2 weight of v1 shares, by the kubelet's formula."""
    return 1 + (min(max(shares, SHARES_MIN), SHARES_MAX) - SHARES_MIN) * 9_999 // 262_142


def shares_of(weight: int) -> int:
    """Return the v1 shares of a v2 weight, by the kubelet's formula. An idle cgroup's weight is 0."""
    return SHARES_MIN + max(0, weight - 1) * 262_142 // 9_999


def as_reads_back(knob: Knob, value: KnobValue | None, version: int) -> KnobValue | None:
    """Return the value that reads back after a write: weights are coarser on v2, memory is rounded to pages."""
    unit = KNOBS[knob].unit
    if value is None or isinstance(value, str):
        return value
    if unit == "shares":
        return min(max(value, SHARES_MIN), SHARES_MAX) if version == 1 else shares_of(weight_of(value))
    return value // PAGE_BYTES * PAGE_BYTES if unit == "bytes" else value


def _limit_v1(text: bytes) -> int | None:
    word = text.strip()
    if word == b"-1":  # a plain file of a simulated node keeps what was written
        return None
    if not word.isdigit() or len(word) > len(str(_NO_LIMIT_BYTES)):
        raise ValueError(f"malformed: {word[:40]!r} is not a number of bytes")
    return None if int(word) >= _NO_LIMIT_BYTES else int(word)


def _file(knob: Knob, version: int) -> KnobFile:
    row = KNOBS[knob]
    read: Callable[[bytes], int | None] = parse.number
    text: Callable[[int | None], str] = str
    if row.unit == "bytes":
        limit_v2 = lambda word: None if word.strip() == b"max" else parse.number(word)  # noqa: E731
        read, unlimited = (_limit_v1, "-1") if version == 1 else (limit_v2, "max")
        text = lambda value: unlimited if value is None else str(value)  # noqa: E731 - the other texts are functions, too
    elif row.unit == "shares" and version == 2:
        read, text = lambda word: shares_of(parse.number(word)), lambda value: str(weight_of(value or 0))
    (name,) = row.files(version)
    return KnobFile(controller=row.controller, name=name, read=read, text=text)


FILES: Mapping[int, Mapping[Knob, KnobFile]] = {
    version: {
        knob: _file(knob, version)
        for knob, row in KNOBS.items()
        if row.files(version) and row.unit not in {"bandwidth", "cpus"}
    }
    for version in (1, 2)
}
"""By cgroup version. A version lacks the knobs not listed, except ``cfs_quota_us`` and ``cpus``."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The location and owner of a cgroup."""

    tier: str
    """As in ``hierarchy.TIERS``, by the cgroup's actual location."""
    base: PurePosixPath
    """The tier's or pod's cgroup, relative to each root."""
    inside: PurePosixPath
    """The container's cgroup relative to the pod's; ``.``: the pod or tier itself."""
    pod: Pod | None = None
    """None: a tier."""
    container: Container | None = None
    """None: a whole pod, or a tier."""

    @cached_property
    def path(self) -> PurePosixPath:
        """The cgroup, relative to each root."""
        return self.base / self.inside

    @cached_property
    def text(self) -> str:
        """The path as text."""
        return str(self.path)


def refusal(place: Place, knob: Knob, value: KnobValue | None) -> str:
    """Return why this value may not be written there; "": it may."""
    row, best_effort = KNOBS[knob], place.tier == BEST_EFFORT
    kind: GroupKind = "best-effort pod" if best_effort else "other pod"
    if place.pod is None:
        kind = "best-effort tier" if best_effort else "other tier"
    if kind not in row.groups:
        return f"{knob} of {_named(place)} is never written"
    if knob == "cpu_idle" and value and place.pod is not None and not runs_last(place.pod):
        return f"{knob} of a pod that runs among best-effort pods, but is not best-effort, is never written"
    if value is None:
        own_cpus = place.pod is not None and needs_no_quota(place.pod)
        removable = row.default is None and (best_effort or own_cpus or knob != "cfs_quota_us")
        return "" if removable else f"{knob} of {_named(place)} is never removed"
    if isinstance(value, str) or row.unit == "cpus":
        of_pod = isinstance(value, str) and row.unit == "cpus" and place.container is None
        return (
            "" if of_pod and cpu_list(str(value)) else f"{knob} {value!r}: accepted: CPUs of a whole pod, such as 0-3,6"
        )
    if not row.low <= value <= row.high:
        return f"{knob} {value}: accepted: {row.low} to {row.high}"
    return "" if best_effort or place.pod is None else _cut(place, place.pod, knob, value)


def _named(place: Place) -> str:
    if place.pod is None:
        return f"the tier {place.tier or 'guaranteed'}"
    return "a best-effort pod" if place.tier == BEST_EFFORT else "a pod that is not best-effort"


def _cut(place: Place, pod: Pod, knob: Knob, value: int) -> str:
    """Return why this is refused, or "". A latency-sensitive pod never gets less than its spec."""
    container = place.container
    own_us = pod_quota_us(pod) if container is None else container_quota_us(container.limits.cpu_milli)
    given_back = knob == "cfs_quota_us" and value == own_us
    if knob in {"cfs_quota_us", "cfs_burst_us"} and value and not given_back and not may_burst(pod):
        return f"{knob} of a pod that is not latency-sensitive is never raised"
    if knob == "cfs_quota_us":
        if own_us is None:
            return "cfs_quota_us of a cgroup without CPU limit is never written, because it would become a limit"
        return f"cfs_quota_us {value} is below its own limit, {own_us}" if value < own_us else ""
    if knob == "mem_high_bytes":
        requests = pod.requests if place.container is None else place.container.requests
        asked_bytes = requests.mem_bytes or 0
        least_bytes = asked_bytes // PAGE_BYTES * PAGE_BYTES
        return f"mem_high_bytes {value} is below its request, {asked_bytes}" if value < least_bytes else ""
    return ""


_TIER_OF = {TIERS["Guaranteed"]: GUARANTEED, TIERS["Burstable"]: BURSTABLE, TIERS["BestEffort"]: BEST_EFFORT}
_ITSELF = BEST_EFFORT_ITSELF
_cpus_text = lru_cache(maxsize=parse.LISTS_MAX)(cpu_ranges)


class GroupKnobs:
    """Knobs of one node's cgroups."""

    def __init__(self, hierarchy: Hierarchy, holder: Holder, pod_group: Callable[[str], PurePosixPath | None]) -> None:
        self._known: Mapping[str, Pod] = {}
        self._found: dict[str, Place] = {}
        self._hierarchy = hierarchy
        self._holder = holder
        self._pod_group = pod_group
        self._files = FILES[hierarchy.version]
        self._cpusets = None if hierarchy.cpuset is None else CpusetHolder(hierarchy, hierarchy.cpuset, _ITSELF)
        self._allowed: frozenset[int] | None = None
        """The CPUs that pods may run on; None: not read in this pass."""

    def know(self, pods: Iterable[Pod]) -> None:
        """Set the known pods. Knobs of other pods are neither read nor set."""
        self._known = {pod.uid: pod for pod in pods}
        self._found.clear()

    def held(self, keys: Iterable[KnobKey]) -> Held:
        """Read knobs. Missing cgroups are left out."""
        self._allowed = None
        values: dict[KnobKey, KnobValue | None] = {}
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

    def put(self, key: KnobKey, value: KnobValue | None) -> None:
        """Implement ``Kernel.put``."""
        place = self._place(key.group)
        if place is None:
            raise CgroupError(key.group, "no such cgroup")
        why = refusal(place, key.knob, value)
        if why:
            raise CgroupError(f"{key.group} {key.knob}", f"never written: {why}")
        if key.knob == "cpus":
            holder = self._cpuset(place)
            # The kernel refuses to empty the list of a cgroup with processes (ENOSPC).
            holder.hold(holder.allowed() if value is None else parse.cpus(str(value).encode()))
            return
        assert not isinstance(value, str)
        if key.knob == "cfs_quota_us":
            self._put_quota(place, value)
            return
        file = self._file(key.knob)
        text = file.text(value)
        self._door(place, file.controller, file.name).write(Write(place.inside, file.name, text))
        if key.knob == "cpu_idle" and value == 0:  # the kernel restores its own default weight, not the kubelet's
            self.put(KnobKey(key.group, "cpu_shares"), SHARES_MIN)

    def as_reads_back(self, knob: Knob, value: KnobValue | None) -> KnobValue | None:
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
            # Without a kubelet the best-effort cgroup's knobs belong to systemd.
            by_kubelet = (self._hierarchy.cpu / self._hierarchy.tier(BURSTABLE)).is_dir()
            return Place(tier=tier, base=self._hierarchy.tier(tier), inside=_ITSELF) if by_kubelet else None
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

    def _cpuset(self, place: Place) -> CpusetHolder:
        if self._hierarchy.cpuset is None:
            raise self._unmounted()
        return CpusetHolder(self._hierarchy, self._hierarchy.cpuset, place.path)

    def _unmounted(self) -> CgroupError:
        return CgroupError("cpuset", f"the controller is not mounted under {self._hierarchy.mount}")

    def _read(self, place: Place, knob: Knob) -> KnobValue | None:
        if knob == "cpus":
            if self._cpusets is None:
                raise self._unmounted()
            if self._allowed is None:
                self._allowed = self._cpusets.allowed()
            cpus = self._cpusets.held(place.path, self._allowed)
            if cpus is None:
                raise CgroupError("cpuset", "the pod's cgroup has no cpuset controller")
            return None if cpus >= self._allowed else _cpus_text(cpus)
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
        text = cpu_max_text(wanted) if file == CPU_MAX_FILE else quota_text(wanted)
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
