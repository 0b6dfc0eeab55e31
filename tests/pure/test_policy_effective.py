"""What is in force on a node, and who said so: held against a model that knows only JSON and the order of layers."""

from collections.abc import Iterator
from functools import cache
from typing import Any, get_origin

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.message import Message
from slacktide.schemas.policy import parse
from slacktide.schemas.policy.configmap import CONFIGS
from slacktide.schemas.policy.effective import (
    ANNOTATION_STRATEGY,
    Source,
    colocation_on,
    effective,
    resource_threshold_on,
)
from slacktide.schemas.policy.idle import lacking
from slacktide.schemas.policy.keys import NAMES, leaves, name_of, value_at
from testbed.messages import any_value
from testbed.policies import config_map, policy_from

CPU_LABEL = "node.koordinator.sh/cpu-reclaim-ratio"
POOLS = ("a", "b")
DEFAULTS = {config.strategy: config.default for config in CONFIGS}
KINDS = {name: type(default) for name, default in DEFAULTS.items()}
NARROWED = {"cpu_calculate_policy", "cpu_evict_policy"}
"""The ConfigMap accepts less than the field: typing errors, mostly."""
SHORT = {
    "colocation": "colocation",
    "resource_threshold": "threshold",
    "resource_qos": "qos",
    "cpu_burst": "burst",
    "eviction_budget": "budget",
    "descheduling": "descheduling",
    "placement": "placement",
    "admission": "admission",
    "agent": "agent",
}
CONFIG = {config.strategy: config for config in CONFIGS}


def node(pool: str | None = None, annotation: dict | None = None, ratio: str | None = None) -> NodeFacts:
    labels = {} if pool is None else {"pool": pool}
    return NodeFacts(
        name="node-1",
        capacity=Resources(cpu_milli=4_000),
        allocatable=Resources(cpu_milli=4_000),
        labels=labels | ({} if ratio is None else {CPU_LABEL: ratio}),
        annotations={} if annotation is None else {ANNOTATION_STRATEGY: msgspec.json.encode(annotation).decode()},
    )


def in_pool(pool: str, **said: Any) -> dict:
    return {"name": pool, "nodeSelector": {"matchLabels": {"pool": pool}}, **said}


def json_of(kind: type[Message], said: dict[str, object]) -> dict:
    """Some fields of a strategy as the ConfigMap writes them."""
    body: dict[str, Any] = {}
    for field, value in said.items():
        *parts, name = name_of(kind, field).split(".")
        place = body
        for part in parts:
            place = place.setdefault(part, {})
        if value is not None:
            place[name] = value
    return body


def typed_leaves(kind: type[Message], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted fields with their types; not lists, which the ConfigMap writes in another way."""
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, Message):
            yield from typed_leaves(field.type, f"{prefix}{field.name}.")
        elif get_origin(field.type) is not tuple and field.name not in NARROWED:
            yield prefix + field.name, field.type


@cache
def said_by(kind: type[Message]) -> st.SearchStrategy[dict]:
    """Any few fields with any values that are in range."""
    values = {field: any_value(of) for field, of in typed_leaves(kind)}
    chosen = st.sets(st.sampled_from(sorted(values)), max_size=3)
    said = chosen.flatmap(lambda fields: st.fixed_dictionaries({field: values[field] for field in sorted(fields)}))
    return said.map(lambda fields: json_of(kind, fields))


def flat(kind: type[Message], body: dict, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted fields of a JSON object: the model's own reading."""
    for name, value in body.items():
        field = NAMES[kind].get(name)
        if field is not None and isinstance(value, dict):
            part = next(each.type for each in msgspec.structs.fields(kind) if each.name == field)
            yield from flat(part, value, f"{prefix}{field}.")
        elif field is not None:
            yield prefix + field, value


@st.composite
def layered(draw: st.DrawFn) -> dict[str, tuple[dict, list[dict]]]:
    """For each strategy what the cluster says, and what is said for one pool or for two."""
    pools = st.lists(st.sampled_from(POOLS), unique=True)
    return {
        name: (
            draw(said_by(kind)),
            [in_pool(pool, **draw(said_by(kind))) for pool in (draw(pools) if CONFIG[name].nodes else ())],
        )
        for name, kind in KINDS.items()
    }


def written(said: dict[str, tuple[dict, list[dict]]]) -> dict:
    configs = {}
    for name, (cluster, nodes) in said.items():
        config = CONFIG[name]
        body = {config.cluster: cluster} if config.cluster else cluster
        configs[SHORT[name]] = body | ({config.nodes: nodes} if config.nodes else {})
    return config_map(**configs)


def expected(said: dict[str, tuple[dict, list[dict]]], facts: NodeFacts, own: dict[str, tuple[object, Source]]) -> dict:
    """Field to value and source, one layer over the other."""
    found: dict[str, tuple[object, Source]] = {}
    for name, (cluster, nodes) in said.items():
        layers = [(cluster, Source(layer="cluster strategy"))]
        layers += [(one, Source(layer="node strategy", name=one["name"])) for one in nodes
                   if one["name"] == facts.labels.get("pool")]  # fmt: skip
        for body, source in layers:
            found |= {f"{name}.{field}": (value, source) for field, value in flat(KINDS[name], body)}
    return found | {f"colocation.{field}": value for field, value in own.items()}


@given(
    layered(),
    st.none() | st.sampled_from(POOLS),
    st.none() | st.integers(0, 200),
    st.none() | st.sampled_from(["0.29", "1", "-1", "much"]),
)
def test_each_value_is_the_last_layers_and_names_it(
    said: dict, pool: str | None, annotated: int | None, ratio: str | None
) -> None:
    """And it is in the field's range: nothing that passed is out of it."""
    try:
        policy = parse(written(said), "policy.yaml").policy
    except ConfigError:
        assume(False)  # a lower percent that is not below its threshold, say
    annotation = None if annotated is None else {"cpuReclaimThresholdPercent": annotated, "unknown": 1}
    facts = node(pool, annotation, ratio)
    own: dict[str, tuple[object, Source]] = {}
    if annotated is not None:
        own["cpu_reclaim_threshold_pct"] = (annotated, Source(layer="annotation", name=ANNOTATION_STRATEGY))
    if ratio in {"0.29", "1"}:
        own["cpu_reclaim_threshold_pct"] = (28 if ratio == "0.29" else 100, Source(layer="label", name=CPU_LABEL))

    found = effective(policy, facts)
    model = expected(said, facts, own)

    for name, kind in KINDS.items():
        strategy = getattr(found, name)
        for field, value in leaves(strategy):
            default = (value_at(DEFAULTS[name], field), Source(layer="default"))
            wanted, source = model.get(f"{name}.{field}", default)
            assert (value, found.source(f"{name}.{field}")) == (wanted, source)
        assert msgspec.convert(msgspec.to_builtins(strategy), kind) == strategy
    assert found.colocation == colocation_on(policy, facts)
    assert found.resource_threshold == resource_threshold_on(policy, facts)


def test_the_first_strategy_that_matches_holds_and_the_others_are_named() -> None:
    policy = policy_from(
        burst={
            "clusterStrategy": {"policy": "auto"},
            "nodeStrategies": [
                in_pool("a", cpuBurstPercent=200),
                {"name": "zone", "nodeSelector": {"matchLabels": {"zone": "z"}}, "cpuBurstPercent": 300},
            ],
        }
    )
    facts = msgspec.structs.replace(node("a"), labels={"zone": "z", "pool": "a"})
    found = effective(policy, facts)

    assert (found.cpu_burst.policy, found.cpu_burst.cpu_burst_pct) == ("auto", 200)
    assert found.shadowed == {"cpu_burst": ("zone",)}


def test_an_annotation_that_cannot_be_read_leaves_what_the_layers_below_say() -> None:
    policy = policy_from(colocation={"enable": True, "cpuReclaimThresholdPercent": 70})
    facts = msgspec.structs.replace(node(), annotations={ANNOTATION_STRATEGY: "{"})

    assert effective(policy, facts) == effective(policy, node())


def test_a_source_reads_as_an_operator_would_say_it() -> None:
    assert str(Source(layer="default")) == "default"
    assert str(Source(layer="node strategy", name="gpu")) == "node strategy gpu"


def test_memory_is_evicted_at_the_default_unless_a_layer_says_otherwise() -> None:
    policy = policy_from(
        threshold={
            "clusterStrategy": {"enable": True},
            "nodeStrategies": [in_pool("spot", memoryEvictThresholdPercent=80)],
        }
    )

    for pool, threshold_pct in ((None, 70), ("spot", 80)):
        found = effective(policy, node(pool))
        lacks = {feature.name: lack for feature, lack in lacking(found).items()}
        assert found.resource_threshold == resource_threshold_on(policy, node(pool))
        assert found.resource_threshold.mem_evict_threshold_pct == threshold_pct
        assert lacks["BEMemoryEvict"] == ""
        assert lacks["MemoryEvict"] == "evictEnabledPriorityThreshold is unset"
