"""The range of every number in a message, and the length of what a reader keeps.

A record beyond these is refused while it is decoded, before any arithmetic: one bad record costs itself only. The
limits are far above any machine. What follows from sound inputs has a wider range, so that every sum fits in 64 bits.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

COUNT_MAX = 2**53
"""JSON readers in other languages keep whole numbers exact up to this."""
AMOUNT_MAX = 2**50
"""Millicores or bytes (1 PiB) of one machine, pod or container."""
INT64_MAX = 2**63 - 1
TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999: the latest time that can be written as a date."""
INT32_MAX = 2**31 - 1

Count: TypeAlias = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
"""Sequence numbers, epochs, offsets, and how many of anything."""
Amount: TypeAlias = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
"""As measured, declared or asked for, of one machine, pod or container."""
Total: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""A sum of amounts over a node's pods: ``PODS_MAX`` amounts fit."""
Measured: TypeAlias = Annotated[float, Meta(ge=0, le=AMOUNT_MAX)]
"""An amount with a fraction, such as an average. Never NaN, never infinite."""
TimeMs: TypeAlias = Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
"""A time since the UTC epoch, or a span of time."""
WriterEpoch: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
"""Of a bridge's term: a Kubernetes Lease counts its transitions in 32 bits."""
LeaseMs: TypeAlias = Annotated[int, Meta(ge=0, le=3_600_000)]
"""How long an eviction credit is good: a policy allows ten minutes."""
Percent: TypeAlias = Annotated[int, Meta(ge=0, le=100)]
PressurePercent: TypeAlias = Annotated[float, Meta(ge=0, le=1_000)]
"""Of PSI, whose rounding may pass 100."""
Ratio: TypeAlias = Annotated[float, Meta(ge=0, le=1_000)]
Share: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
"""A percentage of which more than 100 is accepted: the reference sells more than the capacity in this way."""
Seconds: TypeAlias = Annotated[int, Meta(ge=1, le=INT32_MAX)]
"""A length of time that a policy sets."""
Int32: TypeAlias = Annotated[int, Meta(ge=-INT32_MAX - 1, le=INT32_MAX)]
"""Kubernetes' priorities, and its other numbers that may be negative."""
Int64: TypeAlias = Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
KnobValue: TypeAlias = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
"""What a cgroup file holds: -1, or as much as the kernel's largest page counter."""
QuotaUs: TypeAlias = Annotated[int, Meta(ge=-1, le=AMOUNT_MAX)]
"""-1: unlimited."""
PeriodUs: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000)]
"""A CFS period. The kernel accepts 1 ms to 1 s; 0 would be divided by."""
Cpu: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
"""A CPU's number. Linux has 8,192 at most today."""
TopologyId: TypeAlias = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
"""A core, socket or NUMA node, as firmware numbers it. -1: the kernel does not know."""
Product: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)] | Annotated[float, Meta(ge=0, le=2.0**80)]
"""An amount times milliseconds. A day of a pod with terabytes does not fit in 64 bits: it is written as a float."""
Term: TypeAlias = Int64 | Annotated[float, Meta(ge=-1e308, le=1e308)]

NODE_CHARS_MAX = 253
"""Kubernetes' longest name."""
PODS_MAX = 5_000
"""Kubernetes runs some 500 on a node; 2,500 ended ones beside them were seen. 5,000 amounts fit in 64 bits."""
CPUS_MAX = 65_536
LABELS_MAX = 10_000
"""Of a node: Kubernetes keeps 256 KiB of annotations, and objects below 1.5 MiB."""
Name: TypeAlias = Annotated[str, Meta(max_length=NODE_CHARS_MAX)]
"""A node, a namespace, a pod, a uid: what readers keep maps by."""
Revision: TypeAlias = Annotated[str, Meta(max_length=128)]
"""A content hash, or a boot id: kept with each node."""
