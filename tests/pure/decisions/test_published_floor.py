"""Published figures never fall below what runs there asked for, as far as the node has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from slacktide.agents.cluster.bridge.node_status import overstated
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.sample import PodUse
from slacktide.schemas.topics import ALLOCATABLE, DEAD_LETTER
from slacktide.streams.decisions.resources.publishing import published_floor
from testbed.chains import Chain
from testbed.node_loads import pods_and_metrics
from testbed.samples import BATCH, FACTS, GIB, SERVICE, SUPPRESS
from testbed.vectors import each_row

OFF = policy_of(replace(SUPPRESS.colocation, enable=False), SUPPRESS.resource_threshold)


@given(pods_and_metrics(), st.none() | st.integers(0, 50_000))
def test_what_runs_always_fits_into_what_is_published(mixed: tuple, figure: int | None) -> None:
    pods = [one for one in mixed[0] if one.phase in {"Running", "Pending"}]
    published = published_floor({"batch_cpu_milli": figure}, mixed[0]).figures["batch_cpu_milli"]

    assert (published or 0) >= sum(one.requests.batch_cpu_milli or 0 for one in pods)
    assert (published or 0) >= (figure or 0)


@each_row("requests")
@pytest.mark.parametrize("policy", [SUPPRESS, OFF], ids=["sold", "not sold"])
def test_a_request_above_the_node_raises_no_figure_above_it(requests: Resources, policy: Policy) -> None:
    """Bound by its maker, where the kubelet does not know the resource yet; the bridge would cap it, with an alert."""
    chain = Chain(policy, FACTS, [SERVICE, replace(BATCH, priority=5_000, requests=requests)])
    uses = [
        PodUse(uid=one.uid, cpu_milli=100, mem_bytes=GIB, best_effort_group=one is not SERVICE) for one in chain.pods
    ]
    chain.run(1, 12, pod_use=uses)
    told = [decode(one.value or b"", NodeAllocatable) for one in chain.records if one.topic == ALLOCATABLE.name]
    assert told
    assert [overstated(one, FACTS.capacity) for one in told] == [""] * len(told)
    assert told[-1].floored
    assert not [one for one in chain.records if one.topic == DEAD_LETTER.name]
