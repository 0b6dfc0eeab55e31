"""Reads the operator's files before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slacktide.agents.files import Watched
from slacktide.agents.node.state import State
from slacktide.schemas import policy as policies
from slacktide.schemas.kubernetes import Described, described
from slacktide.schemas.policy import Parsed


class OperatorFiles:
    """Reads policy and inventory, or their last valid content from an earlier run.

    Args:
        policy: the ConfigMap.
        inventory: of the node.
        node: its name.
        state_folder: has the last valid content.
        machine: describes the Node if the inventory has none.

    Raises:
        ConfigError: a file is invalid, and there is no last valid content.
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
