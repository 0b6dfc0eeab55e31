"""A stream worker that a sample kills; its arguments are SHELL NAME BOOTSTRAP GROUP SESSION_MS.

In place of a fault in native code, deciding a sample of the node ``poison`` kills the process with SIGKILL.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import time
from typing import Any

from slacktide.deploy.cli.stream import SHELLS
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.streams.decisions.node_decision import decide_node
from slacktide.streams.engine.session import ShellSettings
from slacktide.streams.worker import Worker, answering

POISON = "poison"


def _deadly(sample: Any, *others: Any) -> Any:
    if sample.node == POISON:
        os.kill(os.getpid(), signal.SIGKILL)
    return decide_node(sample, *others)


def main(shell: str, name: str, bootstrap: str, group: str, session_ms: str) -> None:
    """Run until killed."""
    answering.decide_node = _deadly
    run = importlib.import_module(SHELLS[shell]).run
    settings = ShellSettings(bootstrap=Cluster(bootstrap), group=group, session_timeout_ms=int(session_ms))
    asyncio.run(run(Worker(name), settings, asyncio.Event(), Health(), lambda: time.time_ns() // 1_000_000))


if __name__ == "__main__":
    main(*sys.argv[1:])
