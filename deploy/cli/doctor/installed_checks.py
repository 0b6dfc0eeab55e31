"""Checks what is installed in a cluster: an agent on each node, and a policy that is in force. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slacktide.deploy.cli.doctor.finding import Finding, failed, good, some, unknown
from slacktide.deploy.runtime.text import count
from slacktide.schemas.policy import RefusedFile, refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A node's agent."""

    node: str
    trouble: str
    """Why it is not ready; "": it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledFacts:
    """What is installed. A text in place of a value is the reason why it is not known."""

    agents: Sequence[Agent] | str
    """Of each node that the DaemonSet selects."""
    refused: RefusedFile | str | None
    """What is wrong in the ConfigMap of the policy; None: it is valid, or absent."""
    version: str = ""
    """The policy in force; "": unknown."""


def installed_findings(facts: InstalledFacts) -> Iterator[Finding]:
    """Report all findings."""
    yield _agents(facts.agents)
    yield _policy(facts)


def _agents(agents: Sequence[Agent] | str) -> Finding:
    check, needed = "cluster.agents", "a ready agent on each node"
    if isinstance(agents, str):
        return unknown(check, agents, needed, "get daemonsets, and list pods and nodes")
    lacking = [f"{one.node}: {one.trouble}" for one in agents if one.trouble]
    if not lacking:
        return good(check, f"ready on {count(len(agents), 'node')}" if agents else "not installed", needed)
    advice = (
        "these nodes offer no batch resources. `kubectl logs --namespace slacktide-system --previous POD` and "
        "`kubectl describe` of the pod show why. `helm --wait` does not wait for all agents: a tenth of them, at least "
        "one, may be missing"
    )
    return failed(check, some(lacking), needed, advice)


def _policy(facts: InstalledFacts) -> Finding:
    check, needed = "cluster.policy", "a valid ConfigMap slo-controller-config"
    if isinstance(facts.refused, str):
        return unknown(check, facts.refused, needed, "get this ConfigMap")
    if facts.refused is None:
        return good(check, "valid, or absent", needed)
    advice = "correct the ConfigMap; `slacktide policy lint FILE` checks it"
    return failed(check, refusal(facts.refused, facts.version), needed, advice)
