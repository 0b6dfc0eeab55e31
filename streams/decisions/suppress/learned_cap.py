"""Limits best-effort CPU to what a node's services bear, as it was learned of them. Pure.

Best-effort work that always uses its whole cap shows nothing more of a service. With ``explore``, a node is held lower
in one slot of each cycle. Its name selects the slot, so nodes need no coordination, and stream, guard and replay agree.
"""

from hashlib import blake2b
from typing import Any, Final, NamedTuple

from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.policy import Policy, ResourceThreshold
from slacktide.schemas.policy.effective import cap_in_force_pct, colocation_given
from slacktide.streams.decisions.suppress.cpu_suppress_quota import PERIOD_US, QUOTA_US_MIN

LEARNED_CAP: Final = "learned_cap"
"""The bound if best-effort pods may use no more CPU than the node's services bear."""
EXPLORE: Final = "explore"
"""The bound if they may use less, because the node explores."""

SLOT_MS: Final = 1_200_000
"""Slots of 10 minutes would show too little where the cap is below a fifth of the node."""
SLOTS: Final = 200
"""Of a cycle: 0.5% of nodes explore at a time, so that chance hardly ever makes it 2%."""
EXPLORED_PART: Final = 4
"""A slot leaves a quarter of the cap: of half of it, minutes would show less than half as much."""
RAISED_MS: Final = 600_000
"""Ample for the steps in which the limit is raised after a slot."""
WINDOW_MS_MAX: Final = 3_600_000
"""In the average of a longer window a slot hardly counts."""


class LearnedCap(NamedTuple):
    """The most CPU time of best-effort pods in a standard period."""

    cap_us: int
    explored_us: int
    """In the node's slot; without ``explore`` the same."""
    slot: int

    def most_us(self, at_ms: int) -> int:
        """Return what holds at this time."""
        return self.explored_us if explores(self.slot, at_ms) else self.cap_us


def learned_cap(policy: Policy, facts: NodeFacts, threshold: ResourceThreshold) -> LearnedCap | None:
    """Return the learned cap in force; None: there is none.

    It is no less than what the policy always leaves to best-effort pods. ``threshold``: in force on the node.
    """
    if not facts.slope_permille:
        return None
    colocation = colocation_given(policy, facts)
    cap_pct = cap_in_force_pct(colocation, facts)
    if cap_pct is None:
        return None
    capacity_milli, least_pct = facts.capacity.cpu_milli or 0, threshold.cpu_suppress_min_pct or 0
    least_us = max(capacity_milli * least_pct // 100 * PERIOD_US // 1000, QUOTA_US_MIN)
    cap_us = max(capacity_milli * cap_pct // 100 * PERIOD_US // 1000, least_us)
    explored_us = max(cap_us // EXPLORED_PART, least_us) if colocation.explore else cap_us
    return LearnedCap(cap_us, explored_us, slot_of(facts.name))


def slot_of(node: str) -> int:
    """Return the slot in which a node explores."""
    return int.from_bytes(blake2b(node.encode(), digest_size=8).digest(), "big") % SLOTS


def explores(slot: Any, at_ms: Any) -> Any:
    """Return whether a time is in the slot, for integers or arrays of them."""
    return since_slot_ms(slot, at_ms) < SLOT_MS


def since_slot_ms(slot: Any, at_ms: Any) -> Any:
    """Return the time since the slot last began, for integers or arrays of them."""
    return (at_ms - slot * SLOT_MS) % (SLOTS * SLOT_MS)


def starved_by_exploring(policy: Policy, facts: NodeFacts, at_ms: int, window_s: int) -> bool:
    """Return whether averages over ``window_s`` may show a limit that the node had because it explored.

    The slope does not count, because it may have gone a moment ago.
    """
    colocation = colocation_given(policy, facts)
    if not (colocation.enable and colocation.explore and colocation.learned_caps == "on"):
        return False
    since_ms: int = since_slot_ms(slot_of(facts.name), at_ms)
    return since_ms < SLOT_MS + RAISED_MS + min(window_s * 1_000, WINDOW_MS_MAX)
