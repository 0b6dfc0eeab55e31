"""Why an agent is not ready, or does not work as it should."""

from slacktide.agents.node.inventory import Description, Policies
from slacktide.agents.node.link import Link


def why_not_ready(link: Link, inventory: Description, policies: Policies) -> str:
    """Return why the agent is not ready; "": it is. A policy that every agent refuses does not count."""
    if link.away:
        return f"Kafka is unreachable: {link.away}"
    if inventory.unlisted:
        return f"the list of pods is outdated: {inventory.unlisted}"
    return link.too_large or policies.diverges


def why_not_fresh(inventory: Description, policies: Policies, unproven: str, *, guard: bool, answered: bool) -> str:
    """Return why the agent works with something old or alone; "": it does not.

    ``unproven``: why its records are not signed, if it enrols. ``answered``: whether a sample was ever answered.
    """
    if inventory.refused:
        return f"the inventory was rejected: {inventory.refused}"
    if policies.refused:
        return f"a policy was rejected: {policies.refused}"
    if unproven and policies.policy.node_proof == "required":
        return unproven
    if guard:
        return "the guard decides: no answers in time"
    return "" if answered else "no answer yet"
