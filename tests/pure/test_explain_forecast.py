"""What explain tells of mid resources and of a pod's predicted peak."""

from __future__ import annotations

import msgspec
import pytest

from slacktide.schemas.forecast import NodeForecast
from slacktide.schemas.inventory import Pod
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.topics import FORECAST
from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.node import explain_node
from slacktide.streams.explain.node_log import node_log
from slacktide.streams.explain.pod import PodLog, explain_pod
from testbed.chains import Chain
from testbed.peaks import trained
from testbed.samples import BOOT, GIB, SERVICE, START_MS

POLICY = policy_of(
    Colocation(enable=True, metric_aggregate_duration_s=10, mid_cold_start_s=3_600, mid_unallocated_pct=20),
    ResourceThreshold(enable=True),
)
NOW_MS = START_MS + 13_000


def chain(minutes: int, *, boot_id: str = BOOT, gib: int = 1, policy: object = POLICY) -> Chain:
    """A node whose agent was taught for so many minutes; the service asks for 2,000m and uses 1,000m."""
    service = msgspec.structs.replace(SERVICE, requests=msgspec.structs.replace(SERVICE.requests, mem_bytes=gib * GIB))
    made = Chain(policy, pods=[service])  # type: ignore[arg-type]
    if minutes:
        forecast = trained(minutes, [service], boot_id).forecast()
        moved = msgspec.structs.replace(forecast, observed_ms=START_MS)
        made.worker.forecast(made.put(moved, FORECAST))
    made.run(1, 12)
    return made


def mid_lines(made: Chain) -> list[str]:
    told = explain_node(node_log(made.node, made.records), NOW_MS)
    return [one.text for one in told.findings if one.name == "mid.predicted"]


def test_a_nodes_mid_resources_are_one_line_with_all_terms() -> None:
    """Batch use is the system's here: 600m, of which the rule takes 10% more."""
    cpu, memory = mid_lines(chain(61, gib=8))

    assert cpu == (
        "mid-cpu 551m = 151m that production pods are predicted not to use "
        "(requests 2,000m - predicted peak 1,849m incl. 10% and system 646m) "
        "+ 20% of 2,000m that no pod requested; limited by nothing"
    )
    assert memory.startswith("mid-memory 5,")


@pytest.mark.parametrize(
    ("minutes", "boot_id", "why"),
    [
        (0, BOOT, "(no forecast)"),
        (20, BOOT, "(cold start)"),
        (61, "000000000009-0000000a", "(forecast of another boot)"),
    ],
)
def test_why_nothing_is_predicted_is_told(minutes: int, boot_id: str, why: str) -> None:
    cpu, _ = mid_lines(chain(minutes, boot_id=boot_id))

    assert f"0m that production pods are predicted not to use {why} + 20%" in cpu


def test_young_pods_are_named() -> None:
    cpu, _ = mid_lines(chain(20))

    assert cpu.endswith("; 1 production pods have too few samples and add nothing, such as shop/front")


def pod_finding(made: Chain, pod: Pod = SERVICE) -> Finding:
    log = node_log(made.node, made.records)
    told = explain_pod(PodLog(nodes=[log], on=log, outcomes=[], span_ms=0), pod.namespace, pod.name, None, NOW_MS)
    assert told is not None
    [found] = [one for one in told.findings if one.name == "pod.forecast"]
    return found


def test_a_pods_peaks_are_told_with_their_samples_and_since_when() -> None:
    text = pod_finding(chain(61)).text

    assert text == "predicted peak: cpu 1,035m (p95), memory 1,047 MiB (p98), of 61 samples since 2027-01-15T08:00:00Z"


def test_a_young_pod_is_told_why() -> None:
    assert pod_finding(chain(20)).text.endswith(
        "its unused request is not offered to mid pods: its containers have samples of 1,200 s, and a "
        "prediction requires 3,600 s"
    )


def test_a_pod_without_a_model_is_told_so() -> None:
    made = chain(61)
    nobody = NodeForecast(node=made.node, boot_id=BOOT, seq=99, observed_ms=START_MS, interval_ms=60_000)
    made.put(nobody, FORECAST)

    assert pod_finding(made).text == (
        "no peak is predicted; its unused request is not offered to mid pods: its agent has no model of it"
    )
