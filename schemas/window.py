"""A minute of a node's window, for whoever takes the node over. Topic slacktide.node.window.v1, key: node."""

from __future__ import annotations

from slacktide.schemas.bounds import Count, Name, Product, Revision, TimeMs, Total
from slacktide.schemas.inventory import NodeFacts, Pods
from slacktide.schemas.message import Message


class PodSegment(Message, frozen=True, kw_only=True):
    """What one pod used within the segment; a figure that was unknown for a while weighs less."""

    uid: Name
    cpu_milli_ms: Product
    """Millicores times milliseconds."""
    cpu_ms: TimeMs
    """Time for which its CPU use is known."""
    mem_bytes_ms: Product
    mem_ms: TimeMs
    parts: list[list[Product]] = []
    """The same four figures in parts of equal length, in order of time; none: it is one part."""


class NodeWindowSegment(Message, frozen=True, kw_only=True):
    """One minute of event time as its samples left it: seconds in a row, null where none came or it was not known."""

    node: Name
    boot_id: Revision
    seq: Count
    """The newest sample in it."""
    observed_ms: TimeMs
    """Event time of that sample."""
    begin_ms: TimeMs
    """Of the first second."""
    covered_ms: list[TimeMs]
    """Of each second, how much the samples cover."""
    node_cpu_milli: list[Total | None]
    node_mem_bytes: list[Total | None]
    system_cpu_milli: list[Total | None]
    system_mem_bytes: list[Total | None]
    pods: list[PodSegment] = []
    facts_revision: Revision = ""
    """Of ``facts``; "": no sample named any."""
    facts: NodeFacts | None = None
    """That the node's samples named when the segment was written."""
    pods_revision: Revision = ""
    """Of ``listed``; "": no sample named a list."""
    listed: Pods | None = None
    """The pod list that the node's samples named when the segment was written. It need not be that of the minute."""
