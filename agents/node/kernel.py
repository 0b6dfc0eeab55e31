"""What an agent needs of a node's kernel, whichever kernel it is: read it, and hold best-effort pods."""

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
    """What knobs hold. A group that is not there has none."""

    values: Mapping[KnobKey, int | None]
    """None: unlimited."""
    lacking: Mapping[KnobKey, str]
    """Of groups that are there: why a knob is not."""


class Kernel(Protocol):
    """One node's kernel. Synchronous: all of it is a few hundred small file reads."""

    @property
    def best_effort(self) -> BestEffortPods:
        """Best-effort pods, to end or stop one."""

    def read(self, mono_ns: int) -> Reading:
        """Read every figure once. Never raises for what is missing or malformed: it is in ``missing``."""

    def containers(self, pods: Sequence[Pod], mono_ns: int, spare: Collection[str] = ()) -> ContainersLook:
        """Look at the CPU of these pods' containers that have a limit; nothing is kept open of any others.

        Which pods there are, the last ``read`` saw. Those of ``spare`` (uids) may be left out where they are calm.
        """

    def processors(self) -> list[Processor]:
        """CPUs that pods may run on, ascending; none where best-effort pods cannot be bound to CPUs."""

    def limits(self) -> Limits:
        """Read back what the best-effort group holds now.

        Raises:
            CgroupError: it cannot be read.

        """

    def hold(self, limits: Limits) -> None:
        """Make the best-effort group hold these limits; nothing else is ever touched.

        Raises:
            CgroupError: a write was refused; what was written before it stays.

        """

    def know(self, pods: Sequence[Pod]) -> None:
        """These pods are on the node; of no others is any knob read or set."""

    def held(self, keys: Iterable[KnobKey]) -> Held:
        """What knobs of groups hold now, in the units of ``schemas.sample.Knob``; those of a group side by side.

        A best-effort pod's quota is its own, also while the limit of all of them leaves it less.
        """

    def put(self, key: KnobKey, value: int | None) -> None:
        """Make one knob hold this; None: unlimited.

        Raises:
            CgroupError: its group is not there, the kernel refused, or it must not be set to this.

        """

    def as_reads_back(self, knob: Knob, value: int | None) -> int | None:
        """What ``held`` gives for a knob once this was put: kernels round."""
