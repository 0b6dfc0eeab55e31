"""What nodes offer to the job queue, as the queue's own objects. Kubernetes has no such kinds."""

from slacktide.schemas.bounds import Int64
from slacktide.schemas.queue_objects import Part, QueueObject


class NodeSize(Part, frozen=True, kw_only=True):
    """The batch resources of one node."""

    cpu_milli: Int64 = 0
    memory_bytes: Int64 = 0


class OfferedSpec(NodeSize, frozen=True, kw_only=True):
    """The batch resources of a flavor's nodes, damped."""

    nodes: list[NodeSize] = []
    """The batch resources of each node at the time of this record, not damped. Empty: unknown."""


class OfferedObject(QueueObject, frozen=True, kw_only=True):
    """Not of Kubernetes: the figure that quotas are a share of. Its name is the flavor's."""

    spec: OfferedSpec = OfferedSpec()
