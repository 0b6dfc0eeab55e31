"""``placement-config``, Slacktide's own key: up to which load a node takes pods.

Names and defaults are those of the reference's LoadAwareSchedulingArgs: koordinator a7a1b76b,
pkg/scheduler/apis/config/types.go and v1/defaults.go.
"""

from __future__ import annotations

from slacktide.schemas.message import Message
from slacktide.schemas.policy.descheduling import UsagePercents

KEY = "placement-config"


class Placement(Message, frozen=True, kw_only=True):
    """Thresholds of the scheduler, in percent of the node's allocatable."""

    usage: UsagePercents = UsagePercents(cpu_pct=65, mem_pct=95)
    """A node's use, the pod included, up to which it takes the pod. 0: any."""
    prod_usage: UsagePercents = UsagePercents()
    """Use of production pods alone, for a production pod. If both are unset, ``usage`` is used for these, too."""
    factors: UsagePercents = UsagePercents(cpu_pct=85, mem_pct=70)
    """How much of its request a pod counts until it is measured."""
    dry_run: bool = False
    """Publish which nodes would refuse a pod and which it would prefer, and let each node pass."""
