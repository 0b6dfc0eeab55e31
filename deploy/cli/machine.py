"""This machine as a node, for whoever has no inventory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from slacktide.schemas.errors import SlacktideError


class MachineError(SlacktideError):
    """The machine cannot be described."""


def node_item(node: str, proc_mount: Path = Path("/proc")) -> dict[str, Any]:
    """Describe the machine as kubectl prints a Node, all of its CPUs and memory allocatable.

    Args:
        node: its name.
        proc_mount: /proc.

    Raises:
        MachineError: the memory of the machine cannot be read.

    """
    amounts = {"cpu": str(os.cpu_count() or 1), "memory": f"{_mem_kib(proc_mount / 'meminfo')}Ki"}
    return {"kind": "Node", "metadata": {"name": node}, "status": {"capacity": amounts, "allocatable": amounts}}


def inventory(node: str, folder: Path, proc_mount: Path = Path("/proc")) -> Path:
    """Describe the machine in a file, without pods.

    Args:
        node: its name.
        folder: where the inventory is written; made if absent.
        proc_mount: /proc.

    Returns:
        The file, as ``--inventory`` takes it.

    Raises:
        MachineError: the memory of the machine cannot be read, or the folder takes no file.

    """
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node_item(node, proc_mount)]}, indent=2)
    # Named after the node: agents of other nodes may look at their own.
    file = folder / f"machine-{node.replace('/', '_')}.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text() != text:
            new = file.with_suffix(".new")
            new.write_text(text)
            new.replace(file)
    except OSError as exc:
        raise MachineError(f"{file}: {exc.strerror}; give a folder with --state-folder, or --inventory FILE") from exc
    return file


def description(node: str, lister: str = "") -> str:
    """For whoever starts without an inventory; ``lister`` lists the pods, if anybody does."""
    machine = f"no --inventory: node {node} is this machine with all its CPUs and memory"
    if lister:
        return f"{machine}; its pods are those of {lister}"
    return f"{machine}, without pods; nothing is held back before an inventory names pods"


def _mem_kib(meminfo: Path) -> int:
    try:
        line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemTotal:"))
        return int(line.split()[1])
    except (OSError, StopIteration, IndexError, ValueError) as exc:
        raise MachineError(f"{meminfo}: no MemTotal ({exc}); describe the node with --inventory FILE") from exc
