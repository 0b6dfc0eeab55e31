"""PSI of each pod's cgroup, for metrics and ``slacktide explain pod``. Decisions do not use it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.files import read_once
from slacktide.agents.node.cgroup.read import PSI
from slacktide.schemas.inventory import Pod
from slacktide.schemas.sample import PodPressure

EVERY_NS = 10_000_000_000
"""The averages are over 10 s, so that nothing is counted twice."""
_FIGURES: Mapping[str, tuple[str, Callable[[bytes], float]]] = PSI | {
    "cpu_full_pct": ("cpu", parse.pressure_pct(b"full"))
}


class PodPressureReader:
    """Reads below the v2 root; None: there is none, and no PSI. ``group_of`` returns a pod's cgroup, relative to it."""

    def __init__(self, root: Path | None, group_of: Callable[[str], PurePosixPath | None]) -> None:
        self._root, self._group_of = root, group_of
        self._read_ns = -EVERY_NS

    def due(self, pods: Iterable[Pod], mono_ns: int) -> list[PodPressure] | None:
        """Return the averages of these pods each 10 s, otherwise None. Pods without PSI are left out."""
        if mono_ns - self._read_ns < EVERY_NS:
            return None
        self._read_ns = mono_ns
        known = {} if self._root is None else {pod.uid: self._group_of(pod.uid) for pod in pods}
        groups = {uid: group for uid, group in known.items() if group is not None}
        found = {uid: self._figures(f"{self._root}/{group}") for uid, group in groups.items()}
        return [PodPressure(uid=uid, **figures) for uid, figures in found.items() if figures]

    def _figures(self, group: str) -> dict[str, float]:
        texts = dict[str, bytes]()
        for kind in ("cpu", "memory", "io"):
            with suppress(OSError):
                texts[kind] = read_once(f"{group}/{kind}.pressure")
        figures = dict[str, float]()
        for name, (kind, read) in _FIGURES.items():
            if kind in texts:
                with suppress(ValueError):  # before Linux 5.13, cpu.pressure has no line "full"
                    figures[name] = read(texts[kind])
        return figures
