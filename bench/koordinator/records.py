"""What was measured of Koordinator and Slacktide on one node."""

import msgspec

NAMES = ("Koordinator", "Slacktide")


class Part(msgspec.Struct, frozen=True):
    """What one process cost."""

    cpu_pct: float
    """Of a core."""
    rss_mib: float


class Step(msgspec.Struct, frozen=True):
    """From the load's begin, in seconds; None: not before its end."""

    fell_s: float | None
    """Until the limit first fell."""
    half_s: float | None
    """Until it had fallen by half of what the load uses."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one system."""

    system: str
    load_1m: float
    on_node: dict[str, Part]
    central: dict[str, Part]
    steps: list[Step]
    offered_s: float | None
    """From the load's begin until the Node offered a tenth less batch CPU, or a tenth more."""
    metric_age_s: list[float]
    """The median and the 90th percentile of all looks, four a second."""
    p99_ms: float
    """Of the service, the median of all seconds with steps."""
    batch_cores: float
    """What batch work used meanwhile."""


class Silence(msgspec.Struct, frozen=True):
    """What had its part on the node ended."""

    system: str
    ended_s: float | None
    """Until the Node offered no more than running pods request; None: not in time."""


class Leak(msgspec.Struct, frozen=True):
    """What filled the memory."""

    system: str
    ended: list[str]
    """Pods that went, in order."""
    gone_s: float | None
    """From when the use passed the threshold until the first of them was gone."""
    above_mib: int
    """The most that the use was above the threshold."""
    told: list[str]
    """What the API server shows of the first: conditions, reasons, Events."""


class Recorded(msgspec.Struct, frozen=True):
    """All that was measured."""

    blocks: list[Block]
    silences: list[Silence]
    leaks: list[Leak]
