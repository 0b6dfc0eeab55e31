"""How many pods a node may evict. Topic slacktide.eviction.credit.v1, one partition, key: node. Governor to agents."""

from slacktide.schemas.bounds import Count, LeaseMs, Name, Revision, TimeMs
from slacktide.schemas.message import Message

NO_CREDIT = "no credit"
"""Why an eviction is refused. An outcome with this reason requests credit."""


DESCHEDULER = "_descheduler"
"""Account of descheduling. No node can have this name."""

QUEUE = "_queue"
"""Account of the job queue, for evictions after its quotas shrank."""
ACCOUNTS = frozenset({DESCHEDULER, QUEUE})
"""Accounts that are not nodes."""


class EvictionCredit(Message, frozen=True, kw_only=True):
    """A node's lease, in totals: reading it twice or late grants nothing twice.

    The highest (epoch, number) wins. It is valid for ``ttl_ms`` of the node's monotonic time from its receipt.
    """

    node: Name
    boot_id: Revision
    """The boot that may spend it. Another boot must request credit again."""
    epoch: Count
    """Epoch of the governor; the highest wins."""
    number: Count
    """Number of this governor's record."""
    granted: Count
    """Total evictions permitted since the agent's start, including those already spent."""
    ttl_ms: LeaseMs
    spared_namespaces: list[str] = []
    """Namespaces without budget: none of their pods may be evicted."""
    spent: Count = 0
    """The part that the governor knows to be spent. The next governor counts the rest as outstanding."""
    granted_ms: TimeMs = 0
    """Time of the grant, UTC epoch: evidence, never order."""
