"""The chart's values: each wrong one is refused with its path, and what the policy's own reader accepts is accepted.

Helm names all wrong values at once. So one call takes a wrong value at every place.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from slacktide.schemas.policy.configmap import CONFIGS, KEYS, KEYS_LATER
from slacktide.schemas.policy.keys import Key, keys_of
from testbed.cluster.api_server import Json
from testbed.cluster.helm import CHART, HelmError, rendered

pytestmark = pytest.mark.cluster
GIVEN: Json = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Json = yaml.safe_load((CHART / "values.schema.json").read_text())
ADDRESS: Json = {"kafka": {"bootstrap": "k:9092", "secured": False}}
OPTIONAL = {"tag", "class", "bootstrap", "pullSecrets", "tolerations", "resources"}
REPLICAS = [0, -1, 101, 1.5, "2", True]
AMOUNTS: Json = {
    "cpu": ["64Mi", "1c", "-1", -1, "", True, "0.0001"],
    "memory": ["100m", "64MB", "-1Mi", "1 Gi", ""],
    "ephemeral-storage": ["1gb"],
    "hugepages-2Mi": ["2pages"],
    "example.com~1gpu": [1.5, "half"],
}
REPOSITORY = ["", "Slack Tide", "registry:99999/slacktide", "slacktide:1", "/slacktide", "a//b"]
TAG = [":1", "-1", "a b", 1, "x" * 129]
WRONG: dict[str, list[Any]] = {
    "image/repository": REPOSITORY,
    "image/tag": TAG,
    "image/pullSecrets/0/name": ["", "My_Secret", "a/b", "-a", "x" * 254],
    "kafka/bootstrap": [
        "kafka", "kafka:", ":9092", "kafka:0", "kafka:99999", "kafka:65536", "kafka:9092,", ",kafka:9092", "k:1;j:2",
        "kafka:9092, kafka:9093", "http://kafka:9092", "kafka..svc:9092", "::1:9092", "[::1]", "10.0.0.256:9092", 9092,
    ],
    "kafka/image": ["", "apache/kafka:", "apache/Kafka:1", "apache/kafka@sha256:1"],
    "kafka/storage/size": ["8", "0Gi", "8GB", "-1Gi", 8, ""],
    "kafka/storage/class": ["Fast", "a_b"],
    "kubelet/access": ["all", "", "Pods"],
    **{f"{part}/replicas": REPLICAS for part in ("stream", "bridge", "webhook", "scheduler", "queue")},
    **{f"agent/resources/requests/{name}": values for name, values in AMOUNTS.items()},
    "bridge/resources/limits/cpus": [1],
    "scheduler/kubeScheduler/repository": REPOSITORY,
    "scheduler/kubeScheduler/tag": TAG,
    "console/storage/size": ["5", "0Gi"],
    "console/storage/gib": [0, "4", 4.5],
    "console/storage/class": ["Fast"],
}  # fmt: skip
WRONG_TOLERATIONS: list[Json] = [
    {"operater": "Exists"},
    {"operator": "In", "key": "a"},
    {"operator": "Equal"},
    {"operator": "Exists", "key": "a", "value": "b"},
    {"key": "a b", "operator": "Exists"},
    {"key": "a", "value": "b c"},
    {"key": "a", "effect": "NoRun"},
    {"operator": "Exists", "tolerationSeconds": 5},
    {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -1},
    {},
]
GOOD: list[Json] = [
    {"kafka": {"bootstrap": "kafka-0.kafka.prod.svc.cluster.local.:9093,10.0.0.255:65535,[fd00::1]:9092,9a-b:1"}},
    {"image": {"repository": "registry.example.com:5000/Team".lower(), "tag": "0.2.0@sha256:" + "a" * 64}},
    {"image": {"repository": "r.io/a__b/c-d", "tag": None, "pullSecrets": [{"name": "registry.login"}]}},
    {"agent": {"resources": {"requests": {"cpu": 0.5, "memory": 1024, "example.com/gpu": 1}, "limits": {"cpu": 2}}}},
    {"agent": {"tolerations": [{"key": "a/b", "value": "c"}, {"key": "a", "operator": "Exists"},
                               {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}]}},
    {"kafka": {"image": "localhost:5000/apache/kafka:4.1.2", "storage": {"size": "100Mi", "class": "fast.ssd"}}},
    {"policy": {"config": {"resource-qos-config": None, "system-config": {"any": 1}}}},
]  # fmt: skip


def put(path: str, value: object) -> Json:
    """Values with one at this path, in which ~1 is a slash."""
    head, _, rest = path.partition("/")
    if head == "0":
        found: Any = [put(rest, value)]
    else:
        found = {head.replace("~1", "/"): put(rest, value) if rest else value}
    return found


def over(values: Json, other: Json) -> Json:
    both = {name: over(values[name], other[name]) for name in values.keys() & other.keys() if is_map(values[name])}
    return {**values, **other, **both}


def is_map(value: object) -> bool:
    return isinstance(value, dict)


def refused(values: Json) -> dict[str, str]:
    """What helm has against values, by path."""
    try:
        rendered(over(ADDRESS, values))
    except HelmError as error:
        found = re.findall(r"^\s*- at '/?(.*?)': (?!validation failed$)(.*)", str(error), re.MULTILINE)
        return dict(found) or {str(error): ""}
    return {}


def test_each_wrong_value_is_refused_with_its_path() -> None:
    for at in range(max(map(len, WRONG.values()))):
        values: Json = {}
        paths = [path for path, wrong in WRONG.items() if at < len(wrong)]
        for path in paths:
            values = over(values, put(path, WRONG[path][at]))
        found = refused(values)
        places = {"bridge/resources/limits" if path.endswith("cpus") else path for path in paths}
        assert places <= found.keys(), [(path, WRONG[path][at]) for path in sorted(places - found.keys())]


def test_each_wrong_toleration_is_refused_with_its_place() -> None:
    found = refused({"agent": {"tolerations": WRONG_TOLERATIONS}})
    places = {re.sub(r"(tolerations/\d+).*", r"\1", path) for path in found}

    assert places == {f"agent/tolerations/{at}" for at in range(len(WRONG_TOLERATIONS))}


@pytest.mark.parametrize("wrong", [[["x"]], -17.25, "nonsense", None], ids=["list", "number", "text", "null"])
def test_a_value_of_another_type_is_refused_at_every_place(wrong: object) -> None:
    leaves = {path: value for path, value in walk(GIVEN) if not is_map(value)}
    if wrong is None:
        leaves = {path: value for path, value in leaves.items() if not OPTIONAL & set(path.split("/"))}
    if isinstance(wrong, str):
        leaves = {path: value for path, value in leaves.items() if not is_free_text(path, value)}
    values: Json = {}
    for path in leaves:
        values = over(values, put(path, wrong))
    found = refused(values)
    # Helm takes a null away: its object lacks it. The policy has defaults of its own.
    names = {path.rpartition("/")[0] for path in leaves if not path.startswith("policy/config")}
    names.discard("agent/resources")

    places = {re.sub(r"/0$", "", path) for path in found}

    assert (names if wrong is None else leaves.keys()) <= places


def is_free_text(path: str, value: object) -> bool:
    """Where "nonsense" is a name like any other."""
    return isinstance(value, str) and path.rpartition("/")[2] in {"repository", "tag", "image", "class"}


def walk(values: Json, path: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        yield f"{path}{name}", value
        if is_map(value):
            yield from walk(value, f"{path}{name}/")


def test_an_unknown_key_is_refused_at_every_level() -> None:
    objects = ["", *(path for path, value in walk(GIVEN) if is_map(value))]
    values: Json = {}
    for path in objects:
        values = over(values, put(f"{path}/nonsense".lstrip("/"), 1))
    found = refused(values)

    assert {path: found[path] for path in objects} == dict.fromkeys(
        objects, "additional properties 'nonsense' not allowed"
    )


@pytest.mark.parametrize("values", GOOD)
def test_values_that_kubernetes_takes_are_taken(values: Json) -> None:
    assert refused(values) == {}


def test_a_history_larger_than_its_volume_is_refused_with_both_values() -> None:
    [message] = refused({"console": {"storage": {"gib": 5}}})

    assert "console.storage.gib is 5 and console.storage.size 5Gi" in message


@pytest.mark.parametrize(
    ("part", "name", "wanted", "limit", "fits"),
    [
        ("agent", "memory", "1Gi", "256Mi", False),
        ("scheduler.kubeScheduler", "cpu", 2, "1500m", False),
        ("console", "memory", "1G", "1Gi", True),
        ("queue", "cpu", "0.5", 0.5, True),
        ("stream", "memory", "1048577Ki", "1Gi", False),
    ],
)
def test_a_request_above_its_limit_is_refused(
    part: str, name: str, wanted: object, limit: object, *, fits: bool
) -> None:
    resources = {"requests": {name: wanted}, "limits": {name: limit}}
    found = refused(put(f"{part.replace('.', '/')}/resources", resources))

    assert fits == (found == {})
    assert fits or f"{part}.resources.requests.{name} is {wanted}, and its limit {limit}" in str(found)


@pytest.mark.parametrize(
    ("tag", "fits"), [("v1.34.9", True), ("1.33.0", True), ("v1.32.9", False), ("v1.35.0", False), ("mine", True)]
)
def test_a_kube_scheduler_that_kubernetes_does_not_support_is_refused(tag: str, *, fits: bool) -> None:
    found = str(refused({"scheduler": {"kubeScheduler": {"tag": tag}}}) or "")

    assert fits == (found == "")
    assert fits or f"scheduler.kubeScheduler.tag is {tag}, and the API server v1.34.0" in found


CANDIDATES: list[object] = [
    -1, 0, 1, 65, 100, 101, 2**31, 0.5, 1.5, "", "x", "65", "5m", "50M", "usage", "cfsQuota", True, [], ["5m"], ["5"],
    ["0.5h", "1h30m"], ["0s"], ["20ms"], {}, {"nonsense": 1},
]  # fmt: skip


def policy_leaves() -> Iterator[tuple[str, Key]]:
    """Each key of the policy that holds a value, by its path below ``policy/config``."""
    for config in CONFIGS:
        yield from below(
            keys_of(type(config.default)), f"{config.key}/" + (f"{config.cluster}/" if config.cluster else "")
        )


def below(keys: Any, path: str) -> Iterator[tuple[str, Key]]:
    for name, key in keys.items():
        if key.part is not None:
            yield from below(keys_of(key.part), f"{path}{name}/")
        elif key.item is None:
            yield f"{path}{name}", key


def accepts(key: Key, value: object) -> bool:
    try:
        key.value(value)
    except (ValueError, msgspec.ValidationError):
        return False
    return True


@pytest.mark.parametrize("value", CANDIDATES, ids=repr)
def test_the_policys_values_are_refused_where_the_parts_would_refuse_them(value: object) -> None:
    values: Json = {}
    for path, _ in policy_leaves():
        values = over(values, put(f"policy/config/{path}", value))
    found = {re.sub(r"/\d+$", "", path) for path in refused(values)}
    wanted = {f"policy/config/{path}" for path, key in policy_leaves() if not accepts(key, value)}

    assert found == wanted


def test_a_nodes_strategy_is_checked_with_its_selector() -> None:
    nodes = [
        {"nodeSelector": {"matchLabels": {"pool": "batch"}}, "cpuSuppressThresholdPercent": 50},
        {"nodeSelector": {"matchExpressions": [{"key": "a/b", "operator": "In", "values": ["c"]}]}, "name": "x"},
        {"cpuSuppressThresholdPercent": 50},
        {"nodeSelector": {}},
        {"nodeSelector": {"matchLabels": {"pool": "a b"}}},
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
        {"nodeSelector": {"matchLabels": {"pool": "c"}}, "cpuSuppressThresholdPercent": 101},
    ]
    found = refused({"policy": {"config": {"resource-threshold-config": {"nodeStrategies": nodes}}}})
    start = "policy/config/resource-threshold-config/nodeStrategies/"

    assert {int(path.removeprefix(start).partition("/")[0]) for path in found} == set(range(2, len(nodes)))


def test_every_value_is_described() -> None:
    assert undescribed(SCHEMA, "values") == []
    assert [path for path, _ in walk(GIVEN) if not known(path)] == []


def undescribed(schema: Json, path: str) -> list[str]:
    found = [] if schema.get("description") else [path]
    return found + [
        one for name, each in schema.get("properties", {}).items() for one in undescribed(each, f"{path}.{name}")
    ]


def known(path: str) -> bool:
    schema = SCHEMA
    for name in path.split("/"):
        at = schema.get("$ref", "").removeprefix("#/$defs/")
        schema = (SCHEMA["$defs"][at] if at else schema)["properties"].get(name)
        if schema is None:
            return False
    return True


def test_the_values_have_each_key_of_the_policy() -> None:
    config = SCHEMA["properties"]["policy"]["properties"]["config"]

    assert config["properties"].keys() == {*KEYS, *KEYS_LATER}
