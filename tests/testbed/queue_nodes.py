"""Nodes that sell resources to batch pods, and a ClusterQueue whose quota is a share of it."""

import msgspec

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import encode
from slacktide.schemas.inventory import LABEL_AGENT, NodeFacts, NodeInventory, Resources
from slacktide.schemas.message import Message
from slacktide.schemas.queue import NodeSize, OfferedObject, OfferedSpec
from slacktide.schemas.queue_objects import ClusterQueueObject, Metadata
from slacktide.schemas.topics import ALLOCATABLE, INVENTORY, Topic
from slacktide.streams.records import Record
from testbed.queue_log import queue

GI = 1 << 30


def sharing(name: str, percent: str = "100", *, cohort: str = "") -> ClusterQueueObject:
    """A ClusterQueue whose CPU is a share of what its flavor's nodes sell."""
    plain = queue(name, "1", cohort=cohort)
    annotations = {"slacktide.io/quota-of": "batch", "slacktide.io/quota-percent": percent}
    return msgspec.structs.replace(plain, metadata=Metadata(name=name, annotations=annotations))


def sold(cpu_milli: int, *nodes: int, memory: int = 100 * GI) -> OfferedObject:
    """What the flavor ``default`` sells, and its nodes."""
    sizes = [NodeSize(cpu_milli=node, memory_bytes=memory) for node in nodes]
    return OfferedObject(
        metadata=Metadata(name="default"), spec=OfferedSpec(cpu_milli=cpu_milli, memory_bytes=memory, nodes=sizes)
    )


def record(topic: Topic, node: str, message: Message | None) -> Record:
    value = None if message is None else encode(message)
    return Record(topic=topic.name, partition=0, offset=0, timestamp_ms=0, key=node.encode(), value=value)


def inventory(node: str, zone: str, *, unschedulable: bool = False, epoch: int = 0, agent: str = "") -> Record:
    amounts = Resources(cpu_milli=8_000, mem_bytes=8 * GI)
    facts = NodeFacts(
        name=node,
        capacity=amounts,
        allocatable=amounts,
        labels={"zone": zone, LABEL_AGENT: agent},
        unschedulable=unschedulable,
    )
    return record(INVENTORY, node, NodeInventory(node=node, revision="r", facts=facts, writer_epoch=epoch))


def allocatable(node: str, cpu_milli: int | None, *, seq: int = 1) -> Record:
    one = NodeAllocatable(
        node=node,
        boot_id="b",
        seq=seq,
        observed_ms=0,
        policy_version="p",
        facts_revision="f",
        pods_revision="p",
        window_ms=0,
        covered_ms=0,
        batch_cpu_milli=cpu_milli,
        batch_mem_bytes=None if cpu_milli is None else GI,
    )
    return record(ALLOCATABLE, node, one)
