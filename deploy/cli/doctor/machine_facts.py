"""Inspects this machine, its cgroups and its agent, and the API server as an agent does. It writes nothing.

Control files are opened for writing, to see whether they could be written.
"""

import base64
import binascii
import http.client
import os
import re
import resource
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from slacktide.agents.http import Access, Answer, HttpError, token_of
from slacktide.agents.listening import reachable
from slacktide.agents.node.apiserver import ApiServer
from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, Hierarchy, PlainHost, find, stalling_groups
from slacktide.agents.node.host_pods import HostPods, watch
from slacktide.agents.node.pressure import KINDS, NO_GROUPS, Kind, Stall, pressure_files, set_trigger
from slacktide.agents.node.run_delay import RunDelayReader
from slacktide.deploy.cli.doctor.facts import (
    API_RIGHTS,
    CONTROLLERS,
    AgentFacts,
    ApiFacts,
    CgroupFacts,
    ControllerState,
    HostFacts,
    KnobFacts,
    MachineFacts,
    NoApi,
    StateFolder,
    TokenFacts,
)
from slacktide.deploy.runtime.endpoints import PROCESS
from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.errors import CgroupError, ConfigError
from slacktide.schemas.knob_table import CONTROLS, KNOBS, Control

_ANY_PRESSURE = parse.pressure_pct(b"some")
CLOCK_KEEPERS = (
    ("chronyd", ("chrony/chronyd.pid", "chronyd.pid")),
    ("ntpd", ("ntpd.pid", "ntp.pid", "ntpsec/ntpd.pid", "openntpd.pid")),
)
TIMESYNC_DONE = "systemd/timesync/synchronized"
_CLOCK_SOURCE = "devices/system/clocksource/clocksource0/current_clocksource"
T = TypeVar("T")
_CAP_EFF = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)
ANSWER_S = 3.0
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MINOR = re.compile(r"v?1\.(\d+)")


def gather_cgroups(mount: Path, kubepods: str | None, host: PlainHost | None = None) -> CgroupFacts:
    """Inspect ``mount``; ``kubepods``: the pods' cgroup, else it is detected; ``host``: there is no kubelet."""
    hierarchy: Hierarchy | None = None
    driver: Literal["", "cgroupfs", "systemd", "none"] = "" if host is None else "none"
    trouble = ""
    try:
        hierarchy = find(mount, kubepods, host)
        driver = driver or ("systemd" if hierarchy.by_systemd else "cgroupfs")
    except (CgroupError, OSError) as error:
        trouble = str(error)
    group = hierarchy.best_effort if hierarchy is not None and hierarchy.best_effort.is_dir() else None
    version = _version(mount)
    tier = None if hierarchy is None or group is None else hierarchy.tier(BEST_EFFORT)
    groups: dict[str, Path | None] = {}
    for one in CONTROLLERS:  # the best-effort group in each hierarchy
        root = None if tier is None else _root(mount, version, one.name)
        folder = None if root is None or tier is None else root / tier
        groups[one.name] = folder if folder is not None and folder.is_dir() else None
    return CgroupFacts(
        mount=str(mount),
        version=version,
        hybrid=version == 1 and (mount / "unified" / "cgroup.controllers").exists(),
        pods="" if hierarchy is None else str(hierarchy.pods),
        driver=driver,
        trouble=trouble,
        best_effort="" if group is None else str(group),
        controllers={name: _controller(mount, version, name, folder) for name, folder in groups.items()},
        knobs={} if group is None else {knob.name: _knob(knob, version, groups[knob.controller]) for knob in CONTROLS},
        idle_tier=group is not None and _words(group / KNOBS["cpu_idle"].files(version)[0]) == ["1"],
        no_stall="" if hierarchy is None else _no_stall(hierarchy),
        no_run_delay="" if hierarchy is None else RunDelayReader(hierarchy, Path("/proc")).trouble(),
        refused_triggers={} if hierarchy is None else _refused_triggers(hierarchy),
    )


def _no_stall(hierarchy: Hierarchy) -> str:
    """Return why the agent reads no PSI of latency-sensitive cgroups; "": it reads some."""
    root = hierarchy.unified
    groups = [] if root is None else stalling_groups(root, hierarchy)
    troubles = [_pressure_trouble(group / "cpu.pressure", parse.stall_us) for group in groups]
    if not troubles:
        return NO_GROUPS
    return "" if "" in troubles else f"cpu.pressure: {troubles[0]}"


def _refused_triggers(hierarchy: Hierarchy) -> dict[Kind, str]:
    """Return the kinds of pressure that the agent cannot wait on, with the reason. Triggers are set temporarily."""
    paths = {file.kind: file.path for file in reversed(pressure_files(hierarchy, Path("/proc")))}
    refused: dict[Kind, str] = {}
    for kind in KINDS:
        if kind not in paths:
            refused[kind] = NO_GROUPS
            continue
        try:
            os.close(set_trigger(paths[kind], Stall()))
        except OSError as error:
            refused[kind] = error.strerror or str(error)
    return refused


def _pressure_trouble(file: Path, read: Callable[[bytes], float] = _ANY_PRESSURE) -> str:
    """Return why a pressure file is not readable; "": it is."""
    try:
        read(file.read_bytes())
    except OSError as error:  # a kernel that was booted without it has the file, and refuses to read it
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    return ""


def _version(mount: Path) -> Literal[0, 1, 2]:
    if not os.access(mount, os.R_OK | os.X_OK, effective_ids=True):
        return 0
    if (mount / "cgroup.controllers").exists():
        return 2
    return 1 if _root(mount, 1, "cpu") is not None else 0


def _root(mount: Path, version: int, controller: str) -> Path | None:
    """Return the root of a controller's cgroups; on v1 its own mount or a shared one, such as ``cpu,cpuacct``."""
    if version == 2:
        return mount
    if (mount / controller).is_dir():
        return mount / controller
    shared = (folder for folder in sorted(mount.glob("*,*")) if controller in folder.name.split(","))
    return next(shared, None)


def _controller(mount: Path, version: int, name: str, group: Path | None) -> ControllerState:
    if not version:
        return "absent"
    if version == 1:
        there = _root(mount, version, name) is not None
        return "absent" if not there else "usable" if group is not None else "not handed on"
    if name == "cpuacct":  # part of every group
        return "usable"
    if name == "freezer":  # so is this, since there is such a file; the root has none
        return "usable" if group is None or (group / "cgroup.freeze").exists() else "absent"
    if name not in _words(mount / "cgroup.controllers"):
        return "absent"
    return "usable" if group is not None and name in _words(group / "cgroup.controllers") else "not handed on"


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _knob(knob: Control, version: int, group: Path | None) -> KnobFacts:
    files = knob.files(version)
    if not files or group is None:
        return KnobFacts(files=files, state="absent", trouble="")
    for name in files:
        try:
            os.close(os.open(group / name, os.O_WRONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            return KnobFacts(files=(name,), state="absent", trouble="")
        except OSError as error:
            return KnobFacts(files=(name,), state="not writable", trouble=error.strerror or str(error))
    return KnobFacts(files=files, state="writable", trouble="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """The mount points of a machine's facts."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    run: Path = Path("/run")


def gather_machine(mounts: Mounts, state_folder: Path) -> MachineFacts:
    """Inspect the machine, read-only."""
    kept_by, synchronised = _clock(mounts)
    capabilities = _CAP_EFF.search(_text(mounts.proc / "self/status"))
    return MachineFacts(
        kernel=_text(mounts.proc / "sys/kernel/osrelease"),
        cpus=os.cpu_count() or 1,
        user_id=os.geteuid(),
        capabilities=None if capabilities is None else int(capabilities[1], 16),
        clock_source=_text(mounts.sys / _CLOCK_SOURCE),
        clock_kept_by=kept_by,
        clock_synchronised=synchronised,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        state=_state(state_folder),
        pressure={kind: _pressure_trouble(mounts.proc / "pressure" / kind) for kind in ("cpu", "memory", "io")},
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _there(path: Path) -> bool:
    """Return whether the file is visible. Files in a folder without access are not."""
    return os.access(path, os.F_OK, effective_ids=True)


def _clock(mounts: Mounts) -> tuple[str, bool]:
    """Return the service that synchronizes the clock, and whether it reports success."""
    if _there(mounts.run / TIMESYNC_DONE):
        return "systemd-timesyncd", True
    for name, files in CLOCK_KEEPERS:
        pids = (_text(mounts.run / file) for file in files)
        # A leftover file of a dead process names no running process.
        if any(pid.isdigit() and _there(mounts.proc / pid) for pid in pids):
            return name, False
    return "", False


def _state(folder: Path) -> StateFolder:
    """Return the folder, or the nearest existing one above it, in which it would be created."""
    path = folder.absolute()
    while not _there(path) and path != path.parent:
        path = path.parent
    trouble, free_bytes = "", 0
    if not path.is_dir():
        trouble = f"{path} is not a folder"
    elif not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        trouble = f"{path} is not writable by this user"
    try:
        room = os.statvfs(path)
        free_bytes = room.f_bavail * room.f_frsize
    except OSError as error:
        trouble = trouble or f"{path}: {error.strerror}"
    return StateFolder(path=str(folder), trouble=trouble, free_bytes=free_bytes)


def gather_host(file: Path, cgroup_mount: Path, proc_mount: Path) -> HostFacts | ConfigError:
    """Inspect cgroups and Docker's list, read-only. Without cgroups no workload is found."""
    try:
        watched = watch(file)
    except ConfigError as error:
        return error
    layout = PlainHost(watched.value.best_effort)
    try:
        hierarchy = find(cgroup_mount, None, layout)
    except CgroupError:  # which is reported of control groups, too
        return HostFacts(file=str(file), best_effort=layout.best_effort, pods=(), remarks=())
    host = HostPods(watched, layout, hierarchy, proc_mount)
    pods = tuple(f"{pod.name} ({pod.qos_label})" for pod in host.look().pods)
    return HostFacts(file=str(file), best_effort=layout.best_effort, pods=pods, remarks=tuple(host.remarks))


def gather_agent(host: str, port: int, state_folder: Path, proc_mount: Path) -> AgentFacts | None:
    """Query the endpoints; None: no agent answers, and none locks the state folder. `slacktide up` uses another folder.

    ``host`` and ``port`` are those of the endpoints.
    """
    address = reachable(host)
    live = _ask(address, port, "/live")
    if live is None and not is_locked(state_folder / "lock", proc_mount):
        return None
    # Each request to an agent that does not answer waits for the timeout. Send only one.
    asked = {} if live is None else {path: _ask(address, port, path) for path in ("/ready", "/fresh")}
    unanswered = f"no answer within {ANSWER_S:g} s"
    return AgentFacts(
        url=f"http://{address}:{port}",
        not_live=unanswered if live is None else live,
        not_ready=asked.get("/ready") or "",
        not_fresh=asked.get("/fresh") or "",
    )


LOCKS_READ = 5
"""The kernel lists locks page by page, and skips some while others come and go."""


def is_locked(file: Path, proc_mount: Path) -> bool:
    """Return whether a process holds a lock (flock) on the file. Trying the lock could prevent an agent's start."""
    try:
        status = file.stat()
        wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for _ in range(LOCKS_READ):
            held = (proc_mount / "locks").read_text(errors="replace")
            if any(wanted in line.split() and "FLOCK" in line for line in held.splitlines()):
                return True
    except OSError:
        pass
    return False


def _ask(host: str, port: int, path: str) -> str | None:
    """Return the trouble; "": none; None: no process of Slacktide answers."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.getheader(PROCESS) is None:
            return None
        text = answer.read(4_096).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return "" if answer.status == http.HTTPStatus.OK else text or f"status {answer.status}"


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class _Allowed(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Allowed


class _Named(msgspec.Struct):
    name: str = ""


class _Claim(msgspec.Struct):
    namespace: str = ""
    pod: _Named | None = None
    node: _Named | None = None


class _Claims(msgspec.Struct, rename={"kubernetes": "kubernetes.io"}):
    kubernetes: _Claim = msgspec.field(default_factory=_Claim)


def gather_api(access: Access) -> ApiFacts | NoApi:
    """Query an API server. Raises SlacktideError if the address is invalid."""
    server = ApiServer(access)
    try:
        version = _decoded(server.get("/version"), _Version).git_version
        reviews = {right: {"spec": {"resourceAttributes": asdict(right)}} for right in API_RIGHTS}
        rights = {
            right: _decoded(server.post(_REVIEWS, review), _Review).status.allowed for right, review in reviews.items()
        }
        token = token_facts("" if access.token is None else token_of(access.token))
    except (HttpError, *MALFORMED) as exc:
        return NoApi(url=server.url, trouble=str(exc))
    finally:
        server.close()
    minor = _MINOR.match(version)
    return ApiFacts(
        url=server.url, version=version, minor=None if minor is None else int(minor[1]), token=token, rights=rights
    )


def token_facts(token: str) -> TokenFacts:
    """Return the claims of a ServiceAccount's token; only the API server can confirm them."""
    try:
        body = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=_Claims)
    except (IndexError, binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        return TokenFacts(pod="", node="")
    bound = claims.kubernetes
    return TokenFacts(
        pod=f"{bound.namespace}/{bound.pod.name}" if bound.pod else "", node=bound.node.name if bound.node else ""
    )


def _decoded(answer: Answer, kind: type[T]) -> T:
    if answer.status not in {200, 201}:
        raise HttpError(f"{answer.status} {answer.words}")
    return msgspec.json.decode(answer.body, type=kind)
