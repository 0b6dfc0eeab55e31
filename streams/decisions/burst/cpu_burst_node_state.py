"""Determines whether a node has CPU to lend to throttled containers.

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
"""Share of the threshold from which quotas are no longer raised, but not yet cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePoolPod:
    """A pod's input to the share pool."""

    qos_label: str | None
    """The label's text; an unknown class counts as none."""
    request_milli: int
    used_cores: float | None
    """None: no metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePool:
    """The node's state by its share pool: the CPUs that no pod has exclusively."""

    state: NodeState
    bound: str
    """``formula``, ``no_metric``, or ``no_share_pool`` (no CPU is left, which counts as fully used)."""
    terms: Terms


def share_pool(
    *, node_cpus: int, node_used_cores: float | None, pods: Iterable[SharePoolPod], threshold_pct: int
) -> SharePool:
    """Compare the usage of the share pool with ``threshold_pct``, from which the node is overloaded.

    Pool = CPUs - requests of LSE and LSR pods. Used = usage of the node - usage of LSE, LSR and BE pods. The pool's
    usage includes the system's. Without a metric of the node, the state is unknown.
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
