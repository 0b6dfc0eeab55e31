"""PURE: a sample in columns. Topic slacktide.node.sample.v2, key: node. Agent to streams.

    {"of":{"node":"node-1","boot_id":"000000000001-5c1f","policy_version":"5f3a","facts_revision":"9b02",
           "pods_revision":"77ac","limits":{"be_cfs_quota_us":840000},"be_group":"10"},
     "now":[1234,1763860000000,1000,7123,24123456789,1000,120,268435456,88,301989888],
     "looks":[120,0,0,0,0,0,500,0,100000,100000,80000,0,9000,0,0],
     "psi":[12.3,0.0,0.0,null,null],"throttled":[0,10,3]}

``of`` has fields that rarely change. A reader compares its bytes with those of the node's previous sample: they are
equal if and only if all fields are equal. ``now`` has the figures, in the order of the pod list with ``pods_revision``.
``looks`` follows if the policy uses pressure, and then ``more`` with rare fields. A keyframe carries facts and pods,
and ``now_names`` for people.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from slacktide.schemas.bounds import INT64_MAX, PODS_MAX, Amount, Count, Name, PressurePercent, Revision
from slacktide.schemas.inventory import NodeFacts, Pods
from slacktide.schemas.message import Message
from slacktide.schemas.sample import LOOKS_MAX, ContainerBurst, Drift, EvictState, Limits, Missing, PodPressure, PodUse

Names: TypeAlias = Literal["seq observed_ms interval_ms cpu_milli mem_bytes since_raise_ms pods:cpu_milli,mem_bytes"]
NUMBERS: Names = "seq observed_ms interval_ms cpu_milli mem_bytes since_raise_ms pods:cpu_milli,mem_bytes"
NODE_NUMBERS = 6
"""Numbers of the node in ``now``. Two of each pod follow."""
GATE_NUMBERS, LOOK_NUMBERS = 8, 7
"""Numbers of the gate in ``looks``, and of each look that follows."""
NONE = -1
"""In ``now``: nothing to measure, because the limit was never raised or the pod has no cgroup."""


class Of(Message, frozen=True, kw_only=True):
    """Fields that rarely change. Readers compare the bytes, and decode them only if they differ."""

    node: Name
    boot_id: Revision
    """``<start counter, 12 digits>-<random>``. Compared as text; the highest is the newest start."""
    clock_epoch: Count = 0
    policy_version: Revision
    """The policy in force on the agent."""
    facts_revision: Revision
    pods_revision: Revision
    """Content hash of the pod list, whose order ``now`` and ``be_group`` follow."""
    limits: Limits | None
    """None: the best-effort cgroup's limit could not be read."""
    be_group: Annotated[str, Meta(max_length=PODS_MAX, pattern="^[01]*$")] = ""
    """One character for each pod of the list: 1 if its cgroup is below the best-effort cgroup."""
    now: Names = NUMBERS
    """Names of the numbers in ``now``, present if they differ from ``now_names``."""


class More(Message, frozen=True, kw_only=True):
    """Rare fields."""

    evict: EvictState = EvictState()
    drift: list[Drift] = []
    burst: list[ContainerBurst] = []
    missing: list[Missing] = []
    pod_pressure: Annotated[list[PodPressure], Meta(max_length=PODS_MAX)] = []
    """PSI averages of each pod's cgroup, each 10 s, if the agent reads them."""
    ls_lately_cpu_milli: Amount | None = None
    """CPU use of pods outside the best-effort cgroup since the last look, if its rise caused this sample."""
    others: Annotated[list[PodUse], Meta(max_length=PODS_MAX)] = []
    """Use of pods that are not in the list. Their entries in ``now``, if any, are -1."""


Number: TypeAlias = Annotated[int, Meta(ge=NONE, le=INT64_MAX)]
Now: TypeAlias = Annotated[list[Number | None], Meta(min_length=NODE_NUMBERS, max_length=NODE_NUMBERS + 2 * PODS_MAX)]
Psi: TypeAlias = Annotated[list[PressurePercent | None], Meta(min_length=5, max_length=5)]
Looks: TypeAlias = Annotated[list[Count], Meta(max_length=GATE_NUMBERS + LOOK_NUMBERS * LOOKS_MAX)]
Throttled: TypeAlias = Annotated[list[Count | None], Meta(max_length=3 * PODS_MAX)]
Part: TypeAlias = Annotated[list[Count], Meta(min_length=2, max_length=2)]


class SampleColumns(Message, frozen=True, kw_only=True):
    """A sample in columns: rarely changed fields, then all figures in one list. JSON keeps this order."""

    of: Of
    now: Now
    """Six numbers of the node, then two of each pod. null: unknown. since_raise_ms is -1 if the limit was not raised
    since the agent's start. Both numbers of a pod are -1 if it has no cgroup."""
    looks: Looks = []
    """Right after ``now``, if the policy uses pressure: the gate after the previous sample (base_permille, closed as 0
    or 1, closed_ms, proof_looks, cut_permille, be_permille, pause_ms, wait_ms), then each look since, the oldest first
    (span_us, ls_cpu_us, be_cpu_us, idle_us, cpu_stall_us, mem_stall_us, throttled_us)."""
    more: More = More()
    """Right after ``now`` and ``looks``, or absent."""
    psi: Psi | None = None
    """PSI averages over 10 s, percent of time stalled: cpu some, mem some, mem full, io some, io full."""
    throttled: Throttled = []
    """Three numbers for each pod with a CPU limit: its index in the list, CFS periods since the previous sample, and
    the number of throttled ones."""
    now_names: Names | None = None
    """Names of the numbers in ``now``, for people; present with ``pods``."""
    facts: NodeFacts | None = None
    """Present if changed, and in a keyframe."""
    pods: Pods | None = None
    """Present if changed, and in a keyframe."""
    pods_part: Part | None = None
    """Reserved: ``pods`` is a part of the list: index and number of parts. Agents of this version write whole lists.
    Readers treat a list in parts as unknown."""
