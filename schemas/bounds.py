"""Ranges of numbers in messages, and maximum lengths.

Decoding refuses a record outside these ranges, before any arithmetic. The limits are far above any machine. Derived
figures have wider ranges, so that every sum fits in 64 bits.
"""

from typing import Annotated, TypeAlias

from msgspec import Meta

COUNT_MAX = 2**53
"""The largest integer that JSON readers in all languages keep exact."""
AMOUNT_MAX = 2**50
"""Millicores or bytes (1 PiB) of one machine, pod or container."""
INT64_MAX = 2**63 - 1
TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999: the latest time that can be written as a date."""
INT32_MAX = 2**31 - 1

Count: TypeAlias = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
"""Sequence numbers, epochs, offsets, and how many of anything."""
Amount: TypeAlias = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
"""An amount measured, declared or requested, of one machine, pod or container."""
Total: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""A sum of amounts over a node's pods: ``PODS_MAX`` amounts fit."""
Measured: TypeAlias = Annotated[float, Meta(ge=0, le=AMOUNT_MAX)]
"""An amount with a fraction, such as an average. Never NaN, never infinite."""
TimeMs: TypeAlias = Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
"""A time since the UTC epoch, or a span of time."""
WriterEpoch: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
"""Epoch of a bridge's term: a Kubernetes Lease counts transitions in 32 bits."""
LeaseMs: TypeAlias = Annotated[int, Meta(ge=0, le=3_600_000)]
"""Validity of eviction credit: a policy allows ten minutes."""
Percent: TypeAlias = Annotated[int, Meta(ge=0, le=100)]
PressurePercent: TypeAlias = Annotated[float, Meta(ge=0, le=1_000)]
"""Of PSI, whose rounding may pass 100."""
Ratio: TypeAlias = Annotated[float, Meta(ge=0, le=1_000)]
Share: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
"""A percentage that may exceed 100, as in the reference, to overcommit."""
Seconds: TypeAlias = Annotated[int, Meta(ge=1, le=INT32_MAX)]
"""A length of time that a policy sets."""
Int32: TypeAlias = Annotated[int, Meta(ge=-INT32_MAX - 1, le=INT32_MAX)]
"""Kubernetes' priorities, and its other numbers that may be negative."""
Int64: TypeAlias = Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
KnobValue: TypeAlias = Annotated[int, Meta(ge=-1, le=INT64_MAX)] | Annotated[str, Meta(max_length=4_096)]
"""Value of a cgroup file: from -1 to the kernel's largest page counter, or a list of CPUs such as ``0-3,6``."""
QuotaUs: TypeAlias = Annotated[int, Meta(ge=-1, le=AMOUNT_MAX)]
"""-1: unlimited."""
PeriodUs: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000)]
"""A CFS period. The kernel accepts 1 ms to 1 s; 0 would be divided by."""
Cpu: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
"""A CPU's number. Linux has 8,192 at most today."""
TopologyId: TypeAlias = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
"""Firmware's number of a core, socket or NUMA node. -1: unknown to the kernel."""
Product: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)] | Annotated[float, Meta(ge=0, le=2.0**80)]
"""An amount times milliseconds. A day of a pod with terabytes does not fit in 64 bits: it is written as a float."""
Term: TypeAlias = Int64 | Annotated[float, Meta(ge=-1e308, le=1e308)]

NODE_CHARS_MAX = 253
"""Kubernetes' longest name."""
PODS_MAX = 5_000
"""Kubernetes runs some 500 on a node, plus up to 2,500 ended ones. 5,000 amounts fit in 64 bits."""
CPUS_MAX = 65_536
LABELS_MAX = 10_000
"""Of a node: Kubernetes keeps 256 KiB of annotations, and objects below 1.5 MiB."""
Name: TypeAlias = Annotated[str, Meta(max_length=NODE_CHARS_MAX)]
"""A node, a namespace, a pod, a uid: what readers keep maps by."""
Revision: TypeAlias = Annotated[str, Meta(max_length=128)]
"""A content hash, or a boot id: kept with each node."""


def clamped_ms(time_ms: int) -> int:
    """The nearest time that can be written as a date, from 1970 to the year 9999, in UTC epoch milliseconds."""
    return min(max(0, time_ms), TIME_MS_MAX)
