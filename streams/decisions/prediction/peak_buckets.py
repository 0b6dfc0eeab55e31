"""The buckets of a usage histogram: each is 5% wider than the one below it.

Reading: koordinator a7a1b76b, pkg/util/histogram/histogram_options.go; pkg/koordlet/prediction/peak_predictor.go,
which defines the first bucket and the upper limit of CPU and memory.
"""

from __future__ import annotations

import math

import msgspec

_RATIO = 1.0 + 0.05
_GROWTH = _RATIO - 1
_LOG_RATIO = math.log(_RATIO)


class Buckets(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The buckets of one resource."""

    first: float
    """Width of bucket 0, in cores or bytes."""
    count: int
    unit: str
    """Unit of a peak: ``milli`` or ``bytes``."""
    per_unit: float
    """Units per core or byte."""

    def bucket_of(self, value: float) -> int:
        """Return the bucket of a usage in cores or bytes. The last bucket holds all larger values."""
        if value < self.first:
            return 0
        return min(self.count - 1, int(_steps(value, self.first)))

    def start(self, bucket: int) -> float:
        """Return the start of a bucket in cores or bytes: the end of the bucket below it."""
        return self.first * (_RATIO**bucket - 1) / _GROWTH


def _steps(value: float, first: float) -> float:
    return math.log(value * _GROWTH / first + 1) / _LOG_RATIO


def _buckets(*, first: float, top: float, unit: str, per_unit: float) -> Buckets:
    return Buckets(first=first, count=math.ceil(_steps(top, first)) + 1, unit=unit, per_unit=per_unit)


CPU_BUCKETS = _buckets(first=0.025, top=1024.0, unit="milli", per_unit=1000.0)
"""From 25 millicores to 1024 cores: 158 buckets."""
MEM_BUCKETS = _buckets(first=5242880.0, top=float(2**41), unit="bytes", per_unit=1.0)
"""From 5 MiB to 2 TiB: 205 buckets."""
