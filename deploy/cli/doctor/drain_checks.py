"""Checks whether the drain of one node would leave new pods without the webhook. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.deploy.cli.doctor.finding import Finding, good, unknown, warned


def drain_finding(nodes: Sequence[str] | str) -> Finding:
    """Report on which nodes the webhook's pods run; a text: why this is not known."""
    check, needed = "cluster.drain", "webhook pods on two nodes, so that one can be drained"
    if isinstance(nodes, str):
        return unknown(check, nodes, needed, "list pods")
    there = sorted(set(nodes))
    if not there:
        return good(check, "no webhook yet", needed)
    if len(there) > 1:
        return good(check, f"on {len(there)} nodes", needed)
    advice = (
        f"while {there[0]} is drained, batch pods are created unchanged, and run as native pods. Before that, "
        "stop what creates batch pods, or set webhook.failClosed=true in the chart: docs/kubernetes.md#drain-a-node"
    )
    return warned(check, f"all on {there[0]}", needed, advice)
