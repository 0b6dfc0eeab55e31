"""PURE: a sample in columns. Topic slacktide.node.sample.v2, key: node. Agent to streams.

    {"of":{"node":"node-1","boot_id":"000000000001-5c1f","policy_version":"5f3a","facts_revision":"9b02",
           "pods_revision":"77ac","limits":{"be_cfs_quota_us":840000},"be_group":"10"},
     "now":[1234,1763860000000,1000,7123,24123456789,1000,120,268435456,88,301989888],
     "psi":[12.3,0.0,0.0,null,null],"throttled":[0,10,3]}

``of`` holds what rarely changes. A reader compares its bytes with those of the node's sample before: they are equal
exactly where all that they state is equal. ``now`` holds the figures, in the order of the pod list that
``pods_revision`` names. What is rare stands in ``more``, right behind ``now``. A keyframe carries facts and pods, and
names the figures for people, in ``now_names``.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from slacktide.schemas.bounds import INT64_MAX, PODS_MAX, Amount, Count, Name, PressurePercent, Revision
from slacktide.schemas.inventory import NodeFacts, Pods
from slacktide.schemas.message import Message
from slacktide.schemas.sample import ContainerBurst, Drift, EvictState, Limits, LsPressure, Missing, PodUse

SampleFormat: TypeAlias = Literal["v1", "v2"]
"""v1: rows, on slacktide.node.sample.v1. v2: columns, on slacktide.node.sample.v2."""
DEFAULT_FORMAT: SampleFormat = "v2"
"""What an agent writes unless it is configured otherwise. Workers read both."""

Names: TypeAlias = Literal["seq observed_ms interval_ms cpu_milli mem_bytes since_raise_ms pods:cpu_milli,mem_bytes"]
NUMBERS: Names = "seq observed_ms interval_ms cpu_milli mem_bytes since_raise_ms pods:cpu_milli,mem_bytes"
NODE_NUMBERS = 6
"""Of ``now``: those of the node. Two of each pod follow."""
NONE = -1
"""In ``now``, where nothing is there to be measured: the limit was never raised, or the pod has no control group."""


class Of(Message, frozen=True, kw_only=True):
    """What rarely changes. Its bytes are compared, and read only where they differ."""

    node: Name
    boot_id: Revision
    """``<start counter, 12 digits>-<random>``: compares as text, the higher start wins."""
    clock_epoch: Count = 0
    policy_version: Revision
    """The policy that the agent holds; it decides by this one."""
    facts_revision: Revision
    pods_revision: Revision
    """Names the pod list by its content: ``now`` and ``be_group`` follow its order."""
    limits: Limits | None
    """None: the best-effort group's limit could not be read."""
    be_group: Annotated[str, Meta(max_length=PODS_MAX, pattern="^[01]*$")] = ""
    """A character for each pod of the list: 1 where its cgroup lies under the best-effort group."""
    now: Names = NUMBERS
    """Names the numbers in ``now``: written where these are others than ``now_names`` states."""


class More(Message, frozen=True, kw_only=True):
    """What is rare."""

    evict: EvictState = EvictState()
    drift: list[Drift] = []
    burst: list[ContainerBurst] = []
    missing: list[Missing] = []
    ls_lately_cpu_milli: Amount | None = None
    """What pods outside the best-effort group used within the last moment, where it rose."""
    ls_pressure: LsPressure | None = None
    """Where the policy goes by pressure."""
    others: Annotated[list[PodUse], Meta(max_length=PODS_MAX)] = []
    """Use of pods that the list does not name. Their entries in ``now``, if any, are -1."""


Number: TypeAlias = Annotated[int, Meta(ge=NONE, le=INT64_MAX)]
Now: TypeAlias = Annotated[list[Number | None], Meta(min_length=NODE_NUMBERS, max_length=NODE_NUMBERS + 2 * PODS_MAX)]
Psi: TypeAlias = Annotated[list[PressurePercent | None], Meta(min_length=5, max_length=5)]
Throttled: TypeAlias = Annotated[list[Count | None], Meta(max_length=3 * PODS_MAX)]
Part: TypeAlias = Annotated[list[Count], Meta(min_length=2, max_length=2)]


class SampleColumns(Message, frozen=True, kw_only=True):
    """A sample in columns: what rarely changes, then all figures in one list. JSON keeps this order."""

    of: Of
    now: Now
    """Six numbers of the node, then two of each pod. null: not known. since_raise_ms is -1 where the limit was not
    raised since the agent's start. Both numbers of a pod are -1 where it has no control group."""
    more: More = More()
    """Right behind ``now``, or absent."""
    psi: Psi | None = None
    """PSI averages over 10 s, percent of time stalled: cpu some, mem some, mem full, io some, io full."""
    throttled: Throttled = []
    """Three numbers for each pod that has a CPU limit: its place in the list from 0, CFS periods since the previous
    sample, and those of them in which it was throttled."""
    now_names: Names | None = None
    """Names the numbers in ``now``, for people: beside ``pods``."""
    facts: NodeFacts | None = None
    """Where they changed, and in a keyframe."""
    pods: Pods | None = None
    """Where they changed, and in a keyframe."""
    pods_part: Part | None = None
    """Reserved: ``pods`` is a part of the list that the revision names, by its number from 0 and how many parts there
    are. Agents of this version write whole lists, and readers take a list in parts for one that is not known."""
