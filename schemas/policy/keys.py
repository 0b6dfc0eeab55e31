"""The fields of strategies: their names in the ConfigMap, what they accept, and their values by dotted name.

The ranges are the fields' types: they stand in one place, where the strategies are.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import inspect

from slacktide.schemas.bounds import INT32_MAX
from slacktide.schemas.message import Message
from slacktide.schemas.policy.resource_qos import (
    BlkioBlock,
    BlkioLimits,
    BlkioQos,
    CpuQos,
    MemoryQos,
    NetworkQos,
    QosClass,
    QosPolicies,
    ResctrlQos,
    ResourceQos,
)
from slacktide.schemas.policy.strategies import (
    AdmissionPolicy,
    AgentPolicy,
    AggregatePolicy,
    Anomaly,
    Colocation,
    CpuBurst,
    Descheduling,
    EvictionBudget,
    Placement,
    ResourceThreshold,
    UsagePercents,
    UsageWeights,
)

M = TypeVar("M", bound=Message)
OTHER_NAMES: Mapping[type[Message], Mapping[str, str]] = {
    Colocation: {"degrade_time_min": "degradeTimeMinutes"},
    AggregatePolicy: {"durations_s": "durations"},
    ResourceThreshold: {"cpuset_cpus_min": "cpusetMinCPUs"},
    CpuBurst: {},
    EvictionBudget: {},
    Descheduling: {
        "low": "lowThresholds",
        "high": "highThresholds",
        "prod_low": "prodLowThresholds",
        "prod_high": "prodHighThresholds",
        "use_deviation": "useDeviationThresholds",
        "too_few_targets": "numberOfNodes",
        "weights": "resourceWeights",
        "anomaly": "anomalyCondition",
    },
    Placement: {"usage": "usageThresholds", "prod_usage": "prodUsageThresholds", "factors": "estimatedScalingFactors"},
    AgentPolicy: {},
    AdmissionPolicy: {},
    UsagePercents: {"cpu_pct": "cpu", "mem_pct": "memory"},
    UsageWeights: {},
    Anomaly: {},
    ResourceQos: {"lsr": "lsrClass", "ls": "lsClass", "be": "beClass", "system": "systemClass", "root": "cgroupRoot"},
    QosPolicies: {"cpu": "cpuPolicy", "net": "netQOSPolicy"},
    QosClass: {
        "cpu": "cpuQOS",
        "mem": "memoryQOS",
        "blkio": "blkioQOS",
        "resctrl": "resctrlQOS",
        "network": "networkQOS",
    },
    CpuQos: {},
    MemoryQos: {
        "wmark_ratio_pct": "wmarkRatio",
        "wmark_min_adj_pct": "wmarkMinAdj",
        "page_cache_limit_bytes": "pageCacheLimitSize",
    },
    BlkioQos: {},
    BlkioBlock: {"block_type": "type", "limits": "ioCfg"},
    BlkioLimits: {"read_latency_us": "readLatency", "write_latency_us": "writeLatency"},
    ResctrlQos: {},
    NetworkQos: {},
}
"""Each kind of struct, with the fields whose name in the ConfigMap does not follow from their own."""
_WHOLE_WORDS = {"s": "seconds", "pct": "percent", "mem": "memory"}
_CAPITALS = frozenset({"cpu", "be", "iops", "bps"})


def _camel(field: str) -> str:
    """Such as ``cpuSuppressMinPercent`` for ``cpu_suppress_min_pct``."""
    first, *others = (_WHOLE_WORDS.get(word, word) for word in field.split("_"))
    return first + "".join(word.upper() if word in _CAPITALS else word.capitalize() for word in others)


NAMES: Mapping[type[Message], Mapping[str, str]] = {
    kind: {others.get(field, _camel(field)): field for field in kind.__struct_fields__}
    for kind, others in OTHER_NAMES.items()
}
"""Each kind of struct: what the ConfigMap calls a field, and the field."""
NARROWER: Mapping[tuple[type[Message], str], tuple[str, ...]] = {
    # By request is memory's alone; the reference takes what it does not know for the default, without a word.
    (Colocation, "cpu_calculate_policy"): ("usage", "maxUsageRequest"),
    (ResourceThreshold, "cpu_evict_policy"): ("evictByRealLimit", "evictByAllocatable"),
}
"""Fields of a wider type: the texts that the ConfigMap may have there."""
DURATIONS = r"([0-9]+(\.[0-9]+)?(h|m|s|ms))+"
DURATION_CHARS_MAX = 40
_DURATION = re.compile(DURATIONS)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)", re.ASCII)
_UNIT_S = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One name in the ConfigMap."""

    field: str
    part: type[Message] | None
    """The struct of its value, if it is one."""
    item: type[Message] | None
    """The struct of its items, if it is a list."""
    accepted: str
    """What it accepts, in words."""
    value: Callable[[object], object]
    """Converts the value. Raises ValueError if it is not accepted."""


@cache
def keys_of(kind: type[Message]) -> Mapping[str, Key]:
    """The struct's keys by name."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {name: _key(kind, field, types[field]) for name, field in NAMES[kind].items()}


def name_of(kind: type[Message], field: str) -> str:
    """A field's path in the ConfigMap: ``beClass.memoryQOS.priority`` for ``be.mem.priority``."""
    head, _, rest = field.partition(".")
    name, key = next((name, key) for name, key in keys_of(kind).items() if key.field == head)
    return f"{name}.{name_of(key.part, rest)}" if rest and key.part is not None else name


def _key(kind: type[Message], field: str, of: Any) -> Key:
    item = _struct(get_args(of)[0]) if get_origin(of) is tuple else None
    accepted = _accepted(inspect.type_info(of))
    value: Callable[[object], object] = partial(msgspec.convert, type=of)
    texts = NARROWER.get((kind, field)) or (get_args(of) if get_origin(of) is Literal else ())
    if texts:
        accepted, value = " or ".join(f'"{text}"' for text in texts), _one_of(texts)
    elif field == "durations_s":
        accepted, value = "a list of durations such as 5m or 1h30m, 1s or more each", _durations
    return Key(field=field, part=_struct(of), item=item, accepted=accepted, value=value)


def _struct(of: Any) -> type[Message] | None:
    return of if isinstance(of, type) and issubclass(of, Message) else None


def _one_of(texts: tuple[str, ...]) -> Callable[[object], object]:
    def value(given: object) -> object:
        if given not in texts:
            raise ValueError
        return given

    return value


def _durations(given: object) -> object:
    if not isinstance(given, list) or not given:
        raise ValueError
    return tuple(seconds_of(text) for text in given)


def seconds_of(text: object) -> int:
    """Whole seconds of a duration such as ``5m0s``, above 0. Raises ValueError if it is none."""
    if not isinstance(text, str) or len(text) > DURATION_CHARS_MAX or not _DURATION.fullmatch(text):
        raise ValueError("not a duration such as 5m")
    seconds = int(sum(float(number) * _UNIT_S[unit] for number, unit in _SPAN.findall(text)))
    if not 0 < seconds <= INT32_MAX:
        raise ValueError("not a duration above 0")
    return seconds


def _accepted(info: inspect.Type) -> str:
    words = _WORDS.get(type(info))
    return "a JSON object" if words is None else words(info)


_WORDS: Mapping[type[inspect.Type], Callable[[Any], str]] = {
    inspect.BoolType: lambda _: "true or false",
    inspect.IntType: lambda info: f"a whole number from {info.ge} to {info.le}",
    inspect.FloatType: lambda info: f"a number above {info.gt:g}, up to {info.le:g}",
    inspect.StrType: lambda info: "a quantity such as 50M" if info.pattern else "a text",
    inspect.UnionType: lambda info: ", or ".join(
        _accepted(one) for one in info.types if not isinstance(one, inspect.NoneType)
    ),
    inspect.VarTupleType: lambda _: "a list",
}


def value_at(strategy: Message, field: str) -> object:
    """The field's value."""
    value: object = strategy
    for name in field.split("."):
        value = getattr(value, name)
    return value


def leaves(strategy: Message, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every field with its value, in declared order."""
    for name in strategy.__struct_fields__:
        value = getattr(strategy, name)
        if isinstance(value, Message):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def replaced(strategy: M, given: Mapping[str, object]) -> M:
    """The strategy with these fields in place; parts in which nothing changes stay the very same objects.

    What is left out on the wire is found by identity, so that equal strategies are equal bytes.
    """
    own = {field: value for field, value in given.items() if "." not in field}
    for part in dict.fromkeys(field.partition(".")[0] for field in given if "." in field):
        below = {field.partition(".")[2]: value for field, value in given.items() if field.startswith(f"{part}.")}
        own[part] = replaced(getattr(strategy, part), below)
    changed = {field: value for field, value in own.items() if value != getattr(strategy, field)}
    return msgspec.structs.replace(strategy, **changed) if changed else strategy
