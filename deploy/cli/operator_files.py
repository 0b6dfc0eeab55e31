"""The files that an operator writes, read before anything starts."""

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
    """Policy and inventory, each with its last good content from an earlier run, if there was one.

    Args:
        policy: the ConfigMap.
        inventory: the node.
        node: its name.
        state_folder: where an earlier run left what was good.
        machine: names the Node where the inventory holds none.

    Raises:
        ConfigError: a file does not validate and there is nothing good to go on with.

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
