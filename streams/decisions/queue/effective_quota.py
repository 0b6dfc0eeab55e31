"""Computes the resource groups for Kueue if a ClusterQueue's quota is a share of batch allocatable.

Not a rule of Kueue. Only ``nominalQuota`` of batch resources changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slacktide.schemas.errors import QuantityError
from slacktide.schemas.queue_objects import SoldSpec
from slacktide.schemas.units import quantity
from slacktide.streams.decisions.queue.sold_quota import quota_percent, sold_nominal

Json = dict[str, Any]


def effective_groups(
    groups: Sequence[Json], annotations: Mapping[str, str], sold: Mapping[str, SoldSpec], of: str
) -> list[Json] | None:
    """Return the current resource groups; None if the ClusterQueue does not opt in.

    ``sold``: damped batch allocatable by flavor. An unknown flavor keeps its quotas. Raises CaseError if an annotation
    is invalid; ``of`` names the ClusterQueue.
    """
    percent = quota_percent(annotations, of)
    if percent is None:
        return None

    def resource(flavor: str, one: Json) -> Json:
        share = sold_nominal(one["name"], sold[flavor], percent) if flavor in sold else None
        return one if share is None else one | {"nominalQuota": _text(one, share)}

    return [
        group | {
            "flavors": [
                flavor | {"resources": [resource(flavor["name"], one) for one in flavor["resources"]]}
                for flavor in group["flavors"]
            ]
        }
        for group in groups
    ]  # fmt: skip


def _text(one: Json, share: int) -> str | int:
    """Return the quantity; keep the current text if it is equal: ``1`` and ``1000m`` are."""
    text = f"{share}m" if one["name"] == "cpu" else str(share)
    before: str | int = one.get("nominalQuota", 0)
    try:
        return before if quantity(before) == quantity(text) else text
    except QuantityError:
        return text
