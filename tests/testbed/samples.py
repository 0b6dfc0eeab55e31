"""Samples as an agent sends them, and records as the log holds them: short to write in a test."""

from typing import Any

from slacktide.schemas.codec import encode
from slacktide.schemas.inventory import NodeFacts, Pod, Resources, revision_of
from slacktide.schemas.message import Message
from slacktide.schemas.policy import KEY, Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import INVENTORY, POLICY, SAMPLE
from slacktide.streams.records import Record

BOOT = "000000000001-0000000a"
START_MS = 1_800_000_000_000
GIB = 2**30

SUPPRESS = policy_of(
    Colocation(enable=True, metric_aggregate_duration_s=10),
    ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota"),
)
FACTS = NodeFacts(
    name="node-1",
    capacity=Resources(cpu_milli=4_000, mem_bytes=16 * GIB),
    allocatable=Resources(cpu_milli=4_000, mem_bytes=16 * GIB),
)
SERVICE = Pod(
    uid="ls",
    namespace="shop",
    name="front",
    kube_qos="Burstable",
    requests=Resources(cpu_milli=2_000, mem_bytes=2 * GIB),
)
BATCH = Pod(uid="be", namespace="jobs", name="batch", qos_label="BE", kube_qos="BestEffort")
PODS = [SERVICE, BATCH]
CARRIED: dict[str, Any] = {"facts": FACTS, "pods": PODS}
"""What a keyframe carries beside its figures."""


def sample(seq: int, node: str = "node-1", **changes: Any) -> NodeSample:
    """One sample, a second after the one before it: LS uses 1 CPU, BE half of one, and the limit is 1.1 CPUs.

    The allowance is 4 x 65% - 1 = 1.6 CPUs, so that the answer raises the limit by a step.
    """
    fields: dict[str, Any] = {
        "node": node,
        "boot_id": BOOT,
        "seq": seq,
        "observed_ms": START_MS + seq * 1_000,
        "interval_ms": 1_000,
        "policy_version": SUPPRESS.version,
        "facts_revision": revision_of(FACTS),
        "pods_revision": revision_of(PODS),
        "use": NodeUse(cpu_milli=1_500, mem_bytes=4 * GIB),
        "pod_use": [
            PodUse(uid="ls", cpu_milli=1_000, mem_bytes=GIB),
            PodUse(uid="be", cpu_milli=500, mem_bytes=2 * GIB, best_effort_group=True),
        ],
        "limits": Limits(be_cfs_quota_us=110_000),
        "since_raise_ms": 1_000,
    }
    return NodeSample(**(fields | changes))


def keyframe(seq: int, node: str = "node-1", **changes: Any) -> NodeSample:
    return sample(seq, node, **(CARRIED | changes))


def body_of(said: NodeSample) -> bytes:
    """The sample as its agent writes it, whose pods are those that it carries, or ``PODS``."""
    return encoded(said, PODS if said.pods is None else said.pods)


def record_of(said: NodeSample, *, partition: int = 0, offset: int | None = None) -> Record:
    """The sample in the log, at the offset of its seq unless said."""
    return raw_record(body_of(said), key=said.node.encode(), partition=partition, offset=offset or said.seq)


def raw_record(value: bytes | None, *, key: bytes | None, partition: int = 0, offset: int = 0) -> Record:
    return Record(topic=SAMPLE.name, partition=partition, offset=offset, timestamp_ms=START_MS, key=key, value=value)


def policy_record(said: Policy | bytes | None = SUPPRESS, key: bytes = KEY.encode()) -> Record:
    value = encode(said) if isinstance(said, Message) else said
    return Record(topic=POLICY.name, partition=0, offset=0, timestamp_ms=START_MS, key=key, value=value)


def inventory_record(said: Message | bytes | None, node: str = "node-1", partition: int = 0) -> Record:
    """A node's inventory, any bytes, or its end, in the topic of inventories."""
    value = encode(said) if isinstance(said, Message) else said
    return Record(
        topic=INVENTORY.name, partition=partition, offset=0, timestamp_ms=START_MS, key=node.encode(), value=value
    )
