"""Keeps an amount within the node's capacity. The reference has no such limit.

The reference offers more than the node has if a percentage, such as ``cpuReclaimThresholdPercent``, is above 100. No
node can give that, and the kubelet divides it among pods as if it could.
"""

from __future__ import annotations

from slacktide.schemas.message import Terms


def within_capacity(of: str, amount: int, terms: Terms, capacity: int) -> tuple[int, Terms]:
    """Return the amount and its arithmetic, in which the capacity is the cap if it is the lowest one.

    ``of``: a field such as ``batch_cpu_milli``.
    """
    if amount <= capacity:
        return amount, terms
    unit = "milli" if of.endswith("milli") else "bytes"
    cap, result = f"cap_{unit}", f"{of.partition('_')[0]}_{unit}"
    parts = {name: value for name, value in terms.items() if name not in {cap, result}}
    return capacity, {**parts, cap: capacity, result: capacity}
