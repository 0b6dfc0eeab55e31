"""Which groups are pods, in which tier, and which one group is held: on a Kubernetes node and on a plain host."""

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
_NO_GROUP = PurePosixPath("no group in common")
"""Nobody makes one of this name: whoever looks for it finds none."""
_CONTAINER = re.compile(r"(?:[a-z-]+-)?([0-9a-f]{64})(?:\.scope)?")


class Layout(Protocol):
    """Groups by name; all paths are relative to each root."""

    @property
    def pods(self) -> PurePosixPath:
        """The group above the best-effort group, whose CPUs that one may have."""

    def tier(self, name: str) -> PurePosixPath:
        """The group of one tier; of ``BEST_EFFORT``, the one group that is held."""

    def pod_groups(self, root: Path, tier: str) -> Iterator[tuple[str, str]]:
        """Uid and group, as text, of each pod of one tier that is there now, as the hierarchy at ``root`` has it.

        Raises:
            OSError: the tier's group cannot be read.

        """

    def may_set(self, group: PurePosixPath) -> bool:
        """Whether a pod's knobs are ours to set."""


class Kubepods:
    """As a kubelet makes them, by the driver cgroupfs or systemd.

    Args:
        pods: ``kubepods`` or ``kubepods.slice``, or a path that ends in such a name.

    """

    def __init__(self, pods: PurePosixPath) -> None:
        self.pods = pods
        self.by_systemd = pods.suffix == _SLICE

    def tier(self, name: str) -> PurePosixPath:
        """The group of one QoS tier. Guaranteed pods lie in the pods' group itself."""
        if name == GUARANTEED:
            return self.pods
        return self.pods / (f"{self.pods.stem}-{name}{_SLICE}" if self.by_systemd else name)

    def pod_groups(self, root: Path, tier: str) -> Iterator[tuple[str, str]]:
        """Groups named after a pod's uid."""
        above = self.tier(tier)
        folder, (head, tail) = str(above), (f"{above.stem}-pod", _SLICE) if self.by_systemd else ("pod", "")
        for name in _groups_in(root / above):
            if name.startswith(head) and name.endswith(tail):
                uid = name[len(head) : len(name) - len(tail)]
                # systemd's names have no dashes to spare.
                yield uid.replace("_", "-") if self.by_systemd else uid, f"{folder}/{name}"

    def may_set(self, group: PurePosixPath) -> bool:  # noqa: ARG002 - of any
        """A kubelet writes a pod's group once, and then leaves it alone."""
        return True


class PlainHost:
    """Units of systemd and containers without Kubernetes: each group in the best-effort group is a pod.

    Args:
        best_effort: the group that is held.

    """

    def __init__(self, best_effort: PurePosixPath) -> None:
        self.best_effort = best_effort
        self.pods = best_effort.parent
        self.others: Mapping[str, PurePosixPath] = {}
        """Groups elsewhere that are pods, by uid. Replaced as a whole, by whoever knows which."""

    def tier(self, name: str) -> PurePosixPath:
        """The best-effort group. Other pods lie where systemd and Docker put them, and have no group in common."""
        return self.best_effort if name == BEST_EFFORT else _NO_GROUP

    def pod_groups(self, root: Path, tier: str) -> Iterator[tuple[str, str]]:
        """What lies in the best-effort group; the others count as guaranteed."""
        if tier == BEST_EFFORT:
            for name in _groups_in(root / self.best_effort):
                yield uid_of(self.best_effort / name), f"{self.best_effort}/{name}"
        elif tier == GUARANTEED:
            yield from ((uid, str(group)) for uid, group in self.others.items() if (root / group).is_dir())

    def may_set(self, group: PurePosixPath) -> bool:
        """Only of what is held: what else there is belongs to systemd and to Docker."""
        return group.is_relative_to(self.best_effort)


def uid_of(group: PurePosixPath) -> str:
    """Of a group on a plain host: the id of the container whose it is, else its path with colons for slashes.

    A uid is a part of other names, in which slashes divide.
    """
    container = _CONTAINER.fullmatch(group.name)
    return ":".join(group.parts) if container is None else container[1]


def _groups_in(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield entry.name
