"""Reports samples that failed the node proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.node_log import NodeLog


def unproven_findings(log: NodeLog) -> Iterator[Finding]:
    """Report rejected samples with the node's name, and the reason."""
    if not log.refused:
        return
    verdicts = Counter(one.body.proof for one in log.refused)
    listed = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    if log.commands:
        yield Finding(
            name="agent.forged",
            severity="warning",
            text=f"some samples with the node's name were rejected, because their signature is not valid: {listed}",
            advice="another writer uses the node's name: `slacktide dead-letter list` shows its records; see "
            "docs/node-proof.md",
        )
    else:
        yield Finding(
            name="agent.unproven",
            severity="problem",
            text=f"all samples of the node were rejected, because their signature is not valid: {listed}; its guard "
            "decides",
            advice="the agent's log shows why it cannot enrol at the bridge; see docs/node-proof.md",
        )
