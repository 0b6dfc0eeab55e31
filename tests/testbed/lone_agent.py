"""An agent that no log reaches, a clock that a test moves, and commands that a test gives."""

from typing import Any

from slacktide.agents.clock import Clock
from slacktide.agents.node.agent import AgentSettings, NodeAgent
from slacktide.agents.node.interfaces import Kernel, Spool
from slacktide.agents.node.spool import MemorySpool
from slacktide.schemas.command import NodeCommand, command_id
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample

BOOT = "000000000007-0badcafe"
WALL_MS = 1_700_000_000_000


class SteppedClock:
    """Time that moves when told."""

    def __init__(self, now_ns: int = 10_000_000_000) -> None:
        self.now_ns = now_ns

    def mono_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ns // 1_000_000

    def pass_ms(self, ms: int) -> None:
        self.now_ns += ms * 1_000_000


def lone_agent(
    kernel: Kernel,
    clock: Clock,
    facts: NodeFacts,
    *,
    spool: Spool | None = None,
    boot_id: str = BOOT,
    settings: dict[str, Any] | None = None,
    suspended: str = "",
    **given: Any,
) -> NodeAgent:
    """An agent that has started; ``given``: its policy, its pods, and what else a test is about."""
    agent = NodeAgent(
        node=facts.name,
        boot_id=boot_id,
        kernel=kernel,
        spool=MemorySpool() if spool is None else spool,
        clock=clock,
        facts=facts,
        settings=AgentSettings(**settings or {}),
        **given,
    )
    agent.suspend(suspended)
    agent.start()
    return agent


def command_on(sample: NodeSample, policy: Policy, **said: Any) -> NodeCommand:
    """A command about this sample and what it goes by; ``said``: the answer, and what it holds."""
    return NodeCommand(
        id=command_id(sample.node, sample.boot_id, sample.seq, "answer", sample.node, policy.version),
        node=sample.node,
        boot_id=sample.boot_id,
        seq=sample.seq,
        observed_ms=sample.observed_ms,
        policy_version=policy.version,
        facts_revision=sample.facts_revision,
        pods_revision=sample.pods_revision,
        **said,
    )
