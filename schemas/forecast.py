"""What the pods of a node are predicted to use at most. Topic slacktide.node.forecast.v1, key: node, compacted.

The node's agent trains the models and publishes them every 10 minutes. They are whole: an agent that lost its state
folder goes on with the newest record.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from slacktide.schemas.bounds import PODS_MAX, Amount, Count, Int64, Name, Revision, TimeMs
from slacktide.schemas.message import Message

FORECAST_STALE_MS = 30 * 60_000
"""By a forecast that is older nothing is sold."""
SYSTEM, NODE = "sys", "node"
"""Names of the models of no pod and of no class."""
BUCKETS_MAX = 205
Bucket = Annotated[int, Meta(ge=0, le=BUCKETS_MAX - 1)]
Weight = Annotated[float, Meta(ge=-1e308, le=1e308)]


class PeakCheckpoint(Message, frozen=True, kw_only=True):
    """What is kept of a histogram: its shape in integers, and its whole weight."""

    reference_ms: Int64
    total_weight: Weight
    bucket_weights: Annotated[dict[Bucket, Count], Meta(max_length=BUCKETS_MAX)]
    """Bucket -> weight, where the heaviest is 10,000; what rounds to 0 is left out."""


class Peaks(Message, frozen=True, kw_only=True):
    """What something is predicted to use, and by how many samples."""

    cpu_p95_milli: Amount
    mem_p98_bytes: Amount
    samples: Count
    """One for each interval of the record."""
    since_ms: TimeMs
    """Event time of the first."""


class Model(Message, frozen=True, kw_only=True):
    """The same with its histograms."""

    cpu_p95_milli: Amount
    mem_p98_bytes: Amount
    samples: Count
    """One for each interval of the record."""
    since_ms: TimeMs
    """Event time of the first."""
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
    """Of the ids of its containers: a model begins anew when one of them does. "": not known."""
    peaks: Model


class NodePeaks(Message, frozen=True, kw_only=True):
    """A node's record without its histograms."""

    node: Name
    boot_id: Revision
    """Of the agent's start; compares as text, the higher start wins."""
    seq: Count
    observed_ms: TimeMs
    interval_ms: TimeMs
    """What one sample of a model is the 90th percentile of."""
    pods: Annotated[list[PodPeaks], Meta(max_length=PODS_MAX)] = []
    items: Annotated[dict[Name, Peaks], Meta(max_length=16)] = {}

    @property
    def revision(self) -> str:
        """By which figures name it."""
        return f"{self.boot_id}/{self.seq}"

    def sampled_s(self, peaks: Peaks) -> int:
        """How many seconds a model has samples of."""
        return peaks.samples * self.interval_ms // 1_000


class NodeForecast(Message, frozen=True, kw_only=True):
    """All models of a node. A null value: the node is gone."""

    node: Name
    boot_id: Revision
    """Of the agent's start; compares as text, the higher start wins."""
    seq: Count
    observed_ms: TimeMs
    """Event time of the newest sample."""
    interval_ms: TimeMs
    """What one sample of a model is the 90th percentile of."""
    pods: Annotated[list[PodModel], Meta(max_length=PODS_MAX)] = []
    """Production pods that have not ended, by uid."""
    items: Annotated[dict[Name, Model], Meta(max_length=16)] = {}
    """By class of pods; ``node``: the whole node; ``sys``: what no pod accounts for. Who never had a pod has none."""
    unknown: Annotated[list[Name], Meta(max_length=PODS_MAX)] = []
    """Production pods without a model, by uid."""
    dropped: Count = 0
    """Samples of this boot that were older than their model's last."""

    @property
    def revision(self) -> str:
        """By which figures name it."""
        return f"{self.boot_id}/{self.seq}"
