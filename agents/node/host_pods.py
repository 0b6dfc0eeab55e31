"""Lists workloads of a host without Kubernetes as pods, by the operator's file, its cgroups, and Docker labels."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path, PurePosixPath
from typing import TypeVar

import msgspec

from slacktide.agents.files import Watched
from slacktide.agents.http import TIMEOUT_S, HttpError, ask
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, Hierarchy, PlainHost, uid_of
from slacktide.schemas.errors import ConfigError, Finding, SlacktideError, TextError
from slacktide.schemas.host_workloads import BE, NAMESPACE, HostWorkloads, Workload, parse, pod_of
from slacktide.schemas.inventory import Pod
from slacktide.schemas.kubernetes import Listed
from slacktide.schemas.text import answer_of

T = TypeVar("T")


class DockerError(SlacktideError):
    """Docker cannot be reached, or its answer is unusable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerContainer:
    """A running container."""

    id: str
    name: str
    labels: dict[str, str]


class _Listed(msgspec.Struct, rename="pascal"):
    id: str
    names: list[str] | None = None
    labels: dict[str, str] | None = None


class _State(msgspec.Struct, rename="pascal"):
    pid: int


class _Inspected(msgspec.Struct, rename="pascal"):
    state: _State


class Docker:
    """Docker's API over its socket. Blocking: run it in a thread. Methods raise DockerError."""

    def __init__(self, path: str) -> None:
        self.path = path

    def running(self) -> list[DockerContainer]:
        """List running containers."""
        listed = self._ask("/containers/json", list[_Listed]) or []
        return [
            DockerContainer(id=one.id, name=(one.names or [one.id])[0].lstrip("/"), labels=one.labels or {})
            for one in listed
        ]

    def pid(self, container_id: str) -> int | None:
        """Return the pid of a container's first process; None: it has ended."""
        inspected = self._ask(f"/containers/{container_id}/json", _Inspected)
        return None if inspected is None or inspected.state.pid <= 0 else inspected.state.pid

    def _ask(self, path: str, kind: type[T]) -> T | None:
        """GET a path; None: not found."""
        connection = _UnixConnection(self.path)
        try:
            answer = ask(connection, path, {"Accept": "application/json"})
        except (HttpError, OSError) as exc:
            why = exc.strerror or str(exc) if isinstance(exc, OSError) else str(exc)
            raise DockerError(f"Docker at {self.path}: {why}") from exc
        finally:
            connection.close()
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise DockerError(f"Docker at {self.path}: {path}: {answer.status} {answer.words}")
        try:
            found: T = answer_of(answer.body, kind, where=path)
        except TextError as exc:
            raise DockerError(f"Docker at {self.path}: {exc}") from exc
        return found


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


COMPOSE_PROJECT = "com.docker.compose.project"
_ABSENT_GROUP = ("no such cgroup now", "check the name, and that the unit runs")
_ABSENT_LABEL = (
    "no running container has this label",
    "check that it is written as KEY=VALUE, as docker inspect shows it",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A likely mistake in the operator's file."""

    what: str
    why: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A cgroup that counts as a pod."""

    uid: str
    group: PurePosixPath
    workload: Workload | None
    """Its entry in the file; None: it is only in the best-effort cgroup."""
    container: DockerContainer | None
    """The container of the cgroup; None: a systemd unit's cgroup."""

    def pod(self, *, held: bool) -> Pod:
        """Return the pod for the list."""
        container = self.container
        if container is None:
            return pod_of(self.workload, uid=self.uid, name=self.group.name, held=held)
        namespace = container.labels.get(COMPOSE_PROJECT) or NAMESPACE
        return pod_of(self.workload, uid=self.uid, name=container.name, namespace=namespace, held=held)


def watch(path: Path) -> Watched[HostWorkloads]:
    """Watch the file. The best-effort cgroup does not change meanwhile. Raises ConfigError if it does not validate."""
    first: list[PurePosixPath] = []

    def read(document: object, file: str) -> HostWorkloads:
        found = parse(document, file)
        if first and found.best_effort != first[0]:
            accepted = f"{first[0]}, as at the start; to change it, restart the agent"
            raise ConfigError([Finding(file=file, field="bestEffort", value=str(found.best_effort), accepted=accepted)])
        first[:] = [found.best_effort]
        return found

    return Watched(path, read)


class HostPods:
    """Pods of a host without Kubernetes. Blocking: run it in a thread. ``layout`` receives which cgroups are pods."""

    def __init__(self, file: Watched[HostWorkloads], layout: PlainHost, hierarchy: Hierarchy, proc_mount: Path) -> None:
        self.where = str(file.path)
        self.remarks: list[Remark] = []
        self._file = file
        self._docker_away = False
        self._layout = layout
        self._hierarchy = hierarchy
        self._proc = proc_mount
        self._containers: dict[str, DockerContainer] = {}
        self._groups: dict[str, PurePosixPath] = {}

    @property
    def refused(self) -> str:
        """Why the current file is refused; "": it is in force."""
        return self._file.refused

    def look(self) -> Listed:
        """List the pods. While Docker is unreachable, known containers stay listed as long as their cgroups exist."""
        self._file.poll()
        self.remarks, self._docker_away = [], False
        config = self._file.value
        if config.by_label:
            self._ask_docker(config.docker_socket)
        held = list(self._held(config))
        units = list(self._units(config))
        others = [*units, *self._containers_elsewhere(config, [unit.group for unit in units])]
        matched = {one.workload for one in (*held, *others)}
        for absent in config.workloads:
            if absent not in matched and not (absent.label and self._docker_away):
                self._remark(str(absent), *_ABSENT_LABEL if absent.label else _ABSENT_GROUP)
        self._layout.others = {one.uid: one.group for one in others}
        pods = [*(one.pod(held=True) for one in held), *(one.pod(held=False) for one in others)]
        notes = tuple(f"{self.where}: {one.what}: {one.why}; {one.advice}" for one in self.remarks)
        return Listed(pods=pods, notes=notes)

    def _held(self, config: HostWorkloads) -> Iterator[Match]:
        try:
            groups = {uid: PurePosixPath(group) for uid, group in self._hierarchy.pod_groups(BEST_EFFORT)}
        except OSError:
            self._remark(f"bestEffort {config.best_effort}", "no such cgroup now", "it is not limited until it exists")
            return
        for uid, group in groups.items():
            container = self._containers.get(uid)
            workload = next(
                (
                    one
                    for one in config.workloads
                    if one.group == group or (container is not None and one.fits(container.labels))
                ),
                None,
            )
            if workload is not None and workload.qos != BE:
                where = f"{(container.name if container else group)} is in {config.best_effort}"
                self._remark(str(workload), where, f"it is limited, although its class is {workload.qos}")
            yield Match(uid=uid, group=group, workload=workload, container=container)

    def _units(self, config: HostWorkloads) -> Iterator[Match]:
        """Cgroups named in the file, outside the best-effort cgroup."""
        for one in config.workloads:
            if one.group is None or config.holds(one.group) or not self._is_there(one.group):
                continue
            self._remark_not_held(config, one, str(one.group))
            yield Match(uid=uid_of(one.group), group=one.group, workload=one, container=None)

    def _containers_elsewhere(self, config: HostWorkloads, units: list[PurePosixPath]) -> Iterator[Match]:
        """Containers with a label named in the file, outside the best-effort cgroup."""
        for container in self._containers.values():
            workload = next((one for one in config.workloads if one.fits(container.labels)), None)
            group = self._groups.get(container.id)
            if workload is None or group is None or config.holds(group) or not self._is_there(group):
                continue
            unit = next((unit for unit in units if group.is_relative_to(unit)), None)
            if unit is not None:
                self._remark(
                    str(workload), f"{container.name} is in slice {unit}", "it is counted as part of the slice"
                )
                continue
            self._remark_not_held(config, workload, container.name)
            yield Match(uid=container.id, group=group, workload=workload, container=container)

    def _ask_docker(self, socket: str) -> None:
        docker = Docker(socket)
        try:
            running = docker.running()
            for one in running:
                pid = docker.pid(one.id) if one.id not in self._groups else None
                group = None if pid is None else _group_of(self._proc / str(pid) / "cgroup", one.id)
                if group is not None:
                    self._groups[one.id] = group
        except DockerError as exc:
            self._remark("containerLabel", str(exc), "containers cannot be found by label; slices can")
            self._docker_away = True
        else:
            self._containers = {one.id: one for one in running}
            self._groups = {uid: group for uid, group in self._groups.items() if uid in self._containers}

    def _is_there(self, group: PurePosixPath) -> bool:
        return (self._hierarchy.cpu / group).is_dir()

    def _remark_not_held(self, config: HostWorkloads, workload: Workload, name: str) -> None:
        if workload.qos == BE:
            why = f"{name} is outside {config.best_effort}"
            self._remark(str(workload), why, f"it is counted as LS, and is not limited; run it in {config.best_effort}")

    def _remark(self, what: str, why: str, advice: str) -> None:
        self.remarks.append(Remark(what=what, why=why, advice=advice))


def _group_of(file: Path, container_id: str) -> PurePosixPath | None:
    """Return a container's cgroup by /proc/PID/cgroup, without levels below its own; None: it cannot be read."""
    try:
        lines = [line.split(":", 2) for line in file.read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        return None
    paths = {controller: path for _, controllers, path in lines for controller in controllers.split(",")}
    parts = PurePosixPath(paths.get("cpu", paths.get("", ""))).parts[1:]
    own = next((depth for depth, part in enumerate(parts, start=1) if container_id in part), 0)
    return PurePosixPath(*parts[:own]) if own and ".." not in parts else None
