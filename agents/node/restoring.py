"""Lifts limits that a former agent left, and finds out whether an agent that ends is being uninstalled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec

from slacktide.agents.clock import SystemClock
from slacktide.agents.files import Watched
from slacktide.agents.http import Access, HttpError
from slacktide.agents.node.agent import AgentSettings, NodeAgent
from slacktide.agents.node.apiserver import ApiServer
from slacktide.agents.node.identity import Identity
from slacktide.agents.node.kernel import Kernel
from slacktide.agents.node.knobs.tuned import Tuned
from slacktide.agents.node.spool import MemorySpool
from slacktide.agents.node.state import State, forget
from slacktide.agents.workload import Standing, is_removed, namespace_of, path_of, standing
from slacktide.schemas.backoff import Backoff
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
        known = _known(state, node, inventory, machine)
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


def _known(state: State, node: str, inventory: Path | None, machine: Callable[[], Mapping[str, Any]]) -> Described:
    if inventory is not None:
        return Watched(inventory, lambda document, name: described(document, name, node, machine=machine)).value
    kept = state.inventory()
    if kept is not None:
        return Described(facts=kept.facts, pods=kept.pods, notes=())
    document = {"apiVersion": "v1", "kind": "List", "items": [machine()]}
    return described(document, "this machine", node)


def _as_rules_set_them(kernel: Kernel, known: Described, policy: Policy) -> list[KnobKey]:
    """Knobs with values that the rules set: an agent has set them, even if the state folder does not list them."""
    colocation = msgspec.structs.replace(policy.colocation, enable=True)
    rules = wanted(known.facts, known.pods, msgspec.structs.replace(policy, colocation=colocation))
    held = kernel.held(sorted(rules)).values

    def is_set(key: KnobKey, value: int | None) -> bool:
        set_value = kernel.as_reads_back(key.knob, rules[key].value)
        # On cgroup v1 a best-effort pod's quota is cut to what the tier may use.
        cut = key.knob == "cfs_quota_us" and value is not None and 0 < value < (set_value or 0)
        return cut or value == set_value

    return [key for key, value in held.items() if is_set(key, value)]


log = logging.getLogger(__name__)

ANSWER_S = 2.0
"""How long an ending agent waits for the API server. Without an answer it leaves limits in force."""
RETRY_S, RETRY_MAX_S = 1.0, 60.0


class Removal:
    """Reads the agent's DaemonSet (NAMESPACE/NAME) and namespace from the API server at start and at exit."""

    def __init__(self, access: Access, daemon_set: str) -> None:
        self._access = access
        self._daemon_set = daemon_set
        self._was_there = False

    async def run(self) -> None:
        """Retry until the API server has answered, then wait until cancelled."""
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while (now := await self._ask()) == "unknown":  # noqa: ASYNC110 - nothing signals that the server is back
            await asyncio.sleep(backoff.next_s())
        self._was_there = now == "there"
        if not self._was_there:
            log.warning(
                "the DaemonSet cannot be read: if it is deleted, limits may stay in force",
                extra={"daemon_set": self._daemon_set, "standing": now, "remedy": "slacktide agent restore"},
            )
        await asyncio.Event().wait()

    async def removed(self) -> bool:
        """Return whether the DaemonSet is deleted; False if the API server does not answer within 2 s."""
        now: Standing = "unknown"
        try:
            async with asyncio.timeout(ANSWER_S):
                now = await self._ask()
        except TimeoutError:
            pass
        removed = is_removed(now, was_there=self._was_there)
        log.info(
            "the agent is being removed: it removes all limits" if removed else "the agent stops: limits stay in force",
            extra={"daemon_set": self._daemon_set, "standing": now},
        )
        return removed

    async def _ask(self) -> Standing:
        return await asyncio.to_thread(self._asked)

    def _asked(self) -> Standing:
        """Use a new connection, since an earlier request may still be open on another thread."""
        server = ApiServer(self._access)
        try:
            answer = server.get(path_of("daemonsets", self._daemon_set))
            now = standing(answer.status, answer.body)
            if now == "there":
                around = server.get(namespace_of(self._daemon_set))
                now = "deleted" if standing(around.status, around.body) == "deleted" else now
        except HttpError as exc:
            log.info("no answer about the DaemonSet", extra={"daemon_set": self._daemon_set, "why": str(exc)})
            return "unknown"
        finally:
            server.close()
        return now
