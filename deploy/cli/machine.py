"""This machine as a node, for whoever has no inventory."""

from __future__ import annotations

import os
from pathlib import Path

from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.inventory import NodeFacts, Resources


class MachineError(SlacktideError):
    """The machine does not say what it has."""


def facts(node: str, proc_mount: Path = Path("/proc")) -> NodeFacts:
    """The machine's CPUs and memory, all of it allocatable, under a node's name.

    Raises:
        MachineError: its memory is not told.

    """
    file = proc_mount / "meminfo"
    try:
        words = next(line.split() for line in file.read_text().splitlines() if line.startswith("MemTotal:"))
        mem_bytes = int(words[1]) * 1024
    except (OSError, StopIteration, IndexError, ValueError) as exc:
        raise MachineError(f"{file}: no MemTotal ({exc}); describe the node with --inventory FILE") from exc
    resources = Resources(cpu_milli=1000 * (os.cpu_count() or 1), mem_bytes=mem_bytes)
    return NodeFacts(name=node, capacity=resources, allocatable=resources)


def said(found: NodeFacts) -> str:
    """What was found, for whoever starts without an inventory."""
    cpus, gib = (found.capacity.cpu_milli or 0) // 1000, (found.capacity.mem_bytes or 0) / 2**30
    return (
        f"no --inventory: node {found.name} is this machine, {cpus} CPUs and {gib:.1f} GiB, without pods; "
        "nothing is held back before an inventory names pods"
    )
