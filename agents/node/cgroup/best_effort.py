"""Kills and freezes best-effort pods through their cgroups. Implements ``BestEffortPods``.

The cgroups of pods are read again for each act, so that no other pod is signalled or frozen. A pid may be reused
between reading and signalling it. So a pidfd is opened first, and the signal is sent only if the cgroup still lists
the pid: while the process lives, its pid is not reused. All signals are sent from here.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path, PurePosixPath

from slacktide.agents.clock import wait_ms
from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.files import Knobs, is_gone, why_of
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, TIERS, Hierarchy
from slacktide.agents.node.cgroup.plan import Write
from slacktide.agents.node.cgroup.reclaim import GroupMemory
from slacktide.schemas.errors import CgroupError

KILL_FILE = "cgroup.kill"
_PROCESSES_FILE = "cgroup.procs"
_ELSEWHERE = frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP})
"""The cgroup is gone; or, on v2, it is threaded, and its parent lists the processes."""
_AT_ONCE = 256
"""Most pidfds open at one time."""
_ROUNDS = 25
_ROUND_MS = 10


class Processes:
    """Cgroups are relative to the best-effort cgroup. ``best_effort_groups`` decides which are permitted.

    Methods raise CgroupError if processes cannot be read or signalled.
    """

    def __init__(self, hierarchy: Hierarchy, freezer: Freezer) -> None:
        self._root = hierarchy.best_effort
        self._freezer = freezer
        self._knobs = Knobs(hierarchy, hierarchy.best_effort, frozenset({KILL_FILE}))

    def count(self, group: PurePosixPath) -> int:
        """Return the number of processes in the cgroup and all below it."""
        return len(_listed(self._root / group))

    def check(self, group: PurePosixPath) -> None:
        """Check that they may be signalled or frozen: not simulated, and neither this agent nor pid 1 among them."""
        folder = self._root / group
        pids = _listed(folder)
        if not pids:
            return
        with suppress(FileNotFoundError):
            if not is_kernels(folder):
                raise CgroupError(str(folder), "a plain folder, not a cgroup: no process is signalled")
        if own := pids & {1, os.getpid()}:
            raise CgroupError(str(folder), f"process {min(own)}, this agent or PID 1, runs in it: not ended")

    def terminate(self, group: PurePosixPath) -> None:
        """Send SIGTERM to each. A frozen cgroup is thawed first."""
        if self._freezer.is_frozen(group):
            self._freezer.thaw(group)
        _signal(self._root / group, signal.SIGTERM)

    def kill(self, group: PurePosixPath) -> None:
        """Send SIGKILL to all, also to those started meanwhile. Remaining ones are no error: they may end soon."""
        if (self._root / group / KILL_FILE).exists():
            self._knobs.write(Write(group, KILL_FILE, "1"))
            return
        # Freeze first, if possible, a cgroup that starts processes faster than they are killed.
        with suppress(CgroupError):
            self._freezer.freeze(group)
            _signal(self._root / group, signal.SIGKILL)
        self._freezer.thaw_below(group)
        for _ in range(_ROUNDS):
            if not _signal(self._root / group, signal.SIGKILL, wait_ms=_ROUND_MS):
                return


def _listed(folder: Path) -> set[int]:
    pids: set[int] = set()
    for path, _, _ in os.walk(folder):
        try:
            pids.update(map(int, Path(path, _PROCESSES_FILE).read_bytes().split()))
        except OSError as error:
            if error.errno not in _ELSEWHERE:
                raise CgroupError(path, why_of(error)) from error
    return pids


def _signal(folder: Path, number: signal.Signals, *, wait_ms: int = 0) -> int:
    """Signal all processes of the cgroup and those below. Wait up to ``wait_ms``. Return how many were signalled."""
    pids = _listed(folder)
    if 0 in pids:
        raise CgroupError(
            str(folder), "its processes are in another PID namespace: run the agent in the host's (hostPID: true)"
        )
    signalled, waiting = 0, iter(sorted(pids))
    while some := list(islice(waiting, _AT_ONCE)):
        with _held(some) as held:
            still = _listed(folder)
            reached = [fd for pid, fd in held.items() if pid in still and _reached(folder, fd, number)]
            signalled += len(reached)
            for fd in reached:  # until all have ended, or one has not ended in time
                poll = select.poll()
                poll.register(fd, select.POLLIN)
                if not poll.poll(wait_ms):
                    break
    return signalled


@contextmanager
def _held(pids: Iterable[int]) -> Iterator[dict[int, int]]:
    """A pidfd for each process that has not ended yet."""
    with ExitStack() as stack:
        held: dict[int, int] = {}
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except OSError as error:
                hint = ": signals require kernel 5.3 or newer" if error.errno == errno.ENOSYS else ""
                raise CgroupError(f"process {pid}", f"{why_of(error)}{hint}") from error
            held[pid] = fd
            stack.callback(os.close, fd)
        yield held


def _reached(folder: Path, fd: int, number: signal.Signals) -> bool:
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    except OSError as error:
        raise CgroupError(str(folder), f"sending {number.name}: {why_of(error)}: run the agent as root") from error
    return True


FILES = {1: "freezer.state", 2: "cgroup.freeze"}
_TEXTS = {1: ("THAWED", "FROZEN"), 2: ("0", "1")}
_OWN = {1: "freezer.self_freezing", 2: "cgroup.freeze"}
"""The file that shows whether the cgroup itself is frozen, and not only a parent."""
_LOOKS = 50
_APART_MS = 2


class Freezer:
    """Cgroups are relative to the best-effort cgroup. Methods raise CgroupError if the kernel refuses or cannot."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._version = hierarchy.version
        self._mount = hierarchy.mount
        root = hierarchy.freezer
        self._knobs = (
            None
            if root is None
            else Knobs(hierarchy, root / hierarchy.tier(BEST_EFFORT), frozenset({FILES[self._version]}))
        )

    @property
    def trouble(self) -> str:
        """Why no pod can be frozen on this node; "": freezing works."""
        if self._knobs is None:
            return f"the freezer controller is not mounted under {self._mount}"
        if not self._knobs.root.is_dir():
            return f"no best-effort cgroup in the freezer hierarchy: {self._knobs.root}"
        if not (self._knobs.root / FILES[self._version]).exists():
            return f"the kernel has no {FILES[self._version]}: use kernel 5.2 or newer"
        return ""

    def is_frozen(self, group: PurePosixPath) -> bool:
        """Return whether this cgroup itself is frozen. False if it cannot be frozen."""
        if self._knobs is None:
            return False
        try:
            return self._knobs.read(group, _OWN[self._version], parse.number) == 1
        except CgroupError as error:
            if is_gone(error):
                return False
            raise

    def freeze(self, group: PurePosixPath) -> bool:
        """Freeze a cgroup. False: some processes freeze later, when a system call returns."""
        self._write(group, frozen=True)
        assert self._knobs is not None
        for look in range(_LOOKS):
            if self._version == 1:
                stopped = self._knobs.read(group, FILES[1], bytes.strip) == b"FROZEN"
            else:
                stopped = self._knobs.read(group, "cgroup.events", parse.field(b"frozen")) == 1
            if stopped:
                return True
            if look < _LOOKS - 1:
                wait_ms(_APART_MS)
        return False

    def thaw(self, group: PurePosixPath) -> None:
        """Thaw a cgroup. One that is gone is ignored. One that still reads as frozen raises CgroupError."""
        try:
            self._write(group, frozen=False)
        except CgroupError as error:
            if not is_gone(error):
                raise
        if self.is_frozen(group):
            raise CgroupError(str(group), "is frozen after it was thawed; check whether another process freezes it")

    def thaw_below(self, group: PurePosixPath) -> None:
        """Thaw a cgroup and all cgroups below, because v1 cannot kill frozen processes."""
        if self._knobs is not None:
            for one in self._knobs.groups():
                if one.is_relative_to(group):
                    self.thaw(one)

    def _write(self, group: PurePosixPath, *, frozen: bool) -> None:
        if self._knobs is None:
            raise CgroupError(str(self._mount), self.trouble)
        self._knobs.write(Write(group, FILES[self._version], _TEXTS[self._version][frozen]))


_MOUNTS = Path("/proc/self/mountinfo")
_KERNELS = ("cgroup", "cgroup2")


def is_kernels(folder: Path) -> bool:
    """Return whether the folder is of a real kernel, not a simulated node. Raises OSError if it is gone."""
    device = folder.stat().st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    for line in _MOUNTS.read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == name and after.split()[0] in _KERNELS:
            return True
    return False


class CgroupBestEffort:
    """Each call looks up the pod's cgroup and checks it again. A uid is only compared, never used in a path."""

    def __init__(self, hierarchy: Hierarchy, proc_mount: Path = Path("/proc")) -> None:
        self._hierarchy = hierarchy
        self._freezer = Freezer(hierarchy)
        self._processes = Processes(hierarchy, self._freezer)
        self.memory = GroupMemory(hierarchy, proc_mount, self._groups, self._checked)

    @property
    def freeze_trouble(self) -> str:
        """Why no pod can be frozen on this node; "": freezing works."""
        return self._freezer.trouble

    def processes(self, uid: str) -> int:
        """Implement ``BestEffortPods.processes``."""
        group = self._checked(uid)
        return 0 if group is None else self._processes.count(group)

    def terminate(self, uid: str) -> None:
        """Implement ``BestEffortPods.terminate``."""
        group = self._checked(uid)
        if group is not None:
            self._processes.terminate(group)

    def kill(self, uid: str) -> None:
        """Implement ``BestEffortPods.kill``."""
        group = self._checked(uid)
        if group is not None:
            self._processes.kill(group)

    def freeze(self, uid: str) -> bool:
        """Implement ``BestEffortPods.freeze``."""
        group = self._checked(uid)
        if group is None:
            raise CgroupError(uid, "the pod no longer exists")
        return self._freezer.freeze(group)

    def thaw(self, uid: str) -> None:
        """Implement ``BestEffortPods.thaw``."""
        group = self._checked(uid)
        if group is not None:
            self._freezer.thaw(group)

    def frozen(self) -> frozenset[str]:
        """Implement ``BestEffortPods.frozen``."""
        return frozenset(uid for uid, group in self._groups().items() if self._freezer.is_frozen(group))

    def _groups(self) -> dict[str, PurePosixPath]:
        """Return the cgroups of best-effort pods now, by uid, relative to the best-effort cgroup."""
        try:
            found = dict(self._hierarchy.pod_groups(BEST_EFFORT))
        except OSError as error:
            raise CgroupError(str(self._hierarchy.best_effort), why_of(error)) from error
        return {uid: PurePosixPath(group.rpartition("/")[2]) for uid, group in found.items()}

    def _checked(self, uid: str) -> PurePosixPath | None:
        """Return a pod's cgroup relative to the best-effort cgroup, which may be changed; None: the pod is gone."""
        group, root = self._groups().get(uid), self._hierarchy.best_effort
        if group is None:
            self._must_be_nowhere(uid)
            return None
        if Path(os.path.realpath(root / group)).parent != Path(os.path.realpath(root)):
            raise CgroupError(str(root / group), "not below the best-effort cgroup: never changed")
        self._processes.check(group)
        return group

    def _must_be_nowhere(self, uid: str) -> None:
        for tier in TIERS:
            try:
                found = dict(self._hierarchy.pod_groups(tier)).get(uid)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CgroupError(str(self._hierarchy.cpu / self._hierarchy.tier(tier)), why_of(error)) from error
            if found is not None:
                where = str(self._hierarchy.cpu / found)
                raise CgroupError(where, "not the cgroup of a best-effort pod: never changed")
