"""The source of the policy: the ConfigMap ``slo-controller-config``, each value of whose data is JSON text.

Names, defaults and ranges are the reference's: koordinator a7a1b76b, apis/configuration/slo_controller_config.go,
apis/slo/v1alpha1/nodeslo_types.go. So are the layers: a node's strategy is the first that matches it, over the
cluster's, over the defaults (pkg/slo-controller/nodeslo/resource_strategy.go, pkg/util/sloconfig/colocation_config.go).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from slacktide.schemas.errors import ConfigError, Finding, TextError
from slacktide.schemas.message import Message
from slacktide.schemas.policy.features import CARRIED_OUT, FEATURES, MID_PRIORITY_MAX
from slacktide.schemas.policy.keys import name_of, replaced, value_at
from slacktide.schemas.policy.message import NodeStrategy, Policy, versioned
from slacktide.schemas.policy.reading import Reader
from slacktide.schemas.policy.resource_qos import ResourceQos
from slacktide.schemas.policy.selector import Selector, overlaps
from slacktide.schemas.policy.strategies import Descheduling, EvictionBudget, ResourceThreshold
from slacktide.schemas.text import json_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One key of the ConfigMap's data, and its strategy."""

    key: str
    strategy: str
    """The field of Policy."""
    cluster: str = "clusterStrategy"
    """Where the cluster's strategy lies; "": at the top."""
    nodes: str = "nodeStrategies"
    """Where those of nodes lie; "": it is the cluster's alone."""

    @property
    def node_field(self) -> str:
        """The field of Policy with the strategies of nodes; "": none."""
        return f"node_{self.strategy}" if self.nodes else ""

    @property
    def default(self) -> Message:
        """The default strategy."""
        default: Message = getattr(_BLANK, self.strategy)
        return default


_BLANK = Policy(version="")
CONFIGS = (
    Config(key="colocation-config", strategy="colocation", cluster="", nodes="nodeConfigs"),
    Config(key="resource-threshold-config", strategy="resource_threshold"),
    Config(key="resource-qos-config", strategy="resource_qos"),
    Config(key="cpu-burst-config", strategy="cpu_burst"),
    Config(key="eviction-budget-config", strategy="eviction_budget", cluster="", nodes=""),
    Config(key="descheduling-config", strategy="descheduling", cluster="", nodes=""),
    Config(key="placement-config", strategy="placement", cluster="", nodes=""),
    Config(key="admission-config", strategy="admission", cluster="", nodes=""),
    Config(key="agent-config", strategy="agent", cluster="", nodes=""),
)
KEYS_LATER = frozenset({"system-config", "host-application-config", "cpu-normalization-config",
                        "resource-amplification-config"})  # fmt: skip
KEYS = tuple(config.key for config in CONFIGS)
_CONFIGS = {config.strategy: config for config in CONFIGS}
NAME = "slo-controller-config"
NODE_STRATEGIES_MAX = 500
"""Each is held against a node's labels with every sample, and against all others when the file is read."""
_PROFILE = ("name", "nodeSelector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A valid policy, and what in its file is not in effect."""

    policy: Policy
    notes: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    """Notes about unknown keys: ignored, as in the reference, and refused by ``policy lint``."""


def parse(document: object, file: str) -> Parsed:
    """Read and validate the ConfigMap.

    Args:
        document: the ConfigMap as plain data.
        file: its name, for messages.

    Raises:
        ConfigError: with every finding: file, field path, value, accepted range.
    """
    body = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    if body.get("kind") != "ConfigMap":
        raise ConfigError([Finding(file=file, field="kind", value=repr(body.get("kind")), accepted='"ConfigMap"')])
    data = body.get("data", {})
    if not isinstance(data, dict):
        raise ConfigError([Finding(file=file, field="data", value=repr(data)[:60], accepted="a map of JSON texts")])
    reader = Reader(file)
    for key in data:
        if key in KEYS_LATER:
            reader.note(f'data["{key}"]', "not yet in effect")
        elif key not in KEYS:
            reader.note_unknown(f'data["{key}"]', key, KEYS)
    fields: dict[str, Any] = {"said": []}
    for config in CONFIGS:
        if data.get(config.key) is not None:
            cluster, nodes, given = _Strategies(reader, config).read(data[config.key])
            fields |= {config.strategy: cluster} | ({config.node_field: nodes} if config.nodes else {})
            fields["said"] += given
    if reader.findings:
        raise ConfigError(reader.findings)
    policy = versioned(Policy(version="", **fields))
    return Parsed(policy=policy, notes=tuple(reader.notes), unknown=tuple(reader.unknown))


class _Strategies:
    """Reads one key: the cluster's strategy and those of nodes."""

    def __init__(self, reader: Reader, config: Config) -> None:
        self._reader = reader
        self._config = config
        self._path = f'data["{config.key}"]'
        self._kind = type(config.default)

    def read(self, text: object) -> tuple[Message, list[NodeStrategy[Any]], list[str]]:
        """The cluster's strategy, the nodes', and which fields the cluster's sets."""
        config, path = self._config, self._path
        parts = {name for name in (config.cluster, config.nodes) if name}
        try:
            document = json_of(text if isinstance(text, str) else b"", object, where="")
        except TextError as exc:
            self._reader.refuse(path, text, f"JSON text ({exc})")
            document = None
        body = self._reader.named(document, path, parts)
        if config.cluster:
            self._reader.check_names(body, path, parts)
            given = self._reader.given(body.get(config.cluster), f"{path}.{config.cluster}", self._kind)
            path += f".{config.cluster}"
        else:
            given = self._reader.given(body, path, self._kind, parts)
        cluster = self._layer(path, given, config.default)
        nodes = list(self._nodes(self._listed(body), cluster))
        self._report_overlaps([node.selector for node in nodes])
        return cluster, nodes, [f"{config.strategy}.{field}" for field in given]

    def _listed(self, body: Mapping[str, object]) -> list[object]:
        if not self._config.nodes:
            return []
        path = f"{self._path}.{self._config.nodes}"
        listed = self._reader.sequence(body.get(self._config.nodes), path)
        if len(listed) > NODE_STRATEGIES_MAX:
            self._reader.refuse(path, f"{len(listed)} of them", f"at most {NODE_STRATEGIES_MAX}")
        return listed[:NODE_STRATEGIES_MAX]

    def _nodes(self, listed: list[object], cluster: Message) -> Iterator[NodeStrategy[Any]]:
        names: set[str] = set()
        for index, body in enumerate(listed):
            place = f"{self._config.nodes}[{index}]"
            path = f"{self._path}.{place}"
            profile = self._reader.named(body, path, _PROFILE)
            given = self._reader.given(profile, path, self._kind, _PROFILE)
            if not given:
                self._reader.note(path, "is empty: nodes that it matches use the cluster's strategy")
            name = self._name(profile.get("name"), place, names)
            selector = self._reader.selector(profile.get("nodeSelector"), f"{path}.nodeSelector")
            strategy: Any = self._layer(path, given, cluster)
            yield NodeStrategy(name=name, selector=selector, said=list(given), strategy=strategy)

    def _name(self, value: object, place: str, names: set[str]) -> str:
        """The given name; its path if absent, and both if the name is taken."""
        path = f"{self._path}.{place}.name"
        if value is not None and not isinstance(value, str):
            self._reader.refuse(path, value, "a text")
        name = value if isinstance(value, str) and value else place
        if name in names:
            self._reader.note(path, f"{name!r} is also an earlier one's name: they are distinguished by position")
            name = f"{name} ({place})"
        names.add(name)
        return name

    def _layer(self, path: str, given: Mapping[str, object], below: Message) -> Message:
        """What a layer over the one below it comes to, with all its findings."""
        strategy = replaced(below, given)
        refused = {finding.field for finding in self._reader.findings}
        for conflict in conflicts(strategy, given):
            if conflict.beside and f"{path}.{name_of(self._kind, conflict.beside)}" in refused:
                continue  # the other one has a finding, and is not in this comparison
            self._reader.refuse(f"{path}.{name_of(self._kind, conflict.field)}", conflict.value, conflict.accepted)
        self._report_later(path, given)
        return strategy

    def _report_later(self, path: str, given: Mapping[str, object]) -> None:
        """Note settings that are validated but have no effect yet."""
        acts = acting(self._config.strategy)
        if given and not acts:
            self._reader.note(path, "checked, not yet in effect")
            return
        for field in given:
            if field not in acts:
                self._reader.note(f"{path}.{name_of(self._kind, field)}", "checked, not yet in effect")

    def _report_overlaps(self, selectors: list[Selector]) -> None:
        """Refuse a strategy that may match the same node as an earlier one, since the order would decide."""
        good = [place for place, selector in enumerate(selectors) if selector != Selector()]
        name = self._config.nodes
        for later, first in overlaps([selectors[place] for place in good]):
            path = f"{self._path}.{name}[{good[later]}].nodeSelector"
            its = selectors[good[later]]
            given = {"matchLabels": its.match_labels, "matchExpressions": its.match_expressions}
            shown = {key: value for key, value in given.items() if value}
            self._reader.refuse(path, shown, f"a selector of other nodes than {name}[{good[first]}]'s")


def acting(strategy: str) -> frozenset[str]:
    """The strategy's fields that something is done by today."""
    acts = [feature for feature in FEATURES if feature.strategy == strategy and feature.name in CARRIED_OUT]
    fields = {field for feature in acts for field in feature.fields}
    parts = {f"{field.rpartition('.')[0]}.enable" for field in fields if "." in field}
    return frozenset(fields | parts | {"enable"}) if acts else frozenset()


def path_of(strategy: str, field: str) -> str:
    """A field's name in front of an operator, such as ``resource-threshold-config.cpuSuppressMinPercent``."""
    config = _CONFIGS[strategy]
    return f"{config.key}.{name_of(type(config.default), field)}"


def key_of(strategy: str) -> str:
    """The key of the ConfigMap's data."""
    return _CONFIGS[strategy].key


class Conflict(NamedTuple):
    """A field whose value does not go with another's."""

    field: str
    value: object
    accepted: str
    beside: str = ""
    """The other field; "": none."""


_BELOW: Mapping[type[Message], tuple[tuple[str, str], ...]] = {
    ResourceThreshold: (
        ("mem_evict_lower_pct", "mem_evict_threshold_pct"),
        ("mem_early_reclaim_threshold_pct", "mem_evict_threshold_pct"),
        ("cpu_evict_lower_pct", "cpu_evict_threshold_pct"),
        ("cpu_evict_be_satisfaction_lower_pct", "cpu_evict_be_satisfaction_upper_pct"),
        ("mem_allocatable_evict_lower_pct", "mem_allocatable_evict_threshold_pct"),
        ("cpu_allocatable_evict_lower_pct", "cpu_allocatable_evict_threshold_pct"),
    ),
    EvictionBudget: (("node_max", "cluster_max"), ("namespace_max", "cluster_max")),
    ResourceQos: tuple(
        (f"{name}.resctrl.cat_range_start_pct", f"{name}.resctrl.cat_range_end_pct")
        for name in ("lsr", "ls", "be", "system", "root")
    ),
}
"""Pairs of fields of which the first must be below the second."""
_OR_EQUAL = frozenset({"cpu_evict_be_satisfaction_lower_pct", "node_max", "namespace_max"})
"""First fields of which the second may be equal."""


def conflicts(strategy: Message, given: Mapping[str, object]) -> Iterator[Conflict]:
    """Conflicting fields, reported at a field of this layer. Inherited conflicts were reported before.

    Reading: koordinator a7a1b76b, apis/slo/v1alpha1/nodeslo_types.go (gtfield, ltfield), where it holds within one
    layer; here it holds for what comes of all layers, which is what acts.

    Args:
        strategy: what comes of this layer and those below it.
        given: this layer's own fields.
    """
    kind = type(strategy)
    for low, high in _BELOW.get(kind, ()):
        lower: Any = value_at(strategy, low)
        upper: Any = value_at(strategy, high)
        equal = low in _OR_EQUAL
        if lower is None or upper is None or lower < upper or (equal and lower == upper):
            continue
        if low in given:
            words = "at most" if equal else "below"
            yield Conflict(low, lower, f"{words} {name_of(kind, high)}, which is {upper}", high)
        elif high in given:
            words = "at least" if equal else "above"
            yield Conflict(high, upper, f"{words} {name_of(kind, low)}, which is {lower}", low)
    if isinstance(strategy, Descheduling):
        yield from _bands(strategy)
    priority: Any = given.get("allocatable_evict_priority_threshold")
    if priority is not None and priority > MID_PRIORITY_MAX:
        accepted = f"at most {MID_PRIORITY_MAX}, the maximum of koord-mid"
        yield Conflict("allocatable_evict_priority_threshold", priority, accepted)


def _bands(strategy: Descheduling) -> Iterator[Conflict]:
    """A threshold without its other would be 0, or count for nothing; distances to a mean go in any order."""
    for field in (f"{view}{{}}.{resource}" for view in ("", "prod_") for resource in ("cpu_pct", "mem_pct")):
        low, high = field.format("low"), field.format("high")
        lower: Any = value_at(strategy, low)
        upper: Any = value_at(strategy, high)
        if (lower is None) != (upper is None):
            one, other, value = (high, low, upper) if lower is None else (low, high, lower)
            yield Conflict(one, value, f"{name_of(Descheduling, other)} beside it, or neither", other)
        elif lower is not None and lower > upper and not strategy.use_deviation:
            yield Conflict(low, lower, f"at most {name_of(Descheduling, high)}, which is {upper}", high)
