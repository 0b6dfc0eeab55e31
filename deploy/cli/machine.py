"""Describes a node without an API server: from the operator's files, or as this machine."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slacktide.agents.files import Watched
from slacktide.agents.node.state import State
from slacktide.schemas import policy as policies
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.kubernetes import Described, described
from slacktide.schemas.policy import Parsed


class MachineError(SlacktideError):
    """The machine cannot be described."""


def node_item(node: str, proc_mount: Path = Path("/proc")) -> dict[str, Any]:
    """Describe the machine as a Node from kubectl, with all CPUs and memory allocatable.

    Raises MachineError if its memory cannot be determined.
    """
    meminfo = proc_mount / "meminfo"
    try:
        line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemTotal:"))
        mem_kib = int(line.split()[1])
    except (OSError, StopIteration, IndexError, ValueError) as exc:
        raise MachineError(
            f"{meminfo}: no MemTotal ({exc}); give the node's capacity in a file with --inventory FILE"
        ) from exc
    amounts = {"cpu": str(os.cpu_count() or 1), "memory": f"{mem_kib}Ki"}
    return {"kind": "Node", "metadata": {"name": node}, "status": {"capacity": amounts, "allocatable": amounts}}


def inventory(node: str, folder: Path, proc_mount: Path = Path("/proc")) -> Path:
    """Write the machine's inventory, without pods, and return the file, for ``--inventory``.

    Raises MachineError if the machine's memory cannot be determined, or the folder is not writable.
    """
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node_item(node, proc_mount)]}, indent=2)
    # Named after the node, since several agents may share the folder.
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
    """Return the message for a start without an inventory; ``lister``: the source of pods; "": none."""
    machine = f"no --inventory: node {node} is this machine with all its CPUs and memory"
    if lister:
        return f"{machine}; {lister} lists its pods"
    return f"{machine}, without pods; nothing is limited until an inventory contains pods"


class OperatorFiles:
    """Reads policy and inventory, or their last valid content from an earlier run.

    ``machine`` describes the Node if the inventory has none. Raises ConfigError if a file is invalid, and the state
    folder has no last valid content of it.
    """

    def __init__(
        self,
        policy: Path,
        inventory: Path,
        node: str,
        state_folder: Path,
        *,
        machine: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        state = State(state_folder)
        kept_policy, kept = state.policy(), state.inventory()
        self.policy: Watched[Parsed] = Watched(
            policy, policies.parse, last=None if kept_policy is None else Parsed(policy=kept_policy, notes=())
        )
        self.inventory: Watched[Described] = Watched(
            inventory,
            lambda document, file: described(document, file, node, machine=machine),
            last=None if kept is None else Described(facts=kept.facts, pods=kept.pods, notes=()),
        )
