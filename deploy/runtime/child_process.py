"""Child processes that never outlive their parent.

A killed parent cannot stop its children, so the kernel must: PR_SET_PDEATHSIG works for any program, without a watcher.
It is bound to the thread that started the child, so start children on a thread that lives as long as the process.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO

PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)  # resolved before a fork: afterwards little is safe
_POLL_S = 0.05


def popen(
    command: Sequence[str],
    *,
    death: signal.Signals = signal.SIGKILL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a child. It gets the signal ``death`` when this thread ends, and inherits the open files ``keep``.

    It has its own session: Ctrl-C reaches only the parent, which stops its children in order.
    """
    return subprocess.Popen(  # noqa: S603 - callers name their own programs
        command,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=env,
        pass_fds=keep,
        start_new_session=True,
        preexec_fn=_tie(os.getpid(), death),  # noqa: PLW1509 - one call of a function found before
    )


def _tie(parent_pid: int, death: signal.Signals) -> Callable[[], None] | None:
    prctl = _prctl
    if prctl is None:
        return None

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, int(death), 0, 0, 0)
        if os.getppid() != parent_pid:  # the parent ended since the fork
            os._exit(1)

    return tie


async def ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for a child to end; its exit code, negative for a signal."""
    while (code := process.poll()) is None:  # noqa: ASYNC110 - portable, and no thread per child
        await asyncio.sleep(_POLL_S)
    return code


async def end(process: subprocess.Popen[bytes], within_s: float) -> bool:
    """Terminate a child, and kill it after ``within_s``; return whether it ended by itself."""
    if process.poll() is None:
        process.terminate()
    try:
        async with asyncio.timeout(within_s):
            await ended(process)
    except TimeoutError:
        process.kill()
        process.wait()
        return False
    return True
