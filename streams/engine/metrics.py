"""Prometheus metrics of a stream worker."""

from bisect import bisect_right
from collections import Counter as Counts
from collections.abc import Sequence
from typing import get_args

from prometheus_client import Counter, Gauge, Histogram

from slacktide.schemas.policy import Policy
from slacktide.schemas.proof import PROVEN, Verdict
from slacktide.schemas.topics import DEAD_LETTER
from slacktide.streams.learning.folder import IGNORED
from slacktide.streams.proofs import Judge
from slacktide.streams.records import Out, Place, Record
from slacktide.streams.rendering import RenderedAnswers


class Ages(Histogram):
    """A histogram of ages in seconds."""

    def observe_all(self, ages_ms: Sequence[int]) -> None:
        """Observe ages given in milliseconds. The Prometheus client has no bulk call."""
        ordered, below = sorted(ages_ms), 0
        for bucket, bound_s in zip(self._buckets, self._upper_bounds, strict=True):
            before, below = below, bisect_right(ordered, bound_s * 1_000)
            if below > before:
                bucket.inc(below - before)
        self._sum.inc(sum(ages_ms) / 1_000)


SAMPLES = Counter("slacktide_stream_samples", "Samples read, invalid ones included.")
ANSWERS = Counter("slacktide_stream_answers", "Answers that Kafka acknowledged.", ["answer"])
DEAD_LETTERS = Counter(
    "slacktide_stream_dead_letters", "Records that could not be processed and were published as dead letters."
)
PROOF_REFUSED = Counter(
    "slacktide_stream_proof_refused",
    "Samples, outcomes and minutes of services without a valid proof of their node.",
    ["verdict"],
)
LATE_SAMPLES = Gauge("slacktide_stream_late_samples", "Samples answered but in no window: repeated or late.")
SAMPLE_AGE_SECONDS = Ages(
    "slacktide_stream_sample_age_seconds",
    "Seconds from taking a sample to deciding it, by the clocks of node and worker.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300),
)
LAG_RECORDS = Gauge("slacktide_stream_lag_records", "Samples that are not answered yet.", ["topic", "partition"])
LAG_SECONDS = Gauge(
    "slacktide_stream_lag_seconds", "Age of the last answered sample while others wait, else 0.", ["topic", "partition"]
)
REBALANCES = Counter("slacktide_stream_rebalances", "Rebalances of the consumer group.")
READ_BACK = Counter("slacktide_stream_read_back_samples", "Samples read again at takeovers, without answers.")
REBUILT_SECONDS = Histogram(
    "slacktide_stream_rebuilt_seconds",
    "Seconds to rebuild a partition's windows at takeovers.",
    buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
)
BACKFILLED = Counter("slacktide_stream_backfilled_samples", "Backfilled samples added to windows, without answers.")
PARTITIONS = Gauge("slacktide_stream_partitions", "Partitions assigned.")
SILENT_NODES = Gauge("slacktide_stream_silent_nodes", "Nodes that are marked stale.")
FROZEN = Gauge("slacktide_stream_frozen", "Silent nodes that are not reported stale, because the pipeline is broken.")
NODES = Gauge("slacktide_stream_nodes", "Nodes in memory.")
UNKNOWN_SAMPLES = Counter(
    "slacktide_stream_unknown_node_samples", "Samples answered `skipped` because their node does not exist."
)
TWO_BOOTS = Gauge("slacktide_stream_two_boots_nodes", "Nodes frozen because two agents send samples of them.")
POLICY_REFUSED = Gauge(
    "slacktide_stream_policy_refused", "1 while the newest record of the policy topic is rejected or null."
)
SESSIONS = Counter("slacktide_stream_sessions", "Connections made to Kafka.")
JOBS = Gauge("slacktide_stream_jobs", "Jobs whose status this worker publishes.")
JOB_EVENTS = Counter("slacktide_stream_job_events", "Events of Jobs and their pods, folded into statuses.")
SERVICES = Gauge("slacktide_stream_services", "Services whose profile this worker publishes.")
SERVICE_MINUTES = Counter("slacktide_stream_service_minutes", "Minutes of services on nodes, folded into profiles.")
SERVICE_MINUTES_IGNORED = Counter(
    "slacktide_stream_service_minutes_ignored", "Minutes of services that are in no profile.", ["why"]
)

SHADOW_ANSWERS = Counter("slacktide_stream_shadow_answers", "Answers of the shadow policy.", ["answer"])
SHADOW_SKIPPED = Counter(
    "slacktide_stream_shadow_skipped", "Samples without a shadow answer: it was behind, or Kafka rejected the record."
)

GOVERNS = Gauge("slacktide_governor_governs", "1 while this process is the governor.")
CREDITS = Counter("slacktide_governor_credits", "Evictions granted. Renewed leases are not counted again.")
LEASES = Counter("slacktide_governor_leases", "Leases published, renewals included.")
OUTSTANDING = Gauge(
    "slacktide_governor_outstanding_credits", "Evictions granted whose outcome is unknown. They count as made."
)
SPENT = Gauge("slacktide_governor_spent_credits", "Evictions with an outcome that count in the policy's interval.")
BUDGET = Gauge("slacktide_governor_budget_credits", "Evictions that the policy allows on all nodes in its interval.")
WAITING = Gauge("slacktide_governor_waiting_nodes", "Nodes that need to evict and have no credit.")

for _verdict in get_args(Verdict):
    if _verdict not in PROVEN:
        PROOF_REFUSED.labels(_verdict)
for _why in IGNORED:
    SERVICE_MINUTES_IGNORED.labels(_why)
for _answer in ("set", "keep", "skipped"):
    ANSWERS.labels(_answer)
    SHADOW_ANSWERS.labels(_answer)


def counted(judge: Judge) -> Judge:
    """Count the records that a judge rejects."""

    def verdict(record: Record, policy: Policy) -> Verdict:
        found = judge(record, policy)
        if found not in PROVEN:
            PROOF_REFUSED.labels(found).inc()
        return found

    return verdict


def count_written(written: Sequence[Out]) -> None:
    """Count acknowledged records."""
    letters = written
    if isinstance(written, RenderedAnswers):
        counts, ages_ms, letters = written.counts, written.ages_ms, written.placeless
    else:
        counts = Counts([out.answer for out in written if out.answer])
        ages_ms = [out.age_ms for out in written if out.age_ms is not None]
    for answer, count in counts.items():
        ANSWERS.labels(answer).inc(count)
    SAMPLE_AGE_SECONDS.observe_all(ages_ms)
    DEAD_LETTERS.inc(sum(out.topic == DEAD_LETTER.name for out in letters))


_lags: dict[Place, tuple[int, float]] = {}
"""As last set: a metric's label costs more to find."""


def lag(place: Place, records: int, seconds: float) -> None:
    """Set the consumer lag of a partition."""
    if _lags.get(place) != (records, seconds):
        _lags[place] = records, seconds
        LAG_RECORDS.labels(*place).set(records)
        LAG_SECONDS.labels(*place).set(seconds)


def gone(place: Place) -> None:
    """Drop the series of a partition that moved to another worker."""
    _lags.pop(place, None)
    for gauge in (LAG_RECORDS, LAG_SECONDS):
        if (place.topic, str(place.partition)) in gauge._metrics:  # noqa: SLF001 - removing a missing series warns
            gauge.remove(*place)
