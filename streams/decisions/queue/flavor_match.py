"""Matches pods with the labels and taints of a flavor.

Reading: kueue v0.19.2, pkg/scheduler/flavorassigner/flavorassigner.go, checkFlavorForPodSets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slacktide.streams.decisions.queue.job_start import Toleration

KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


class Taint(NamedTuple):
    """A taint of a flavor's nodes."""

    key: str
    value: str = ""
    effect: str = ""


class Expression(NamedTuple):
    """A required value of one node label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeFlavor(NamedTuple):
    """A ResourceFlavor."""

    node_labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class NodeNeeds(NamedTuple):
    """A pod's constraints on nodes."""

    selector: Mapping[str, str] = {}
    affinity: tuple[tuple[Expression, ...], ...] = ()
    """Terms, of which one must match."""
    tolerations: tuple[Toleration, ...] = ()


def matches(needs: NodeNeeds, flavor: NodeFlavor) -> bool:
    """Return whether the pods match the flavor. Labels that it does not have exclude nothing."""
    labels = flavor.node_labels
    tolerations = (*needs.tolerations, *flavor.tolerations)
    if any(not _tolerated(taint, tolerations) for taint in flavor.taints if taint.effect in KEEPS_AWAY):
        return False
    if any(labels.get(key, value) != value for key, value in needs.selector.items()):
        return False
    terms = [[one for one in term if one.key in labels] for term in needs.affinity]
    return not terms or any(all(_holds(one, labels[one.key]) for one in term) for term in terms)


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(
        one.effect in {"", taint.effect}
        and one.key in {"", taint.key}
        and (one.operator == "Exists" or (one.operator in {"", "Equal"} and one.value == taint.value))
        for one in tolerations
    )


def _holds(one: Expression, value: str) -> bool:
    if one.operator in {"In", "NotIn"}:
        return (value in one.values) == (one.operator == "In")
    if one.operator in {"Gt", "Lt"}:
        try:
            left, right = int(value), int(one.values[0])
        except (ValueError, IndexError):
            return False
        return left > right if one.operator == "Gt" else left < right
    return one.operator == "Exists"
