"""The kernel interface of an agent: read figures, and limit best-effort pods."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slacktide.agents.node.evict.best_effort import BestEffortPods
from slacktide.agents.node.knobs.container_cpu import ContainersLook
from slacktide.schemas.inventory import Pod, Processor
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.sample import Limits, Missing, NodeUse, PodUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Rates since the previous reading, and the limit in force now."""

    interval_ms: int
    """Monotonic time since the previous reading; 0 for the first, whose rates are None."""
    use: NodeUse
    pod_use: list[PodUse]
    limits: Limits | None
    missing: list[Missing]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Values of knobs. Missing cgroups have none."""

    values: Mapping[KnobKey, int | None]
    lacking: Mapping[KnobKey, str]
    """Why existing cgroups lack a knob."""


class Kernel(Protocol):
    """One node's kernel. Synchronous, since a reading is a few hundred small file reads.

    ``limits``, ``hold`` and ``put`` raise CgroupError if a cgroup is missing, the kernel refuses, or a value is not
    permitted. Earlier writes stay.
    """

    @property
    def best_effort(self) -> BestEffortPods:
        """Kills and freezes best-effort pods."""

    def read(self, mono_ns: int) -> Reading:
        """Read every figure once. Unreadable figures are listed in ``missing``; nothing is raised for them."""

    def containers(self, pods: Sequence[Pod], mono_ns: int, spare: Collection[str] = ()) -> ContainersLook:
        """Read the CPU of these pods' containers that have a limit. Files of other pods are closed.

        Only pods seen by the last ``read`` are found. Calm pods in ``spare`` (uids) may be left out.
        """

    def processors(self) -> list[Processor]:
        """Return the CPUs that pods may run on, ascending; empty if best-effort pods cannot be bound to CPUs."""

    def limits(self) -> Limits:
        """Read the limits of the best-effort cgroup."""

    def hold(self, limits: Limits) -> None:
        """Set these limits on the best-effort cgroup, and on nothing else."""

    def know(self, pods: Sequence[Pod]) -> None:
        """Set the known pods. Knobs of other pods are neither read nor set."""

    def held(self, keys: Iterable[KnobKey]) -> Held:
        """Read knobs, in the units of ``schemas.sample.Knob``; those of one cgroup must be adjacent.

        A best-effort pod's quota is its own one, also while it is cut to fit.
        """

    def put(self, key: KnobKey, value: int | None) -> None:
        """Set one knob; None: unlimited."""

    def as_reads_back(self, knob: Knob, value: int | None) -> int | None:
        """Return the value that ``held`` returns after ``put``, since kernels round."""
