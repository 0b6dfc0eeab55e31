"""Reports pods that claim to be best-effort but are outside the best-effort cgroup: in the log and as an Event."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from slacktide.schemas.inventory import Pod, unended
from slacktide.schemas.qos import VAIN_ADVICE, claims_in_vain, vain_claim

log = logging.getLogger(__name__)


class Notes(Protocol):
    """Creates Events on pods in the background."""

    def note(self, pod: Pod, *, node: str, reason: str, text: str, at_ms: int) -> None:
        """Create a warning Event on a pod; retry until the API server is back."""


class Unheld:
    """Reports each pod once per run of the agent. The API server keeps one Event per pod."""

    def __init__(self, node: str, notes: Notes | None, wall_ms: Callable[[], int]) -> None:
        self._node = node
        self._notes = notes
        self._wall_ms = wall_ms
        self._reported: frozenset[str] = frozenset()

    def look(self, pods: Sequence[Pod]) -> None:
        """Check the current pods."""
        unheld = {pod.uid: pod for pod in unended(pods) if claims_in_vain(pod)}
        for uid in unheld.keys() - self._reported:
            pod = unheld[uid]
            text = f"{vain_claim(pod)}; {VAIN_ADVICE}"
            log.warning("pod %s/%s %s", pod.namespace, pod.name, text)
            if self._notes is not None:
                self._notes.note(pod, node=self._node, reason="NotHeldBack", text=text, at_ms=self._wall_ms())
        self._reported = frozenset(unheld)
