"""Interfaces of an agent: a kernel, which reads figures and changes best-effort pods, and a spool of outcomes."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slacktide.schemas.bounds import KnobValue
from slacktide.schemas.inventory import Pod, Processor
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits, LsPressure, Missing, NodeUse, PodPressure, PodUse
from slacktide.streams.decisions.evict.mem_reclaim import MemoryLook

UNLIMITED_US = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCpu:
    """One container's CPU: what it may use now, and what it did since the previous look."""

    pod: str
    container: str
    quota_us: int
    """Per 100 ms; -1: unlimited."""
    pod_quota_us: int
    """The same of its pod."""
    used_milli: int | None = None
    """None: not known, as in a first look."""
    periods: int | None = None
    throttled_periods: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainersLook:
    """The containers that are there, and what could not be read."""

    containers: list[ContainerCpu]
    missing: list[Missing]
    calm: frozenset[str] = frozenset()
    """Uids of pods none of whose containers was throttled or held more than its limit for a while: left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """What the kernel reclaimed from one pod."""

    freed_bytes: int
    swapped_bytes: int
    """What of it went to swap."""
    writes: int
    tried_bytes: int
    """What was asked for in time."""


class ReclaimableMemory(Protocol):
    """Memory of best-effort pods. Used on a thread of its own, since writes block."""

    @property
    def trouble(self) -> str:
        """Why nothing can be reclaimed on this node; "": it can."""

    def look(self, uids: Collection[str], now_ns: int) -> MemoryLook:
        """Read the node's free memory, stalls since the previous look, and what these pods hold."""

    def reclaim(self, uid: str, ask_bytes: int, *, in_time: Callable[[], bool]) -> Reclaim:
        """Reclaim memory in parts while ``in_time``. Raises CgroupError as ``BestEffortPods``."""


class BestEffortPods(Protocol):
    """Pods whose cgroups are below the best-effort cgroup. Other pods are always refused.

    Methods raise CgroupError if the pod is refused, its processes cannot be read or signalled, or the kernel refuses.
    """

    @property
    def freeze_trouble(self) -> str:
        """Why no pod can be frozen on this node; "": freezing works."""

    @property
    def memory(self) -> ReclaimableMemory:
        """Their memory."""

    def processes(self, uid: str) -> int:
        """Return how many processes run in a pod; 0: none, or the pod is gone."""

    def terminate(self, uid: str) -> None:
        """Send SIGTERM to a pod's processes. A frozen pod is thawed for it."""

    def kill(self, uid: str) -> None:
        """Send SIGKILL to a pod's processes. They may take a moment to end: see ``processes``."""

    def freeze(self, uid: str) -> bool:
        """Freeze a pod. False: some processes freeze later, when a system call returns."""

    def thaw(self, uid: str) -> None:
        """Thaw a pod. A pod that is gone is ignored. One that stays frozen raises CgroupError."""

    def frozen(self) -> frozenset[str]:
        """Return the uids of all frozen pods, whoever froze them."""


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
class Beside:
    """What a sample has beside a reading."""

    ls_lately_cpu_milli: int | None = None
    ls_pressure: LsPressure | None = None
    pod_pressure: Sequence[PodPressure] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Values of knobs. Missing cgroups have none."""

    values: Mapping[KnobKey, KnobValue | None]
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

    def put(self, key: KnobKey, value: KnobValue | None) -> None:
        """Set one knob; None: unlimited."""

    def as_reads_back(self, knob: Knob, value: KnobValue | None) -> KnobValue | None:
        """Return the value that ``held`` returns after ``put``, since kernels round."""


class Spool(Protocol):
    """Intents and outcomes of one node. Never raises and never blocks an act."""

    def intend(self, outcome: NodeOutcome) -> None:
        """Record an act before it happens, with its intended outcome."""

    def conclude(self, outcome: NodeOutcome) -> None:
        """Keep an outcome until it is acknowledged. It closes the intent with the same id, rule and target."""

    def interrupted(self) -> list[NodeOutcome]:
        """Return the intents without an outcome: acts that the last run began and did not finish."""

    def pending(self, limit: int) -> list[tuple[int, NodeOutcome]]:
        """Return the oldest unacknowledged outcomes in order, each with its position."""

    def acknowledge(self, position: int) -> None:
        """Kafka has all outcomes up to and including this position."""
