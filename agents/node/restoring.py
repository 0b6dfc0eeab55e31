"""Lifts limits that a former agent left."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec

from slacktide.agents.clock import SystemClock
from slacktide.agents.files import Watched
from slacktide.agents.node.agent import AgentSettings, NodeAgent
from slacktide.agents.node.interfaces import Kernel
from slacktide.agents.node.knobs import Tuned
from slacktide.agents.node.spool import MemorySpool
from slacktide.agents.node.state import Identity, State, forget
from slacktide.schemas.bounds import KnobValue
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.kubernetes import Described, described
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import DEFAULT, Policy
from slacktide.schemas.policy.resource_qos import CpuQos, CpuQosPolicy, QosClass, QosPolicies, ResourceQos
from slacktide.streams.decisions.knobs import wanted

_IDLE = QosClass(cpu=CpuQos(enable=True, sched_idle=1))
_MAY_HAVE_BEEN = [
    msgspec.structs.replace(DEFAULT, resource_qos=ResourceQos(policies=QosPolicies(cpu=by), be=_IDLE))
    for by in get_args(CpuQosPolicy)
]
"""Used if the state folder has no policy: the former policy may have set ``cpu.idle``, which no default does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The result of restoring."""

    outcomes: list[NodeOutcome]
    clean: bool
    """Whether no limit is left, so that the state folder was emptied."""


def restored(
    kernel: Kernel, node: str, folder: Path, inventory: Path | None, machine: Callable[[], Mapping[str, Any]]
) -> Restored:
    """Lift all limits of a node. ``inventory`` is as kubectl prints it; None: the one in ``folder``, else ``machine``.

    Raises:
        SlacktideError: an agent uses the state folder, or the inventory is invalid.
    """
    clock = SystemClock()
    identity = Identity(folder, start_ms=clock.wall_ms())
    try:
        state = State(folder)
        kept = state.inventory()
        if inventory is not None:
            known = Watched(inventory, lambda document, name: described(document, name, node, machine=machine)).value
        elif kept is not None:
            known = Described(facts=kept.facts, pods=kept.pods, notes=())
        else:
            document = {"apiVersion": "v1", "kind": "List", "items": [machine()]}
            known = described(document, "this machine", node)
        tuned = Tuned(folder)
        outcomes: list[NodeOutcome] = []
        agent = NodeAgent(
            node=node,
            boot_id=identity.boot_id,
            kernel=kernel,
            spool=MemorySpool(),
            clock=clock,
            policy=DEFAULT,
            facts=known.facts,
            pods=known.pods,
            settings=AgentSettings(),
            tuned=tuned,
            concluded=outcomes.append,
        )
        agent.start()
        agent.take()
        policy = state.policy()
        for each in _MAY_HAVE_BEEN if policy is None else [policy]:
            tuned.add(_as_rules_set_them(kernel, known, each))
        agent.close(removed=True)
        if agent.holds_nothing:
            forget(folder)
        return Restored(outcomes=outcomes, clean=agent.holds_nothing)
    finally:
        identity.release()


def _as_rules_set_them(kernel: Kernel, known: Described, policy: Policy) -> list[KnobKey]:
    """Knobs with values that the rules set: an agent has set them, even if the state folder does not list them."""
    colocation = msgspec.structs.replace(policy.colocation, enable=True)
    rules = wanted(known.facts, known.pods, msgspec.structs.replace(policy, colocation=colocation))
    held = kernel.held(sorted(rules)).values

    def is_set(key: KnobKey, value: KnobValue | None) -> bool:
        set_value = kernel.as_reads_back(key.knob, rules[key].value)
        # On cgroup v1 a best-effort pod's quota is cut to what the tier may use.
        if key.knob == "cfs_quota_us" and isinstance(value, int) and isinstance(set_value, int):
            return 0 < value <= set_value
        return value == set_value

    return [key for key, value in held.items() if is_set(key, value)]
