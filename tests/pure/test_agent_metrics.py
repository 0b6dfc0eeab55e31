"""What an agent's metrics say of its node."""

import math
from pathlib import Path

import msgspec
import pytest

from slacktide.agents.node.metrics import CPU, LIMITS, OUTSIDE, AgentMetrics, cpu_of, memory_of
from slacktide.schemas import topics
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import ResourceThreshold
from slacktide.schemas.sample import Limits, NodeSample, NodeUse
from slacktide.schemas.sample_columns_codec import to_sample
from testbed.vectors import each_row

EXAMPLES = Path(topics.__file__).parent / "examples" / topics.BACKFILL.name
"""Samples that name their pods."""


def sample(number: int) -> NodeSample:
    written = msgspec.json.format((EXAMPLES / f"{number}.json").read_bytes(), indent=-1)
    return to_sample(written, lambda _: None)


def test_a_keyframe_says_all_of_the_nodes_cpu() -> None:
    """What pods use and what the node uses are measured apart: the rest is the system's."""
    keyframe = sample(1)
    said = cpu_of(keyframe, 4_000)
    assert keyframe.facts is not None

    assert said["capacity"] == keyframe.facts.capacity.cpu_milli
    assert said["used"] == keyframe.use.cpu_milli
    assert (said["ls_used"] or 0) + (said["be_used"] or 0) == sum(pod.cpu_milli or 0 for pod in keyframe.pod_use)
    assert (said["ls_requested"] or 0) > 0


def test_between_keyframes_capacity_and_requests_stay_as_they_were() -> None:
    said = cpu_of(sample(2), 4_000)

    assert (said["capacity"], said["ls_requested"]) == (None, None)


def test_no_limit_is_no_number() -> None:
    bare = sample(2)
    held = msgspec.structs.replace(bare, limits=Limits(be_cfs_quota_us=150_000))
    free = msgspec.structs.replace(bare, limits=Limits(be_cfs_quota_us=None, be_cpuset=[0, 1, 2, 3]))
    pinned = msgspec.structs.replace(bare, limits=Limits(be_cfs_quota_us=None, be_cpuset=[0, 1]))

    assert cpu_of(held, 4_000)["be_limit"] == 1_500
    assert cpu_of(pinned, 4_000)["be_limit"] == 2_000
    assert math.isnan(cpu_of(free, 4_000)["be_limit"] or 0)
    assert math.isnan(cpu_of(msgspec.structs.replace(bare, limits=None), 4_000)["be_limit"] or 0)


@each_row("threshold", "at_pct")
def test_memory_is_held_against_the_threshold_of_evictions(threshold: ResourceThreshold, at_pct: float) -> None:
    size = Resources(cpu_milli=4_000, mem_bytes=8_000)
    facts = NodeFacts(name="n", capacity=size, allocatable=size)
    busy = msgspec.structs.replace(sample(2), use=NodeUse(mem_bytes=6_960))

    assert memory_of(busy, facts, threshold) == pytest.approx({"used": 87.0, "threshold": at_pct}, nan_ok=True)
    assert math.isnan(memory_of(busy, facts, threshold, dry_run=True)["threshold"])


def test_memory_that_is_not_known_is_no_number() -> None:
    size = Resources(cpu_milli=4_000)
    facts = NodeFacts(name="n", capacity=size, allocatable=size)

    assert math.isnan(memory_of(sample(2), facts, ResourceThreshold())["used"])


def test_the_threshold_and_what_fixed_the_limit_are_as_the_rule_had_them() -> None:
    metrics = AgentMetrics("thresholds")

    def threshold(**outcome: object) -> float:
        told = {"node": "thresholds", "boot_id": "000000000001-00000000", "seq": 1, "command_id": "c"}
        told |= {"rule": "cpu_suppress", "target": "besteffort", "origin": "stream", "result": "applied"}
        told |= {"policy_version": "v", "observed_ms": 0, "acted_ms": 0, "age_ms": 0}
        metrics.concluded(msgspec.convert(told | outcome, NodeOutcome))
        return CPU.labels("thresholds", "threshold")._value.get()

    assert threshold(bound="target", terms={"ceiling_milli": 5_200}) == 5_200
    assert threshold(bound="kept", result="unchanged") == 5_200
    assert threshold(bound="target", terms={"ceiling_milli": 2_600}, result="unchanged", origin="guard") == 2_600
    assert math.isnan(threshold(bound="lifted")), "nobody is held to anything"
    fixed = {bound: LIMITS.labels("thresholds", bound)._value.get() for bound in ("target", "kept", "lifted")}
    assert fixed == {"target": 2, "kept": 1, "lifted": 1}


def test_batch_pods_outside_the_tier_are_counted() -> None:
    keyframe = sample(1)
    names = {"namespace": "batch", "qos_label": "BE", "kube_qos": "Burstable"}
    outside = [Pod(uid=uid, name=uid, phase=phase, **names) for uid, phase in (("o", "Running"), ("e", "Succeeded"))]
    metrics = AgentMetrics("outside")
    metrics.taken(msgspec.structs.replace(keyframe, pods=[*(keyframe.pods or ()), *outside]), "tick", 0)
    assert OUTSIDE.labels("outside")._value.get() == 1

    metrics.taken(sample(2), "tick", 0)
    assert OUTSIDE.labels("outside")._value.get() == 1, "between keyframes it stays"
    metrics.taken(keyframe, "tick", 0)
    assert OUTSIDE.labels("outside")._value.get() == 0
