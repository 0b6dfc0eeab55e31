"""Whether a node has CPU to lend to throttled containers.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go, getNodeStateForBurst.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum
from typing import Literal

from slacktide.schemas.message import Terms
from slacktide.schemas.qos import raw_qos

NodeState = Literal["idle", "cooling", "overload", "unknown"]
COOLING = 0.9
"""Of the threshold: from here on nothing more is lent, but nothing is taken back yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePoolPod:
    """What the share pool of CPUs has to know of a pod."""

    qos_label: str | None
    """As written; a text that names no class counts as none."""
    request_milli: int
    used_cores: float | None
    """None: no metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePool:
    """The node's state by its share pool: the CPUs that no pod has for itself."""

    state: NodeState
    bound: str
    """``formula``, ``no_share_pool`` (all CPUs are taken: that counts as fully used) or ``no_metric``."""
    terms: Terms


def share_pool(
    *, node_cpus: int, node_used_cores: float | None, pods: Iterable[SharePoolPod], threshold_pct: int
) -> SharePool:
    """Compare the use of the share pool with a threshold.

    Pool = CPUs - what LSE and LSR pods request; used = the node's use - that of LSE, LSR and BE pods.
    What the system uses counts as the pool's.

    Args:
        node_cpus: number of CPUs.
        node_used_cores: what the node used; None: no metric.
        pods: all pods of the node, in any order.
        threshold_pct: use of the pool from which on the node is overloaded.

    """
    if node_used_cores is None:
        return SharePool(state="unknown", bound="no_metric", terms={})
    owned_milli, apart = 0, []
    for pod in pods:
        qos = raw_qos(pod.qos_label)
        owned_milli += pod.request_milli if qos in {"LSE", "LSR"} else 0
        if qos in {"LSE", "LSR", "BE"} and pod.used_cores is not None:
            apart.append(pod.used_cores)
    pool_cores = node_cpus - owned_milli / 1000
    pool_used_cores = node_used_cores - fsum(apart)
    used_ratio = pool_used_cores / pool_cores if pool_cores > 0 else 1.0
    threshold_ratio = threshold_pct / 100
    cooling_ratio = threshold_ratio * COOLING
    terms: Terms = {
        "node_cores": node_cpus,
        "owned_milli": owned_milli,
        "pool_cores": pool_cores,
        "node_used_cores": node_used_cores,
        "pool_used_cores": pool_used_cores,
        "cooling_ratio": cooling_ratio,
        "threshold_ratio": threshold_ratio,
        "used_ratio": used_ratio,
    }
    bound = "formula" if pool_cores > 0 else "no_share_pool"
    return SharePool(state=_state(used_ratio, cooling_ratio, threshold_ratio), bound=bound, terms=terms)


def _state(used: float, cooling: float, threshold: float) -> NodeState:
    if used >= threshold:
        return "overload"
    return "cooling" if used >= cooling else "idle"
