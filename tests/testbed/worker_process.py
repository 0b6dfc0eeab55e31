"""A stream worker; its arguments are NAME BOOTSTRAP GROUP SESSION_MS REPUBLISH_MS.

In place of a fault in native code, deciding a sample of the node ``poison`` kills the process with SIGKILL. In place of
an error that nothing isolates, taking a sample of the node ``raises`` into its window raises.
"""

import asyncio
import os
import signal
import sys
import time
from typing import Any

from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.streams import topology
from slacktide.streams.decisions.node_decision import decide_node
from slacktide.streams.engine.session import WorkerSettings
from slacktide.streams.worker import Worker, one_by_one, publishing
from slacktide.streams.worker.node_state import waves

POISON, RAISES = "poison", "raises"


def _deadly(sample: Any, *others: Any) -> Any:
    if sample.node == POISON:
        os.kill(os.getpid(), signal.SIGKILL)
    return decide_node(sample, *others)


def _raising(samples: Any) -> Any:
    if any(each.node.window.node == RAISES for each in samples):
        raise RuntimeError("not isolated")
    return waves(samples)


def main(name: str, bootstrap: str, group: str, session_ms: str, republish_ms: str) -> None:
    one_by_one.decide_node, publishing.waves = _deadly, _raising
    settings = WorkerSettings(bootstrap=Cluster(bootstrap), group=group, session_timeout_ms=int(session_ms))
    worker = Worker(name, republish_ms=int(republish_ms))
    asyncio.run(
        topology.decide_samples(worker, settings, asyncio.Event(), Health(), lambda: time.time_ns() // 1_000_000)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
