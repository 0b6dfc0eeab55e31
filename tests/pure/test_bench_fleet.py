"""The bench's fleets: samples as agents would write them, each node once a second."""

import itertools
from collections import Counter
from typing import get_args

from bench.fleet import KEYFRAME_EVERY, PODS, FleetNode, name_of
from bench.generator import due, fleet
from bench.log import POLICY_IN_FORCE, USUAL_POLICY
from bench.memory import WINDOW_S, rounds
from bench.peers.check import samples_of
from bench.stamp import Form, StampedNode, evenly, template
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.codec import decode
from slacktide.schemas.inventory import revision_of
from slacktide.schemas.sample import KEYFRAME_MS, NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import NODE_PARTITIONS
from slacktide.streams.kafka import partition_of

NOW_MS = 1_700_000_000_000


def samples(node: StampedNode, count: int) -> list[NodeSample]:
    """A second apart."""
    return samples_of([node.stamp(NOW_MS + second * 1000).value for second in range(count)])


def test_a_stamped_sample_is_a_sample_with_its_own_numbers() -> None:
    """Sequence, time, interval and all uses are filled in; the pods' sum never exceeds the node's."""
    first, second = samples(StampedNode(3, POLICY_IN_FORCE), 2)

    assert (first.node, first.seq, first.observed_ms, first.interval_ms) == ("fleet-0003", 1, NOW_MS, 0)
    assert (second.seq, second.observed_ms, second.interval_ms) == (2, NOW_MS + 1000, 1000)
    assert first.use.cpu_milli == sum(pod.cpu_milli for pod in first.pod_use) + 400
    assert first.use.mem_bytes >= sum(pod.mem_bytes for pod in first.pod_use)
    assert [pod.cpu_milli for pod in first.pod_use] != [pod.cpu_milli for pod in second.pod_use]


def test_stamped_keyframes_come_as_often_as_an_agents() -> None:
    """So a worker that begins anywhere knows pods and facts soon."""
    told = [one.pods is not None and one.facts is not None for one in samples(StampedNode(0, POLICY_IN_FORCE), 121)]

    assert KEYFRAME_EVERY * 1_000 == KEYFRAME_MS
    assert told == [number % KEYFRAME_EVERY == 0 for number in range(121)]


def test_a_sample_of_30_pods_takes_less_than_a_kilobyte_on_average() -> None:
    """Keyframes included; no pod comes or goes."""
    node = StampedNode(5, POLICY_IN_FORCE)
    sizes = [len(node.stamp(NOW_MS + second * 1000).value) for second in range(10 * KEYFRAME_EVERY)]

    assert sum(sizes) / len(sizes) <= 1_000


def test_keyframes_of_a_fleet_do_not_come_at_once() -> None:
    """In each second those of a sixtieth of the nodes, once all have told of themselves."""
    fleet = [samples(StampedNode(number, POLICY_IN_FORCE), 12) for number in range(2 * KEYFRAME_EVERY)]
    told = [sum(node[second].pods is not None for node in fleet) for second in range(12)]

    assert told == [2 * KEYFRAME_EVERY, *[2] * 11]


def test_a_replaced_pod_comes_with_its_pod_list() -> None:
    """The first sample with another pod carries the list, and names its revision."""
    seen = samples(StampedNode(1, POLICY_IN_FORCE, replaced_each_s=5), 60)

    changed = [after for before, after in itertools.pairwise(seen) if before.pods_revision != after.pods_revision]
    assert changed
    for sample in changed:
        assert sample.pods is not None
        assert revision_of(sample.pods) == sample.pods_revision
        assert {pod.uid for pod in sample.pods} == {use.uid for use in sample.pod_use}
        assert len(sample.pods) == PODS


def test_a_template_leaves_what_is_no_number_as_it_was() -> None:
    """Filled with a sample's own numbers it is that sample again."""
    sample = FleetNode(7, POLICY_IN_FORCE).shape(NOW_MS, keyframe=True)
    uses = [figure for use in sample.pod_use for figure in (use.cpu_milli, use.mem_bytes)]
    numbers = (sample.seq, NOW_MS, sample.interval_ms, sample.use.cpu_milli, sample.use.mem_bytes, *uses)

    assert decode(template(sample) % numbers, NodeSample) == sample


def test_a_node_stamps_the_same_samples_in_rows_and_in_columns() -> None:
    """Pressure, throttling, limits and replaced pods included."""
    rows, columns = (StampedNode(2, USUAL_POLICY, replaced_each_s=5, form=form) for form in get_args(Form))

    assert samples(rows, 60) == samples(columns, 60)
    assert columns.stamp(NOW_MS).value.startswith(b'{"of":{')


def test_a_stamped_sample_in_columns_is_what_an_agent_writes() -> None:
    """To the byte, so that what is measured on it holds for agents."""
    for number in range(5):
        node = StampedNode(number, USUAL_POLICY)
        bodies = [node.stamp(NOW_MS + second * 1000).value for second in range(12)]
        assert [encoded(sample, node.pods) for sample in samples_of(bodies)] == bodies


def test_a_stamped_node_writes_into_its_partition() -> None:
    """The one in which the agent of that name looks for answers."""
    record = StampedNode(42, USUAL_POLICY).stamp(NOW_MS)

    assert record.partition == partition_of("fleet-0042", NODE_PARTITIONS)
    assert record.key == b"fleet-0042"
    assert dict(record.headers)["ce_time"] == b"2023-11-14T22:13:20.000Z"


def test_a_stamped_nodes_limit_follows_from_its_policy() -> None:
    """Else each answer would lower it for the first time."""
    sample = samples(StampedNode(5, USUAL_POLICY), 1)[0]

    assert sample.limits is not None
    assert sample.limits.be_cfs_quota_us is not None
    assert sample.policy_version == USUAL_POLICY.version


def test_nodes_can_be_picked_evenly() -> None:
    """As many in each partition."""
    partitions = Counter(partition_of(name_of(number), NODE_PARTITIONS) for number in evenly(3))

    assert partitions == dict.fromkeys(range(NODE_PARTITIONS), 3)


def test_shares_of_a_fleet_are_all_of_it_once() -> None:
    """Several generators send for each node, and none twice."""
    whole = [node.partition for node in fleet(40, 0, 1, POLICY_IN_FORCE)]
    shares = [[node.partition for node in fleet(40, share, 3, POLICY_IN_FORCE)] for share in range(3)]

    assert sorted(whole) == sorted(partition for share in shares for partition in share)
    assert all(partition % 3 == number for number, share in enumerate(shares) for partition in share)


@given(count=st.integers(1, 500), slices=st.lists(st.floats(0.001, 0.4), min_size=1, max_size=60))
def test_each_nodes_turn_comes_once_a_second(count: int, slices: list[float]) -> None:
    """However long the slices are into which a generator's time falls."""
    turns, at_s = [], 0.0
    for length_s in slices:
        turns += due(count, at_s, at_s + length_s)
        at_s += length_s

    assert turns == [turn % count for turn in range(1, int(at_s * count) + 1)]


def test_half_an_hour_is_filled_in_large_steps() -> None:
    """Samples cover all of it without a hole, and end now."""
    seen = samples_of([records[0].value for records in rounds(1, USUAL_POLICY, NOW_MS)])

    assert seen[-1].observed_ms == NOW_MS
    gaps_ms = [after.observed_ms - before.observed_ms for before, after in itertools.pairwise(seen)]
    assert gaps_ms == [sample.interval_ms for sample in seen[1:]]
    assert sum(gaps_ms) >= WINDOW_S * 1000
