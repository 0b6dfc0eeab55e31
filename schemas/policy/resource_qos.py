"""``resource-qos-config``: how the kernel treats pods of each QoS class.

Names, defaults and ranges are the reference's: koordinator a7a1b76b, apis/slo/v1alpha1/nodeslo_types.go,
pkg/util/sloconfig/nodeslo_config.go (DefaultResourceQOSStrategy).
"""

from typing import Annotated, Literal

import msgspec

from slacktide.schemas.bounds import COUNT_MAX, Count, Percent
from slacktide.schemas.message import Message

Switch = Annotated[int, msgspec.Meta(ge=0, le=1)]
Above0 = Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]
Bandwidth = Percent | Annotated[str, msgspec.Meta(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")]
"""A percent of the node's bandwidth, or bytes a second as a quantity such as ``50M``."""
CpuQosPolicy = Literal["groupIdentity", "coreSched", "podIdle"]
"""``podIdle`` is ours: ``cpu.idle`` of each best-effort pod, where ``coreSched`` sets it on their tier."""
NetQosPolicy = Literal["tc", "terway-qos"]
BlockType = Literal["device", "volumegroup", "podvolume"]


class CpuQos(Message, frozen=True, kw_only=True):
    """``cpuQOS``: which pods run first on a CPU."""

    enable: bool = False
    """Set CPU priorities for pods of the class."""
    group_identity: Annotated[int, msgspec.Meta(ge=-1, le=2)] = 0
    """For policy ``groupIdentity``; the highest runs first."""
    sched_idle: Switch = 0
    """``cpu.idle``, of the policies ``coreSched`` and ``podIdle``."""
    core_expeller: bool = False
    """Keeps idle-class pods off the core's other thread, of the policy ``coreSched``."""


class MemoryQos(Message, frozen=True, kw_only=True):
    """``memoryQOS``: whose memory is reclaimed first. Percents are of requests and limits."""

    enable: bool = False
    """Protect or limit memory of pods of the class."""
    min_limit_pct: Percent = 0
    """Memory that the kernel never reclaims (`memory.min`), in percent of the request."""
    low_limit_pct: Percent = 0
    """Memory that the kernel reclaims last (`memory.low`), in percent of the request."""
    throttling_pct: Percent = 0
    """Where the kernel begins to throttle (`memory.high`), in percent between request and limit."""
    wmark_ratio_pct: Percent = 0
    """Use from which the kernel reclaims in the background, in percent of the limit."""
    wmark_scale_permill: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 50
    """How much one background reclaim frees, in 1/1000 of the limit."""
    wmark_min_adj_pct: Annotated[int, msgspec.Meta(ge=-25, le=50)] = 0
    """Shifts the global watermark for the class."""
    page_cache_limit_enable: Switch = 0
    """1: limit the page cache."""
    page_cache_limit_sync: Switch = 0
    """1: reclaim page cache at once."""
    page_cache_limit_bytes: Count | None = None
    """The page cache's limit in bytes."""
    priority_enable: Switch = 0
    """1: the kernel's OOM killer goes by priority."""
    priority: Annotated[int, msgspec.Meta(ge=0, le=12)] = 0
    """The class's priority for the OOM killer."""
    oom_kill_group: Switch = 0
    """1: the OOM killer ends all processes of a pod."""


class BlkioLimits(Message, frozen=True, kw_only=True):
    """``ioCfg``: 0 or absent is no limit."""

    read_iops: Count | None = None
    write_iops: Count | None = None
    read_bps: Count | None = None
    write_bps: Count | None = None
    io_weight_pct: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    read_latency_us: Count | None = None
    write_latency_us: Count | None = None
    read_latency_pct: Percent | None = None
    """Percentile that ``read_latency_us`` is of."""
    write_latency_pct: Percent | None = None
    enable_user_model: bool = False
    model_read_bps: Above0 | None = None
    model_write_bps: Above0 | None = None
    model_read_seq_iops: Above0 | None = None
    model_write_seq_iops: Above0 | None = None
    model_read_rand_iops: Above0 | None = None
    model_write_rand_iops: Above0 | None = None


class BlkioBlock(Message, frozen=True, kw_only=True):
    """One block device, volume group or pod volume."""

    name: str = ""
    block_type: BlockType = "device"
    limits: BlkioLimits = BlkioLimits()


class BlkioQos(Message, frozen=True, kw_only=True):
    """``blkioQOS``: limits of block devices."""

    enable: bool = False
    """Limit block devices for pods of the class."""
    blocks: tuple[BlkioBlock, ...] = ()
    """Devices with their limits."""


class ResctrlQos(Message, frozen=True, kw_only=True):
    """``resctrlQOS``: the last-level cache and the memory bandwidth."""

    enable: bool = False
    """Limit cache and memory bandwidth of pods of the class."""
    cat_range_start_pct: Percent = 0
    """Where the class's part of the cache begins."""
    cat_range_end_pct: Percent = 100
    """Where the class's part of the cache ends."""
    mba_pct: Percent = 100
    """Most memory bandwidth of the class."""


class NetworkQos(Message, frozen=True, kw_only=True):
    """``networkQOS``: guaranteed and maximum bandwidth."""

    enable: bool = False
    """Limit the network for pods of the class."""
    ingress_request: Bandwidth = 0
    """Inbound bandwidth that is guaranteed."""
    ingress_limit: Bandwidth = 100
    """Most inbound bandwidth."""
    egress_request: Bandwidth = 0
    """Outbound bandwidth that is guaranteed."""
    egress_limit: Bandwidth = 100
    """Most outbound bandwidth."""


class QosClass(Message, frozen=True, kw_only=True):
    """How pods of one QoS class are treated."""

    cpu: CpuQos = CpuQos()
    mem: MemoryQos = MemoryQos()
    blkio: BlkioQos = BlkioQos()
    resctrl: ResctrlQos = ResctrlQos()
    network: NetworkQos = NetworkQos()


LATENCY_SENSITIVE = QosClass(
    cpu=CpuQos(group_identity=2), mem=MemoryQos(wmark_ratio_pct=95, wmark_scale_permill=20, wmark_min_adj_pct=-25)
)
BEST_EFFORT = QosClass(
    cpu=CpuQos(group_identity=-1),
    mem=MemoryQos(wmark_ratio_pct=95, wmark_scale_permill=20, wmark_min_adj_pct=50),
    resctrl=ResctrlQos(cat_range_end_pct=30),
)


class QosPolicies(Message, frozen=True, kw_only=True):
    """``policies``: by which means."""

    cpu: CpuQosPolicy = "groupIdentity"
    """How CPU priorities are set."""
    net: NetQosPolicy = "tc"
    """How the network is limited."""


class ResourceQos(Message, frozen=True, kw_only=True):
    """``resource-qos-config``: all parts off by default, with the values used once enabled."""

    policies: QosPolicies = QosPolicies()
    lsr: QosClass = LATENCY_SENSITIVE
    ls: QosClass = LATENCY_SENSITIVE
    be: QosClass = BEST_EFFORT
    system: QosClass = QosClass()
    root: QosClass = QosClass()
    """The root cgroup, where block devices are modelled."""
    dry_run: bool = False
    """Slacktide's own: decide and record these settings, and do not carry them out."""
