"""Families of pod settings that the policy makes a dry run: decided and reported, not carried out. Pure."""

from __future__ import annotations

from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on, cpu_burst_on, resource_qos_on
from slacktide.streams.decisions.burst import cpu_burst_value, node_burst
from slacktide.streams.decisions.knobs import be_isolation

QOS = frozenset({"CPUQOS", "MemoryQOS"})
BURSTS = frozenset({cpu_burst_value.RULE, node_burst.RULE})


def dry_run_families(facts: NodeFacts, policy: Policy) -> frozenset[str]:
    """Families of rules that only report on this node."""
    found: frozenset[str] = frozenset()
    if colocation_on(policy, facts).isolation_dry_run:
        found |= {be_isolation.RULE}
    if resource_qos_on(policy, facts).dry_run:
        found |= QOS
    if cpu_burst_on(policy, facts).dry_run:
        found |= BURSTS
    return found


def family_of(rule: str) -> str:
    """Return a rule without its QoS class: ``MemoryQOS`` for ``MemoryQOS (beClass)``."""
    return rule.partition(" ")[0]
