"""Labels and annotations by which users wish a pod to be treated. One that cannot be read is ignored, with a note."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from slacktide.schemas.bounds import INT32_MAX
from slacktide.schemas.errors import TextError
from slacktide.schemas.kubernetes_fields import Reader
from slacktide.schemas.qos import LABEL_SUB_PRIORITY
from slacktide.schemas.text import integer_of, json_of, shown

RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
"""Which CPUs the scheduler bound the pod to."""
CPU_BURST = "koordinator.sh/cpuBurst"
EVICTION_ENABLED = "koordinator.sh/eviction-enabled"
EVICTION_PRIORITY = "koordinator.sh/eviction-priority"
EVICTION_POLICY = "koordinator.sh/eviction-policy"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
KEPT_CHARS_MAX = 4_096
"""Each record of the pod contains these texts."""

IGNORED = "ignored"
T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
"""Within 32 bits, so that a limiter's capacity, a product of two, fits in 64 bits."""


class PodBurst(msgspec.Struct, frozen=True, rename="camel"):
    """The annotation ``koordinator.sh/cpuBurst``. A null and an empty policy count as absent, as in the reference."""

    policy: str | None = None
    cpu_burst_percent: Number | None = None
    cfs_quota_burst_percent: Number | None = None
    cfs_quota_burst_period_seconds: Number | None = None


class _ResourceStatus(msgspec.Struct):
    cpuset: str | None = None


def cost_of(text: str) -> int:
    """Read a deletion or eviction cost. Raises TextError."""
    return integer_of(text, where="")


def index_of(text: str) -> int:
    """Read a completion index. Raises TextError."""
    return integer_of(text, where="", least=0, most=INT32_MAX)


def index_failures_of(text: str) -> int:
    """Read how often an index failed. Raises TextError."""
    return integer_of(text, where="", least=0, most=10**10 - 1)


def _int32(text: str) -> int:
    return integer_of(text, where="", least=-INT32_MAX - 1, most=INT32_MAX)


def _cpuset_of(text: str) -> str:
    status: _ResourceStatus = json_of(text, _ResourceStatus, where="")
    return _kept(status.cpuset or "")


def _burst_of(text: str) -> str:
    json_of(text, PodBurst, where="")
    return _kept(text)


def _features_of(text: str) -> list[str]:
    features: list[str] | None = json_of(_kept(text), list[str] | None, where="")
    return features or []


def _kept(text: str) -> str:
    if len(text) > KEPT_CHARS_MAX:
        raise TextError("", f"{len(text)} characters; accepted: at most {KEPT_CHARS_MAX}")
    return text


_NUMBER = "a whole number"
_ANNOTATIONS: Mapping[str, tuple[Any, ...]] = {
    RESOURCE_STATUS: (_cpuset_of, 'JSON such as {"cpuset": "0-3,6"}'),
    CPU_BURST: (_burst_of, 'JSON such as {"policy": "auto"}'),
    EVICTION_PRIORITY: (_int32, "a whole number of 32 bits"),
    EVICTION_POLICY: (_features_of, 'JSON such as ["BEMemoryEvict"]', "no feature may evict the pod"),
    DELETION_COST: (cost_of, _NUMBER),
    EVICTION_COST: (cost_of, _NUMBER),
    INDEX: (index_of, "a whole number of 31 bits"),
    INDEX_FAILURES: (index_failures_of, _NUMBER),
}
_LABELS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    LABEL_SUB_PRIORITY: (lambda text: integer_of(text, where=""), "a whole number of 64 bits")
}


def wishes(labels: Mapping[str, str], annotations: Mapping[str, str], path: str, reader: Reader) -> dict[str, Any]:
    """Return the fields of ``Pod`` that they set. ``path`` of the metadata, for notes.

    Where the features that may evict it cannot be read, none may, as in the reference.
    """
    found = {
        **{key: read_mark(annotations, key, f"{path}.annotations", reader, *how) for key, how in _ANNOTATIONS.items()},
        **{key: read_mark(labels, key, f"{path}.labels", reader, *how) for key, how in _LABELS.items()},
    }
    features = found[EVICTION_POLICY]
    return {
        "sub_priority": found[LABEL_SUB_PRIORITY],
        "cpuset": found[RESOURCE_STATUS] or "",
        "cpu_burst": found[CPU_BURST],
        "eviction_enabled": labels.get(EVICTION_ENABLED) == "true",
        "eviction_priority": found[EVICTION_PRIORITY] or 0,
        "eviction_features": [] if features is None and annotations.get(EVICTION_POLICY) is not None else features,
    }


def read_mark(
    marks: Mapping[str, str],
    key: str,
    path: str,
    reader: Reader,
    read: Callable[[str], T],
    accepted: str,
    effect: str = IGNORED,
) -> T | None:
    """Read one; None: it is absent, or cannot be read, which is noted. An empty one is absent if it is ``IGNORED``."""
    text = marks.get(key)
    if text is None or (not text and effect == IGNORED):
        return None
    try:
        return read(text)
    except TextError:
        reader.note(f'{path}["{key}"]', f"{shown(text)}: {effect}; accepted: {accepted}")
        return None
