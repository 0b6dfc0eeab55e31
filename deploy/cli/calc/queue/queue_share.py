"""``slacktide calc queue_share``."""

from __future__ import annotations

import math

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.queue.queue_case import ClusterInput, key_of, unit_of, written
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.quota_usage import Share, node_share


class Input(ClusterInput, frozen=True, kw_only=True):
    """Quotas, and workloads that hold quota."""


def calculate(given: Input) -> Calculated:
    """Compute each node's borrowed share of the lendable amount."""
    tree = given.tree()
    usage = given.usage(tree)
    shares = {f"{'cq' if node.is_queue else 'cohort'}:{node.name}": node_share(node, usage) for node in tree.nodes()}
    return Calculated(
        output={"shares": {name: _shown(share) for name, share in shares.items()}},
        because=[_because(name, share) for name, share in shares.items() if share.borrowing_on],
    )


def _shown(share: Share) -> dict[str, object]:
    endless = math.isinf(share.share)
    return {
        "share": "infinite" if endless else share.share,
        "rounded_share": "infinite" if endless else math.ceil(share.share),
        "ratio_per_mille": share.ratio_permille,
        "dominant_resource": key_of(share.dominant_resource),
        "borrowing_on": sorted(map(written, share.borrowing_on)),
    }


def _because(name: str, share: Share) -> Because:
    """Return the arithmetic of the dominant resource; none if nothing is lendable."""
    terms: Terms = {}
    resource = share.dominant_resource
    if resource:
        unit = unit_of(resource)
        terms[f"borrowed_{unit}"] = share.borrowed[resource]
        terms[f"lendable_{unit}"] = share.lendable[resource]
    terms |= {"ratio_permille": share.ratio_permille, "weight": share.weight}
    return Because(of=f"shares/{name}", bound=key_of(resource) or "nothing_lendable", terms=terms)
