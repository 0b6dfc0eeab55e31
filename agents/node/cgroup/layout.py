"""Which cgroups are pods, in which tier, and which is best-effort: on a Kubernetes node and on a host without it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

BEST_EFFORT = "besteffort"
BURSTABLE = "burstable"
GUARANTEED = ""
TIERS = (BEST_EFFORT, BURSTABLE, GUARANTEED)
_SLICE = ".slice"
_NO_GROUP = PurePosixPath("no common cgroup")
"""A name that no cgroup has."""
_CONTAINER = re.compile(r"(?:[a-z-]+-)?([0-9a-f]{64})(?:\.scope)?")


class Layout(Protocol):
    """Names of cgroups. All paths are relative to each root."""

    @property
    def pods(self) -> PurePosixPath:
        """The parent of the best-effort cgroup, whose CPUs bound it."""

    def tier(self, name: str) -> PurePosixPath:
        """Return the cgroup of one tier. That of ``BEST_EFFORT`` is the one that is limited."""

    def pod_groups(self, root: Path, tier: str) -> Iterator[tuple[str, str]]:
        """Return uid and cgroup of each pod of a tier in the hierarchy at ``root``. Raises OSError if unreadable."""

    def may_set(self, group: PurePosixPath) -> bool:
        """Return whether the agent may set this pod's knobs."""


class Kubepods:
    """Cgroups made by a kubelet with the cgroupfs or systemd driver. ``pods`` ends in ``kubepods[.slice]``."""

    def __init__(self, pods: PurePosixPath) -> None:
        self.pods = pods
        self.by_systemd = pods.suffix == _SLICE

    def tier(self, name: str) -> PurePosixPath:
        """Return the cgroup of one QoS tier. Guaranteed pods are directly in the pods' cgroup."""
        if name == GUARANTEED:
            return self.pods
        return self.pods / (f"{self.pods.stem}-{name}{_SLICE}" if self.by_systemd else name)

    def pod_groups(self, root: Path, tier: str) -> Iterator[tuple[str, str]]:
        """Cgroups named after a pod's uid."""
        above = self.tier(tier)
        folder, (head, tail) = str(above), (f"{above.stem}-pod", _SLICE) if self.by_systemd else ("pod", "")
        for name in _groups_in(root / above):
            if name.startswith(head) and name.endswith(tail):
                uid = name[len(head) : len(name) - len(tail)]
                # systemd's names use underscores, since dashes separate parents.
                yield uid.replace("_", "-") if self.by_systemd else uid, f"{folder}/{name}"

    def may_set(self, group: PurePosixPath) -> bool:  # noqa: ARG002 - of any
        """Always: a kubelet writes a pod's cgroup only once."""
        return True


class PlainHost:
    """Systemd units and containers without Kubernetes. Each cgroup in the best-effort cgroup is a pod."""

    def __init__(self, best_effort: PurePosixPath) -> None:
        self.best_effort = best_effort
        self.pods = best_effort.parent
        self.others: Mapping[str, PurePosixPath] = {}
        """Cgroups elsewhere that are pods, by uid. The lister of pods replaces it as a whole."""

    def tier(self, name: str) -> PurePosixPath:
        """Return the best-effort cgroup. Other pods have no common parent."""
        return self.best_effort if name == BEST_EFFORT else _NO_GROUP

    def pod_groups(self, root: Path, tier: str) -> Iterator[tuple[str, str]]:
        """Cgroups in the best-effort cgroup; the others count as guaranteed."""
        if tier == BEST_EFFORT:
            for name in _groups_in(root / self.best_effort):
                yield uid_of(self.best_effort / name), f"{self.best_effort}/{name}"
        elif tier == GUARANTEED:
            yield from ((uid, str(group)) for uid, group in self.others.items() if (root / group).is_dir())

    def may_set(self, group: PurePosixPath) -> bool:
        """Only in the best-effort cgroup. Others belong to systemd and Docker."""
        return group.is_relative_to(self.best_effort)


def uid_of(group: PurePosixPath) -> str:
    """Return the uid of a cgroup without Kubernetes: its container id, else its path with colons for slashes."""
    container = _CONTAINER.fullmatch(group.name)
    return ":".join(group.parts) if container is None else container[1]


def _groups_in(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield entry.name
