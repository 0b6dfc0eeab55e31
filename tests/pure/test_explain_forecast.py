"""What explain tells of mid resources and of a pod's predicted peak."""

from collections.abc import Callable

import msgspec

from slacktide.schemas.forecast import NodeForecast
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.topics import FORECAST
from slacktide.streams.analysis.explain.node import explain_node
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.analysis.explain.pod import PodLog, explain_pod
from testbed.chains import Chain
from testbed.peaks import trained
from testbed.samples import BOOT, GIB, SERVICE, START_MS
from testbed.snapshots import findings, situations

POLICY = policy_of(
    Colocation(enable=True, metric_aggregate_duration_s=10, mid_cold_start_s=3_600, mid_unallocated_pct=20),
    ResourceThreshold(enable=True),
)
NOW_MS = START_MS + 13_000


def chain(minutes: int, *, boot_id: str = BOOT, gib: int = 1) -> Chain:
    """A node whose agent was taught for so many minutes; the service asks for 2,000m and uses 1,000m."""
    service = msgspec.structs.replace(SERVICE, requests=msgspec.structs.replace(SERVICE.requests, mem_bytes=gib * GIB))
    made = Chain(POLICY, pods=[service])
    if minutes:
        forecast = trained(minutes, [service], boot_id).forecast()
        moved = msgspec.structs.replace(forecast, observed_ms=START_MS)
        made.worker.forecast(made.put(moved, FORECAST))
    made.run(1, 12)
    return made


@situations(
    "made",
    {
        # Batch use is the system's here: 600m, of which the rule takes 10% more.
        "one line with all terms": lambda: chain(61, gib=8),
        "no forecast": lambda: chain(0),
        "cold start, with young pods": lambda: chain(20),
        "a forecast of another boot": lambda: chain(61, boot_id="000000000009-0000000a"),
    },
)
def test_a_nodes_mid_resources_are_explained(made: Callable[[], Chain], snapshot) -> None:
    there = made()
    assert findings(explain_node(node_log(there.node, there.records), NOW_MS).findings, "mid.predicted") == snapshot


def without_a_model() -> Chain:
    made = chain(61)
    nobody = NodeForecast(node=made.node, boot_id=BOOT, seq=99, observed_ms=START_MS, interval_ms=60_000)
    made.put(nobody, FORECAST)
    return made


@situations(
    "made",
    {
        "with its samples and since when": lambda: chain(61),
        "why not, of a young pod": lambda: chain(20),
        "why not, without a model": without_a_model,
    },
)
def test_a_pods_peaks_are_told(made: Callable[[], Chain], snapshot) -> None:
    there = made()
    log = node_log(there.node, there.records)
    seen = PodLog(nodes=[log], on=log, outcomes=[], span_ms=0)
    told = explain_pod(seen, SERVICE.namespace, SERVICE.name, None, NOW_MS)
    assert told is not None
    assert findings(told.findings, "pod.forecast") == snapshot
