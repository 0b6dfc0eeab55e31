"""A minute of a node's window, for whoever takes the node over. Topic slacktide.node.window.v1, key: node."""

from __future__ import annotations

from slacktide.schemas.message import Count, Message


class PodSegment(Message, frozen=True, kw_only=True):
    """What one pod used within the segment; a figure that was unknown for a while weighs less."""

    uid: str
    cpu_milli_ms: Count
    """Millicores times milliseconds."""
    cpu_ms: Count
    """Time for which its CPU use is known."""
    mem_bytes_ms: Count
    mem_ms: Count
    parts: list[list[Count]] = []
    """The same four figures in parts of equal length, in order of time; none: it is one part."""


class NodeWindowSegment(Message, frozen=True, kw_only=True):
    """One minute of event time as its samples left it: seconds in a row, null where none came or it was not known."""

    node: str
    boot_id: str
    seq: Count
    """The newest sample in it."""
    observed_ms: Count
    """Event time of that sample."""
    begin_ms: Count
    """Of the first second."""
    covered_ms: list[Count]
    """Of each second, how much the samples cover."""
    node_cpu_milli: list[int | None]
    node_mem_bytes: list[int | None]
    system_cpu_milli: list[int | None]
    system_mem_bytes: list[int | None]
    pods: list[PodSegment] = []
