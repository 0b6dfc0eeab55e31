"""What another policy would have done: known answers, and laws."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from slacktide.schemas.inventory import Pod
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse
from slacktide.schemas.sample_columns_codec import encoded, with_limits
from slacktide.streams.analysis.replay.model import used_milli
from slacktide.streams.analysis.replay.policies import Policies
from slacktide.streams.analysis.replay.whatif import Change, WhatIf
from slacktide.streams.records import Record
from testbed.samples import GIB, PODS, START_MS, SUPPRESS, keyframe, policy_record, sample
from testbed.samples import record_of as bare_record
from testbed.scenarios import plain, scenarios


def policy(threshold_pct: int, **more: object) -> Policy:
    threshold = ResourceThreshold(
        enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_pct=threshold_pct, **more
    )
    return policy_of(Colocation(enable=True, metric_aggregate_duration_s=10), threshold)


def at(said: NodeSample) -> Record:
    return replace(bare_record(said), timestamp_ms=START_MS + said.seq * 1_000)


def steady(seconds: int, used_milli: int = 500, **changes: object) -> list[Record]:
    """A service at one CPU of four, batch work, and the limit of 1.6 CPUs that 65% of the node comes to."""
    fields = {
        "limits": Limits(be_cfs_quota_us=160_000),
        "use": NodeUse(cpu_milli=1_000 + used_milli, mem_bytes=4 * GIB),
        "pod_use": [
            PodUse(uid="ls", cpu_milli=1_000, mem_bytes=GIB),
            PodUse(uid="be", cpu_milli=used_milli, mem_bytes=2 * GIB, best_effort_group=True),
        ],
    } | changes
    return [at((keyframe if seq % 10 == 0 else sample)(seq, **fields)) for seq in range(seconds)]


def what_if(records: list[Record], other: Policy) -> Change:
    run = WhatIf(Policies([replace(policy_record(), timestamp_ms=START_MS - 1)]), other)
    for record in records:
        run.take(record)
    return run.finish()


HOUR = 3_600


@pytest.mark.parametrize("pods", [PODS, []])
@pytest.mark.parametrize("limits", [None, Limits(be_cfs_quota_us=70_000), Limits(be_cfs_quota_us=-1, be_cpuset=[0])])
@pytest.mark.parametrize("since_raise_ms", [None, 900])
def test_a_sample_with_other_limits_is_as_if_encoded(pods, limits, since_raise_ms) -> None:
    recorded = keyframe(3, pods=pods, pod_use=[PodUse(uid=pod.uid, cpu_milli=7, mem_bytes=GIB) for pod in pods])
    changes = {"policy_version": "other", "limits": limits, "since_raise_ms": since_raise_ms}

    assert with_limits(encoded(recorded, pods), **changes) == encoded(replace(recorded, **changes), pods)


@settings(deadline=None)  # each example is a run
@given(st.lists(st.integers(0, 2_400), min_size=1, max_size=20))
def test_the_same_policy_changes_nothing(used: list[int]) -> None:
    """Where the node did what it was told; whatever batch work used, also before a limit was lowered."""
    records = [steady(len(used), milli)[seq] for seq, milli in enumerate(used)]
    change = what_if(records, SUPPRESS).all

    assert change.recorded == change.other
    assert (change.evictions_more, change.evictions_fewer) == ([], [])


def test_a_tighter_policy_has_a_known_price() -> None:
    """45% of four CPUs are 1.8: with a service at one, batch work may use 0.8 and not the 1.6 that it did."""
    change = what_if(steady(101, used_milli=1_600), policy(45)).all

    # The first second's decision holds from the second one on: one second at 1.6 CPUs, 99 at 0.8.
    assert change.covered_s == 101
    assert change.recorded.allowed_core_h == pytest.approx(101 * 1.6 / HOUR)
    assert change.other.allowed_core_h == pytest.approx((1 * 1.6 + 100 * 0.8) / HOUR)
    assert change.other.used_low_core_h == change.other.used_high_core_h == pytest.approx((1.6 + 100 * 0.8) / HOUR)
    assert (change.recorded.over_line_low_s, change.other.over_line_low_s) == (0, 0)


def test_a_looser_policy_raises_step_by_step() -> None:
    """A raise is at most a tenth of the node a second: 1.6, 2.0, 2.4, 2.6 CPUs at 90%."""
    change = what_if(steady(6, used_milli=500), policy(90)).all

    assert change.other.allowed_core_h == pytest.approx((1.6 + 2.0 + 2.4 + 2.6 + 2.6 + 2.6) / HOUR)
    assert change.other.used_high_core_h == change.recorded.used_high_core_h, "it was not held back: it wants no more"


def test_raises_keep_their_distance_where_samples_come_faster() -> None:
    """As on the node: 900 ms from raise to raise, by its own raises and not by the recorded ones."""
    change = what_if(steady(6, interval_ms=500, since_raise_ms=100_000), policy(90)).all

    assert change.other.allowed_core_h == pytest.approx((1.6 + 2.0 + 2.0 + 2.4 + 2.4 + 2.6) / 2 / HOUR)


def test_what_held_back_pods_would_have_used_is_told_as_a_range() -> None:
    change = what_if(steady(101, used_milli=1_600), policy(90)).all

    assert change.other.used_low_core_h == pytest.approx(101 * 1.6 / HOUR)
    assert change.other.used_high_core_h == pytest.approx((1.6 + 2.0 + 2.4 + 98 * 2.6) / HOUR)
    assert (change.other.over_line_low_s, change.other.over_line_high_s) == (0, 100)


def test_an_eviction_that_only_the_other_policy_wants_is_counted_once() -> None:
    """Sixty percent of the memory are too much for the other one; the pod goes and is not evicted again."""
    records = steady(101, use=NodeUse(cpu_milli=1_500, mem_bytes=10 * GIB))
    change = what_if(records, policy(65, mem_evict_threshold_pct=60, mem_evict_lower_pct=55)).all

    assert (change.recorded.evictions, change.other.evictions) == (0, 1)
    assert (change.evictions_more, change.evictions_fewer) == (["jobs/batch"], [])
    assert change.other.used_low_core_h < change.recorded.used_low_core_h, "what it would have done is lost"


def test_an_eviction_that_only_the_recorded_policy_wanted_is_counted() -> None:
    evicting = policy(65, mem_evict_threshold_pct=60, mem_evict_lower_pct=55)
    records = steady(5, use=NodeUse(cpu_milli=1_500, mem_bytes=10 * GIB), policy_version=evicting.version)
    run = WhatIf(Policies([replace(policy_record(evicting), timestamp_ms=START_MS - 1)]), SUPPRESS)
    for record in records:
        run.take(record)

    assert run.finish().all.evictions_fewer == ["jobs/batch"]


def test_time_that_no_sample_speaks_for_is_not_counted() -> None:
    assert what_if(steady(3, interval_ms=3_600_000), SUPPRESS).all.covered_s == 30


@pytest.mark.parametrize("threshold_pct", [45, 65, 90])
def test_samples_that_know_no_limit_are_left_out_alone(threshold_pct: int) -> None:
    """The first ones of an agent, say: what follows counts as if they had not been."""
    records = steady(30)
    unknown = [at((keyframe if seq % 10 == 0 else sample)(seq, limits=None)) for seq in range(3)]
    change = what_if([*unknown, *records[3:]], policy(threshold_pct)).all
    whole = what_if([records[0], *records[3:]], policy(threshold_pct)).all

    assert (change.undecided, change.covered_s) == (3, 27)
    assert change.recorded.allowed_core_h == pytest.approx(27 * 1.6 / HOUR)
    assert change.other.allowed_core_h == pytest.approx(whole.other.allowed_core_h, rel=0.1)


def test_the_span_is_told_by_the_logs_clock() -> None:
    """A node's own may be years ahead."""
    ahead = [at(replace(keyframe(seq), observed_ms=4_000_000_000_000 - seq)) for seq in range(5)]
    change = what_if(ahead, SUPPRESS)

    assert (change.since_ms, change.until_ms) == (START_MS, START_MS + 4_000)


def test_records_without_a_time_are_decided_all_the_same() -> None:
    change = what_if([replace(one, timestamp_ms=-1) for one in steady(5)], SUPPRESS)

    assert change.samples == 0
    assert change.all.evictions_more == []


@pytest.mark.parametrize(
    ("odd", "undecided"),
    [
        pytest.param(Limits(be_cfs_quota_us=1, be_cfs_period_us=0), 0, id="refused as it is read"),
        pytest.param(Limits(be_cfs_quota_us=-1), 1, id="read, and not decided"),
    ],
)
def test_a_limit_that_cannot_be_leaves_its_sample_out(odd: Limits, undecided: int) -> None:
    """A worker answers such a sample; a replay of a day must not end at it."""
    records = steady(10)
    change = what_if([*records[:5], at(sample(5, limits=odd)), *records[6:]], policy(45)).all

    assert (change.undecided, change.covered_s) == (undecided, 9)


def test_who_speaks_for_another_node_makes_no_row_of_it() -> None:
    records = steady(5)
    forged = replace(records[3], key=b"node-2")
    change = what_if([*records[:3], forged, *records[3:]], SUPPRESS)
    alone = what_if([replace(one, key=b"node-2") for one in records], SUPPRESS)

    assert ([node.node for node in change.nodes], change.samples) == (["node-1"], 5)
    assert (alone.nodes, alone.samples) == ([], 0)


def test_samples_that_come_twice_count_once() -> None:
    records = steady(10)

    assert what_if([*records, *records], SUPPRESS).all == what_if(records, SUPPRESS).all


@scenarios("what_if_use")
def test_use_is_bounded(case: dict[str, Any]) -> None:
    """What pods would have used under the other limit, from what they used under the recorded one."""
    pods = msgspec.convert(case["pods"], list[tuple[PodUse, Pod | None]])
    found = used_milli(pods, case["recorded"], case["other"], case["node"], away=case.get("away", ()))

    assert plain(found) == case["gives"]
