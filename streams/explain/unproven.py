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
            text=f"samples that failed the node's proof were rejected beside valid ones: {listed}",
            advice="another writer uses its name: `slacktide dead-letter list` shows where; see docs/node-proof.md",
        )
    else:
        yield Finding(
            name="agent.unproven",
            severity="problem",
            text=f"all samples in the node's name failed the proof: {listed}; its guard decides",
            advice="the agent's log shows why it cannot enrol at the bridge; see docs/node-proof.md",
        )
