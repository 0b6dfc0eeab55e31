"""Predicted peak use of a node's pods. Topic slacktide.node.forecast.v1, key: node, compacted.

The node's agent trains the models and publishes them every 10 minutes. Records are complete: an agent that lost its
state folder continues with the newest record.
"""

from typing import Annotated

from msgspec import Meta

from slacktide.schemas.bounds import PODS_MAX, Amount, Count, Int64, Name, Revision, TimeMs
from slacktide.schemas.message import Message

FORECAST_STALE_MS = 30 * 60_000
"""An older forecast is stale: no mid resources are offered by it."""
SYSTEM, NODE = "sys", "node"
"""Names of the models of the system and of the whole node."""
BUCKETS_MAX = 205
Bucket = Annotated[int, Meta(ge=0, le=BUCKETS_MAX - 1)]
Weight = Annotated[float, Meta(ge=-1e308, le=1e308)]


class PeakCheckpoint(Message, frozen=True, kw_only=True):
    """A saved histogram: its shape in integers, and its total weight."""

    reference_ms: Int64
    total_weight: Weight
    bucket_weights: Annotated[dict[Bucket, Count], Meta(max_length=BUCKETS_MAX)]
    """Bucket -> weight. The heaviest is 10,000; weights that round to 0 are left out."""


class Peaks(Message, frozen=True, kw_only=True):
    """Predicted peaks, and the samples behind them."""

    cpu_p95_milli: Amount
    mem_p98_bytes: Amount
    samples: Count
    """Number of intervals in it."""
    since_ms: TimeMs
    """Event time of the first sample."""


class Model(Message, frozen=True, kw_only=True):
    """Predicted peaks with their histograms."""

    cpu_p95_milli: Amount
    mem_p98_bytes: Amount
    samples: Count
    """Number of intervals in it."""
    since_ms: TimeMs
    """Event time of the first sample."""
    updated_ms: TimeMs
    """Event time of the last sample."""
    cpu: PeakCheckpoint
    mem: PeakCheckpoint


class PodPeaks(Message, frozen=True, kw_only=True):
    """A production pod."""

    uid: Name
    peaks: Peaks


class PodModel(Message, frozen=True, kw_only=True):
    """A production pod with its histograms."""

    uid: Name
    containers: Revision = ""
    """Revision of its container ids: the model is reset when a container is replaced. "": unknown."""
    peaks: Model


class NodePeaks(Message, frozen=True, kw_only=True):
    """A node's record without its histograms."""

    node: Name
    boot_id: Revision
    """Of the agent's start. Compared as text; the highest is the newest start."""
    seq: Count
    observed_ms: TimeMs
    interval_ms: TimeMs
    """Time covered by one sample of a model, which is a 90th percentile."""
    pods: Annotated[list[PodPeaks], Meta(max_length=PODS_MAX)] = []
    items: Annotated[dict[Name, Peaks], Meta(max_length=16)] = {}

    @property
    def revision(self) -> str:
        """Revision that other records refer to."""
        return f"{self.boot_id}/{self.seq}"

    def sampled_s(self, peaks: Peaks) -> int:
        """Seconds covered by a model's samples."""
        return peaks.samples * self.interval_ms // 1_000


class NodeForecast(Message, frozen=True, kw_only=True):
    """All models of a node. A null value: the node is gone."""

    node: Name
    boot_id: Revision
    """Of the agent's start. Compared as text; the highest is the newest start."""
    seq: Count
    observed_ms: TimeMs
    """Event time of the newest sample."""
    interval_ms: TimeMs
    """Time covered by one sample of a model, which is a 90th percentile."""
    pods: Annotated[list[PodModel], Meta(max_length=PODS_MAX)] = []
    """Production pods that have not ended, by uid."""
    items: Annotated[dict[Name, Model], Meta(max_length=16)] = {}
    """By class of pods; ``node``: the whole node; ``sys``: use that no pod accounts for. Unused classes have none."""
    unknown: Annotated[list[Name], Meta(max_length=PODS_MAX)] = []
    """Production pods without a model, by uid."""
    dropped: Count = 0
    """Samples of this boot that were older than the last one of their model."""

    @property
    def revision(self) -> str:
        """Revision that other records refer to."""
        return f"{self.boot_id}/{self.seq}"
