"""The operator's thresholds. Topic slacktide.policy.v1, one partition, key: policy.

The source is the ConfigMap ``slo-controller-config``: each value of its data is JSON text.
Names, defaults and ranges are the reference's: koordinator a7a1b76b,
apis/configuration/slo_controller_config.go, apis/slo/v1alpha1/nodeslo_types.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import msgspec

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError, ConfigError, Finding
from slacktide.schemas.message import Count, Message
from slacktide.schemas.policy.strategies import WINDOW_S_MAX, Colocation, ResourceThreshold

KEY = "policy"


class Policy(Message, frozen=True, kw_only=True):
    """What is in force in the whole cluster. A null value changes nothing."""

    version: str
    """Content hash of the strategies: equal or not, there is no older."""
    colocation: Colocation = Colocation()
    resource_threshold: ResourceThreshold = ResourceThreshold()
    writer_epoch: Count = 0
    published_ms: Count = 0


def policy_of(colocation: Colocation, resource_threshold: ResourceThreshold) -> Policy:
    """A policy with its version. The publisher adds its epoch and time."""
    content = msgspec.json.encode((colocation, resource_threshold))
    version = hashlib.sha256(content).hexdigest()[:12]
    return Policy(version=version, colocation=colocation, resource_threshold=resource_threshold)


DEFAULT = policy_of(Colocation(), ResourceThreshold())
"""The reference's: everything off."""


def read(key: bytes | None, value: bytes | None) -> Policy:
    """The policy in a record of its topic.

    Raises:
        BadMessageError: it is none.

    """
    if key != KEY.encode():
        raise BadMessageError("Policy", f"the record's key is {key!r}, not {KEY!r}")
    return decode(value, Policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """One key of a strategy: where it goes, what it accepts."""

    name: str
    accepted: str
    accepts: Callable[[object], bool]


def _integer(low: int, high: int | None) -> tuple[str, Callable[[object], bool]]:
    def accepts(value: object) -> bool:
        return type(value) is int and value >= low and (high is None or value <= high)

    return (f"a whole number from {low} to {high}" if high is not None else f"a whole number, {low} or more"), accepts


def _field(name: str, kind: tuple[str, Callable[[object], bool]]) -> _Field:
    return _Field(name=name, accepted=kind[0], accepts=kind[1])


def _one_of(*texts: str) -> tuple[str, Callable[[object], bool]]:
    return " or ".join(f'"{text}"' for text in texts), lambda value: value in texts


_BOOL: tuple[str, Callable[[object], bool]] = ("true or false", lambda value: isinstance(value, bool))
_PERCENT = _integer(0, 100)
_AT_LEAST_0 = _integer(0, None)

_COLOCATION = {
    "enable": _field("enable", _BOOL),
    "metricAggregateDurationSeconds": _field("metric_aggregate_duration_s", _integer(1, WINDOW_S_MAX)),
    "cpuReclaimThresholdPercent": _field("cpu_reclaim_threshold_pct", _AT_LEAST_0),
    "memoryReclaimThresholdPercent": _field("mem_reclaim_threshold_pct", _AT_LEAST_0),
    "cpuCalculatePolicy": _field("cpu_calculate_policy", _one_of("usage", "maxUsageRequest")),
    "memoryCalculatePolicy": _field("mem_calculate_policy", _one_of("usage", "request", "maxUsageRequest")),
    "batchCPUThresholdPercent": _field("batch_cpu_threshold_pct", _AT_LEAST_0),
    "batchMemoryThresholdPercent": _field("batch_mem_threshold_pct", _AT_LEAST_0),
}
_THRESHOLD = {
    "enable": _field("enable", _BOOL),
    "cpuSuppressThresholdPercent": _field("cpu_suppress_threshold_pct", _PERCENT),
    "cpuSuppressMinPercent": _field("cpu_suppress_min_pct", _PERCENT),
    "cpuSuppressPolicy": _field("cpu_suppress_policy", _one_of("cpuset", "cfsQuota")),
}
# Known to the reference, read by no part of Slacktide yet.
_COLOCATION_LATER = frozenset({
    "metricReportIntervalSeconds", "metricAggregatePolicy", "metricMemoryCollectPolicy", "degradeTimeMinutes",
    "updateTimeThresholdSeconds", "resourceDiffThreshold", "allocationStrategy", "midReclaimMode",
    "midCPUThresholdPercent", "midMemoryThresholdPercent", "midUnallocatedPercent", "midStaticCPUReservedPercent",
    "midStaticMemoryReservedPercent", "extensions", "nodeConfigs",
})  # fmt: skip
_THRESHOLD_LATER = frozenset({
    "memoryEvictThresholdPercent", "memoryEvictLowerPercent", "cpuEvictBESatisfactionUpperPercent",
    "cpuEvictBESatisfactionLowerPercent", "cpuEvictBEUsageThresholdPercent", "cpuEvictTimeWindowSeconds",
    "cpuEvictPolicy", "cpuEvictThresholdPercent", "cpuEvictLowerPercent", "evictEnabledPriorityThreshold",
    "allocatableEvictPriorityThreshold", "cpuAllocatableEvictThresholdPercent", "cpuAllocatableEvictLowerPercent",
    "memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent", "extensions",
})  # fmt: skip
_KEYS_LATER = frozenset({"resource-qos-config", "cpu-burst-config", "system-config", "host-application-config",
                         "cpu-normalization-config", "resource-amplification-config"})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A valid policy, and what in its file is not in effect."""

    policy: Policy
    notes: tuple[str, ...]


def parse(document: object, file: str) -> Parsed:
    """Read and validate the ConfigMap.

    Args:
        document: the ConfigMap as plain data.
        file: its name, for messages.

    Raises:
        ConfigError: with every finding: file, field path, value, accepted range.

    """
    findings: list[Finding] = []
    notes: list[str] = []
    data = _data(document, file)
    for key in data:
        if key in _KEYS_LATER:
            notes.append(f"{file}: data.{key}: not yet in effect")
        elif key not in {"colocation-config", "resource-threshold-config"}:
            notes.append(f"{file}: data.{key}: unknown, ignored")
    reader = _Reader(file=file, findings=findings, notes=notes)
    colocation = reader.strategy(data, "colocation-config", _COLOCATION, _COLOCATION_LATER, nested=False)
    threshold = reader.strategy(data, "resource-threshold-config", _THRESHOLD, _THRESHOLD_LATER, nested=True)
    if findings:
        raise ConfigError(findings)
    if threshold.get("enable") and threshold.get("cpu_suppress_policy", "cpuset") == "cpuset":
        notes.append(
            f'{file}: data["resource-threshold-config"].clusterStrategy.cpuSuppressPolicy: cpuset '
            "is not built yet; carried out as cfsQuota"
        )
    policy = policy_of(msgspec.convert(colocation, Colocation), msgspec.convert(threshold, ResourceThreshold))
    return Parsed(policy=policy, notes=tuple(notes))


def _data(document: object, file: str) -> Mapping[str, object]:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != "ConfigMap":
        raise ConfigError([Finding(file=file, field="kind", value=repr(kind), accepted='"ConfigMap"')])
    data = cast("dict[str, object]", document).get("data", {})
    if not isinstance(data, dict):
        raise ConfigError([Finding(file=file, field="data", value=repr(data)[:60], accepted="a map of JSON texts")])
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads strategies out of the ConfigMap's JSON texts, gathering findings and notes."""

    file: str
    findings: list[Finding]
    notes: list[str]

    def refuse(self, field: str, value: object, accepted: str) -> None:
        text = msgspec.json.encode(value).decode() if not isinstance(value, str) else repr(value)
        self.findings.append(Finding(file=self.file, field=field, value=text[:80], accepted=accepted))

    def strategy(
        self, data: Mapping[str, object], key: str, fields: Mapping[str, _Field], later: frozenset[str], *, nested: bool
    ) -> dict[str, object]:
        """Read one strategy; ``nested``: it lies under ``clusterStrategy``."""
        path = f'data["{key}"]'
        text = data.get(key)
        if text is None:
            return {}
        try:
            body = msgspec.json.decode(text if isinstance(text, str) else b"")
        except msgspec.DecodeError as exc:
            self.refuse(path, text, f"JSON text ({exc})")
            return {}
        if nested and isinstance(body, dict):
            self._tell_unread(path, set(body) - {"clusterStrategy"}, frozenset({"nodeStrategies"}))
            path, body = f"{path}.clusterStrategy", body.get("clusterStrategy", {})
        if not isinstance(body, dict):
            self.refuse(path, body, "a JSON object")
            return {}
        self._tell_unread(path, set(body) - set(fields), later)
        return self._fields(path, body, fields)

    def _tell_unread(self, path: str, names: set[str], later: frozenset[str]) -> None:
        for name in sorted(names):
            said = "not yet in effect" if name in later else "unknown, ignored"
            self.notes.append(f"{self.file}: {path}.{name}: {said}")

    def _fields(self, path: str, body: Mapping[str, object], fields: Mapping[str, _Field]) -> dict[str, object]:
        read: dict[str, object] = {}
        for name, field in fields.items():
            value = body.get(name)
            if value is None:
                continue
            if field.accepts(value):
                read[field.name] = value
            else:
                self.refuse(f"{path}.{name}", value, field.accepted)
        return read
