"""A minute of a node's window, for takeovers by other workers. Topic slacktide.node.window.v1, key: node."""

from slacktide.schemas.bounds import Count, Name, Product, Revision, TimeMs, Total
from slacktide.schemas.inventory import NodeFacts, Pods
from slacktide.schemas.message import Message


class PodSegment(Message, frozen=True, kw_only=True):
    """Resource use of one pod within the segment. Time with unknown use does not count."""

    uid: Name
    cpu_milli_ms: Product
    """Millicores times milliseconds."""
    cpu_ms: TimeMs
    """Time with known CPU use."""
    mem_bytes_ms: Product
    mem_ms: TimeMs
    parts: list[list[Product]] = []
    """The same four figures in parts of equal length, in order of time; empty: one part."""


class NodeWindowSegment(Message, frozen=True, kw_only=True):
    """One minute of event time in seconds; null: no sample, or unknown."""

    node: Name
    boot_id: Revision
    seq: Count
    """The newest sample in it."""
    observed_ms: TimeMs
    """Event time of that sample."""
    begin_ms: TimeMs
    """Begin of the first second."""
    covered_ms: list[TimeMs]
    """For each second, how much the samples cover."""
    node_cpu_milli: list[Total | None]
    node_mem_bytes: list[Total | None]
    system_cpu_milli: list[Total | None]
    system_mem_bytes: list[Total | None]
    pods: list[PodSegment] = []
    facts_revision: Revision = ""
    """Revision of ``facts``; "": no sample referred to facts."""
    facts: NodeFacts | None = None
    """The facts that samples referred to when the segment was written."""
    pods_revision: Revision = ""
    """Revision of ``listed``; "": no sample referred to a list."""
    listed: Pods | None = None
    """The pod list that samples referred to when the segment was written. It may be newer than the minute."""
