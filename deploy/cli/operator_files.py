"""The files that an operator writes, read before anything starts."""

from __future__ import annotations

from pathlib import Path

from slacktide.agents.files import Watched
from slacktide.agents.node.state import State
from slacktide.schemas import policy as policies
from slacktide.schemas.kubernetes import Described, described
from slacktide.schemas.policy import Parsed


class OperatorFiles:
    """Policy and inventory, each with its last good content from an earlier run, if there was one.

    Raises:
        ConfigError: a file does not validate and there is nothing good to go on with.

    """

    def __init__(self, policy: Path, inventory: Path, node: str, state_folder: Path) -> None:
        state = State(state_folder)
        kept_policy, kept = state.policy(), state.inventory()
        self.policy: Watched[Parsed] = Watched(
            policy, policies.parse, last=None if kept_policy is None else Parsed(policy=kept_policy, notes=())
        )
        self.inventory: Watched[Described] = Watched(
            inventory,
            lambda document, file: described(document, file, node),
            last=None if kept is None else Described(facts=kept.facts, pods=kept.pods, notes=()),
        )
