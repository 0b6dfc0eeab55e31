"""Checks the agent that runs here, and its records in Kafka. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.deploy.cli.doctor.facts import AgentFacts
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, warned
from slacktide.streams.explain.evidence import Finding as Explained

SILENT = ("agent.silent", "figures.stand")
"""Findings about a node whose agent does not run, as before an upgrade."""


def agent_findings(facts: AgentFacts | None) -> Iterator[Finding]:
    """Report the process's health, as its probes see it."""
    if facts is None:
        yield good("agent.live", "no agent runs here", "an agent that answers, if one runs")
        return
    check, needed = "agent.live", "an agent that answers"
    if facts.not_live:
        advice = (
            "check that --metrics-host and --metrics-port are the agent's; if the agent is frozen, restart it: "
            "until then best-effort pods keep their last limit"
        )
        yield failed(check, f"{facts.url}: {facts.not_live}", needed, advice)
        return
    yield good(check, facts.url, needed)
    needed, advice = "its log and the checks below show what is missing", "an agent that is ready"
    if facts.not_ready:
        yield failed("agent.ready", facts.not_ready, needed, advice)
    if facts.not_fresh:
        yield warned("agent.fresh", facts.not_fresh, "samples that are answered in time", advice)


def node_findings(node: str, explained: Sequence[Explained], *, runs: bool) -> Iterator[Finding]:
    """Report the node's health, as Kafka shows it.

    Args:
        node: its name.
        explained: the freshness findings of `slacktide explain node`.
        runs: whether an agent runs here; if not, its silence is expected.
    """
    needed = f"fresh samples and answers of node {node}"
    bad = [one for one in explained if one.severity in {"problem", "warning"}]
    if not bad:
        yield good("node.fresh", f"fresh: node {node}", needed)
    for one in bad:
        wrong = failed if one.severity == "problem" and (runs or one.name not in SILENT) else warned
        yield wrong("node.fresh", one.text, needed, f"{one.advice}; `slacktide explain node {node}` shows more")
