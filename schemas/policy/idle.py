"""Settings without effect, with the reason: of a policy, and of a node's own annotation and labels."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from slacktide.schemas.errors import TextError
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.policy.configmap import CONFIGS
from slacktide.schemas.policy.effective import (
    ANNOTATION_STRATEGY,
    DEFAULT_SOURCE,
    FIELDS,
    RATIO_LABELS,
    STRATEGIES,
    Effective,
    Source,
    annotation_fields,
    effective,
    ratio_pct,
)
from slacktide.schemas.policy.features import FEATURES, Feature
from slacktide.schemas.policy.keys import keys_of, leaves, value_at
from slacktide.schemas.policy.message import NodeStrategy, Policy
from slacktide.schemas.policy.selector import Selector
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.text import json_of

_NOTHING_GIVEN = Policy(version="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A field that does not act."""

    strategy: str
    field: str
    source: Source
    because: str


def lacking(effective: Effective) -> dict[Feature, str]:
    """What each feature lacks on the node; "": it acts."""
    return {feature: feature.lacks(getattr(effective, feature.strategy)) for feature in FEATURES}


def idle(effective: Effective) -> list[Idle]:
    """Fields that differ from their default without effect: every feature that uses them lacks something."""
    return [*_idle_fields(effective, lacking(effective)), *_unbound(effective)]


def _idle(effective: Effective, strategy: str, field: str, because: str) -> Idle:
    source = effective.source(f"{strategy}.{field}")
    return Idle(strategy=strategy, field=field, source=source, because=because)


def _idle_fields(effective: Effective, lacks: Mapping[Feature, str]) -> Iterator[Idle]:
    for strategy in STRATEGIES:
        for field, value in leaves(getattr(effective, strategy)):
            readers = [one for one in FEATURES if one.strategy == strategy and field in one.fields]
            given = effective.source(f"{strategy}.{field}") != DEFAULT_SOURCE
            changed = given and value != value_at(getattr(_NOTHING_GIVEN, strategy), field)
            if readers and changed and all(lacks[feature] for feature in readers):
                yield _idle(effective, strategy, field, "; ".join(dict.fromkeys(lacks[one] for one in readers)))


def _unbound(effective: Effective) -> Iterator[Idle]:
    """A threshold below the minimum never binds."""
    threshold = effective.resource_threshold
    minimum = threshold.cpu_suppress_min_pct
    if threshold.enable and minimum is not None and minimum >= threshold.cpu_suppress_threshold_pct:
        because = f"cpuSuppressMinPercent {minimum} is not below it: best-effort pods always get that much"
        yield _idle(effective, "resource_threshold", "cpu_suppress_threshold_pct", because)


def not_taken(facts: NodeFacts) -> Iterator[tuple[str, str]]:
    """Annotations, their keys, and labels of a node that are ignored or changed, and why."""
    text = facts.annotations.get(ANNOTATION_STRATEGY)
    if text is not None:
        yield from _of_annotation(text)
    for label, field in RATIO_LABELS.items():
        if label in facts.labels:
            percent = ratio_pct(facts.labels[label])
            if percent is None:
                yield f"label {label}", f"{facts.labels[label]!r} is ignored: accepted: a decimal, 0 or more"
            else:
                yield from _beyond(f"label {label}", field, percent)


def _of_annotation(text: str) -> Iterator[tuple[str, str]]:
    given = annotation_fields(text)
    name = f"annotation {ANNOTATION_STRATEGY}"
    try:
        body = json_of(text, object, where=ANNOTATION_STRATEGY)
    except TextError:
        body = None
    if not isinstance(body, dict):
        yield name, "ignored: it is not a JSON object"
    elif not given and any(body.get(key) is not None for key in FIELDS):
        yield name, "ignored whole: a value in it is of another type than the strategy's"
    else:
        for key in body:
            if key not in FIELDS:
                yield f"{name}.{key}", "ignored: no key that a node may set"
        for key, field in FIELDS.items():
            if field in given:
                yield from _beyond(f"{name}.{key}", field, given[field])


def _beyond(name: str, field: str, value: object) -> Iterator[tuple[str, str]]:
    """What the ConfigMap would be refused for is taken of a node, as the reference does."""
    key = next(key for key in keys_of(Colocation).values() if key.field == field)
    try:
        key.value(value)
    except (ValueError, msgspec.ValidationError):
        yield name, f"{value} is taken, although it is not {key.accepted}"


_PLAIN = NodeFacts(name="", capacity=Resources(), allocatable=Resources())
"""A node that sets nothing of its own."""
_FOR_NODES = [config for config in CONFIGS if config.nodes]
_NO_NODES: dict[str, Any] = {config.node_field: [] for config in _FOR_NODES}


def unused(policy: Policy) -> Iterator[Idle]:
    """What is set and without effect wherever it holds.

    What the cluster sets may wait for a node strategy: ``enable`` for some nodes only is how one begins.
    """
    cluster = msgspec.structs.replace(policy, **_NO_NODES)
    on_nodes = [_alone(cluster, config.strategy, node)
                for config in _FOR_NODES for node in getattr(policy, config.node_field)]  # fmt: skip
    for one in idle(effective(cluster, _PLAIN)):
        if not any(_acts(one, found) for found in on_nodes):
            yield one
    for found in on_nodes:
        yield from (one for one in idle(found) if one.source.layer == "node strategy")


_OF_CAPACITY = (
    "cpu_reclaim_threshold_pct",
    "mem_reclaim_threshold_pct",
    "batch_cpu_threshold_pct",
    "batch_mem_threshold_pct",
)


def above_capacity(policy: Policy) -> Iterator[Idle]:
    """Shares above 100% of a node's capacity, where they are set. No node offers more than its capacity."""
    cluster = msgspec.structs.replace(policy, **_NO_NODES)
    on_nodes = [("node strategy", _alone(cluster, "colocation", node)) for node in policy.node_colocation]
    for layer, found in (("cluster strategy", effective(cluster, _PLAIN)), *on_nodes):
        for field in _OF_CAPACITY:
            value = getattr(found.colocation, field) or 0
            because = f"{value} is above 100: nodes offer up to their whole capacity, even while services use it"
            one = _idle(found, "colocation", field, because)
            if value > 100 and one.source.layer == layer:
                yield one


def _alone(cluster: Policy, strategy: str, node: NodeStrategy[Any]) -> Effective:
    """The policy of nodes with this node strategy."""
    everywhere = msgspec.structs.replace(node, selector=Selector())
    return effective(msgspec.structs.replace(cluster, **{f"node_{strategy}": [everywhere]}), _PLAIN)


def _acts(one: Idle, found: Effective) -> bool:
    """Whether what the cluster sets, and is idle there, acts here."""
    if found.source(f"{one.strategy}.{one.field}") != one.source:
        return False
    return not any((other.strategy, other.field) == (one.strategy, one.field) for other in idle(found))
