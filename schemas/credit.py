"""How many pods a node may evict. Topic slacktide.eviction.credit.v1, one partition, key: node. Governor to agents."""

from __future__ import annotations

from slacktide.schemas.bounds import Count, LeaseMs, Name, Revision, TimeMs
from slacktide.schemas.message import Message

NO_CREDIT = "no credit"
"""Why an eviction that is wanted is refused: the outcome with that reason asks for more."""


DESCHEDULER = "_descheduler"
"""Whose credit descheduling spends: it has an account as a node has, and no node can be called so."""

QUEUE = "_queue"
"""Whose credit evictions of the job queue spend: those after its quotas shrank."""
ACCOUNTS = frozenset({DESCHEDULER, QUEUE})
"""All that are no nodes."""


class EvictionCredit(Message, frozen=True, kw_only=True):
    """A node's lease. Totals, not differences: read twice or late it grants nothing twice.

    The highest (epoch, number) holds. It is good for ``ttl_ms`` of the node's monotonic time from its receipt.
    """

    node: Name
    boot_id: Revision
    """The boot that may spend it; another one asks anew."""
    epoch: Count
    """Of the governor; the highest wins."""
    number: Count
    """Counts this governor's records."""
    granted: Count
    """Evictions since the agent's start that the node may have done in all: what it has spent counts in."""
    ttl_ms: LeaseMs
    spared_namespaces: list[str] = []
    """Whose budget is used up: none of their pods may go."""
    spent: Count = 0
    """What of it the governor has seen spent: the next governor counts the rest as outstanding."""
    granted_ms: TimeMs = 0
    """Time of the grant, UTC epoch: evidence, never order."""
