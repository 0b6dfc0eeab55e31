"""What a node's kernel and its API server show, from when it was first so: the limit, and figures of batch work."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from typing import Any, Self

from slacktide.agents.clock import SystemClock
from slacktide.schemas.text import time_ms_of
from testbed.cluster.koordinator_record import FIGURES, METRICS
from testbed.cluster.real_node import RealNode

LOOK_S, ASK_S = 0.01, 0.25
Changes = list[tuple[float, Any]]
"""Instants of the monotonic clock in seconds, and the value since then."""


@dataclass
class Watch:
    """Looks at the limit each 10 ms and asks the API server four times a second, in threads, until left."""

    node: RealNode
    quota_us: Changes = field(default_factory=list)
    """Of the best-effort group; None: unlimited."""
    batch_milli: Changes = field(default_factory=list)
    """``kubernetes.io/batch-cpu`` that the Node offers; None: none."""
    used: Changes = field(default_factory=list)
    """The node's use, as its NodeMetric shows it, as JSON."""
    age_ms: list[int] = field(default_factory=list)
    """Of the NodeMetric, at each look."""
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._connection = HTTPSConnection("127.0.0.1", self.node.port, context=self.node._tls, timeout=10)
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._look, self._ask)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._connection.close()

    def _look(self) -> None:
        while not self._stop.wait(LOOK_S):
            _note(self.quota_us, self.node.best_effort_quota_us)

    def _ask(self) -> None:
        while not self._stop.wait(ASK_S):
            offered = self._get(f"/api/v1/nodes/{self.node.name}").get("status", {}).get("allocatable")
            if offered is not None:
                amount = offered.get(FIGURES["batch_cpu_milli"])
                _note(self.batch_milli, None if amount is None else _milli(amount))
            status = self._get(f"{METRICS}/{self.node.name}").get("status", {})
            if updated := status.get("updateTime"):
                self.age_ms.append(SystemClock().wall_ms() - time_ms_of(updated, where="updateTime"))
                _note(self.used, json.dumps(status["nodeMetric"]["nodeUsage"].get("resources")))

    def _get(self, path: str) -> Any:
        try:
            self._connection.request("GET", path, headers={"Accept": "application/json"})
            answer = self._connection.getresponse()
            body = answer.read()
            return json.loads(body) if answer.status == 200 else {}
        except (OSError, HTTPException):
            self._connection.close()
            return {}


def _milli(quantity: str) -> int:
    return int(quantity.removesuffix("k")) * (1000 if quantity.endswith("k") else 1)


def _note(changes: Changes, value: Any) -> None:
    if not changes or changes[-1][1] != value:
        changes.append((time.monotonic(), value))


def first_s(changes: Changes, since_s: float, fits: Callable[[Any], bool]) -> float | None:
    """How long after an instant the value first fitted, in seconds; None: it did not."""
    return next((at_s - since_s for at_s, value in changes if at_s >= since_s and fits(value)), None)


def held(changes: Changes, at_s: float) -> Any:
    """The value at an instant; None before the first."""
    return next((value for since_s, value in reversed(changes) if since_s <= at_s), None)
