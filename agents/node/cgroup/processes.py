"""Counts and signals the processes of best-effort pods. All signals are sent from here.

A pid may be reused between reading and signalling it. So a pidfd is opened first, and the signal is sent only if the
cgroup still lists the pid: while the process lives, its pid is not reused.
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

from slacktide.agents.node.cgroup.best_effort_groups import is_kernels
from slacktide.agents.node.cgroup.freezer import Freezer
from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.agents.node.cgroup.knobs import Knobs
from slacktide.agents.node.cgroup.plan import Write
from slacktide.agents.node.cgroup.read import why_of
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
        self._kill_stopped(group)
        for _ in range(_ROUNDS):
            if not _signal(self._root / group, signal.SIGKILL, wait_ms=_ROUND_MS):
                return

    def _kill_stopped(self, group: PurePosixPath) -> None:
        """Freeze first, if possible, a cgroup that starts processes faster than they are killed."""
        with suppress(CgroupError):
            self._freezer.freeze(group)
            _signal(self._root / group, signal.SIGKILL)
        self._freezer.thaw_below(group)


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
            _wait(reached, wait_ms)
    return signalled


@contextmanager
def _held(pids: Iterable[int]) -> Iterator[dict[int, int]]:
    """A pidfd for each process that has not ended yet."""
    with ExitStack() as stack:
        held: dict[int, int] = {}
        for pid in pids:
            fd = _opened(pid)
            if fd is not None:
                held[pid] = fd
                stack.callback(os.close, fd)
        yield held


def _opened(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        hint = ": signals require kernel 5.3 or newer" if error.errno == errno.ENOSYS else ""
        raise CgroupError(f"process {pid}", f"{why_of(error)}{hint}") from error


def _reached(folder: Path, fd: int, number: signal.Signals) -> bool:
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    except OSError as error:
        raise CgroupError(str(folder), f"sending {number.name}: {why_of(error)}: run the agent as root") from error
    return True


def _wait(fds: Iterable[int], wait_ms: int) -> None:
    """Wait until all have ended, or until one has not ended in time."""
    for fd in fds:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(wait_ms):
            return
