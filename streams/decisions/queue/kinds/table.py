"""Reads an object by its kind's row."""

from collections.abc import Iterable, Sequence

from slacktide.streams.decisions.queue.kinds.manifest import Json, Part
from slacktide.streams.decisions.queue.kinds.pods import PodGroup
from slacktide.streams.decisions.queue.kinds.queued import Queued
from slacktide.streams.decisions.queue.kinds.ray import RayCluster, RayJob
from slacktide.streams.decisions.queue.kinds.rows import (
    PARENTS,
    POD,
    RAY_CLUSTER,
    RAY_JOB,
    ROWS,
    SPARK,
    TRAIN_JOB,
    Row,
    kind_of,
)
from slacktide.streams.decisions.queue.kinds.spark import SparkApplication
from slacktide.streams.decisions.queue.kinds.trainer import TrainJob

COMPUTED: dict[str, type[Queued]] = {
    TRAIN_JOB.kind: TrainJob,
    RAY_JOB.kind: RayJob,
    RAY_CLUSTER.kind: RayCluster,
    SPARK.kind: SparkApplication,
    POD.kind: PodGroup,
}
"""Kinds whose pod sets have a module."""


class _Other(Queued):
    """A kind without a row."""

    def refusal(self) -> str:
        """Return that its kind is not queued."""
        return "kind"


class Table:
    """The rows of Slacktide, and ``own`` rows of users."""

    def __init__(self, own: Iterable[Row] = ()) -> None:
        self.rows = (*ROWS, *own)
        self._rows = {(row.api_version, row.kind): row for row in self.rows}
        self._parents = PARENTS | {kind_of(*names) for names in self._rows}

    def read(self, given: Sequence[Json]) -> Queued:
        """Read an object, and others that it depends on. Raises CaseError."""
        names = tuple(Part(given[0])[name].text() for name in ("apiVersion", "kind"))
        row = self._rows.get(names)  # type: ignore[arg-type]
        if row is None:
            return _Other(POD, given, self._parents)
        made = COMPUTED.get(row.kind, Queued) if row in ROWS else Queued
        return made(row, given, self._parents)
