"""Core, socket and NUMA node of each CPU, from /sys/devices/system/cpu. Read once."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from slacktide.agents.node.cgroup import parse
from slacktide.schemas.inventory import Processor


def processors(folder: Path, allowed: Collection[int]) -> list[Processor]:
    """Return the allowed CPUs that are online, ascending. CPUs with unreadable topology are left out."""
    try:
        online = parse.cpus((folder / "online").read_bytes())
    except (OSError, ValueError):
        return []
    found = (_processor(folder, cpu) for cpu in sorted(online & set(allowed)))
    return [one for one in found if one is not None]


def _processor(folder: Path, cpu: int) -> Processor | None:
    """Return a CPU's topology. The core's id is its first CPU, since the kernel's ids repeat on each die."""
    place = folder / f"cpu{cpu}"
    try:
        siblings = parse.cpus((place / "topology/thread_siblings_list").read_bytes())
        socket = int((place / "topology/physical_package_id").read_bytes())
        nodes = [int(node.name.removeprefix("node")) for node in place.glob("node[0-9]*")]
    except (OSError, ValueError):
        return None
    return Processor(cpu=cpu, core=min(siblings | {cpu}), socket=max(0, socket), numa_node=min(nodes, default=0))
