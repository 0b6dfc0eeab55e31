"""What batch pods may ask for in each NUMA zone."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.resources.batch_resource import Zone, batch_resource_zones
from slacktide.streams.decisions.resources.node_load import NodeLoad
from testbed.node_loads import GIB, load, pods_and_metrics, uses

PLAIN = Colocation(cpu_reclaim_threshold_pct=100, mem_reclaim_threshold_pct=100)
HALF = Resources(cpu_milli=5_000, mem_bytes=50 * GIB)
ZONES = (Zone(name="node-0", allocatable=HALF), Zone(name="node-1", allocatable=HALF))


def figured(node: NodeLoad, zones=ZONES, bound=None, **strategy) -> dict[str, tuple[int, float]]:
    """Millicores and GiB by zone."""
    found = batch_resource_zones(node, msgspec.structs.replace(PLAIN, **strategy), zones, bound or {})
    return {zone.name: (one.cpu_milli, one.mem_bytes / GIB) for zone, one in zip(zones, found, strict=False)}


@given(pods_and_metrics(), uses, st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_of_pods_does_not_matter_and_no_zone_gives_more_than_it_has(mixed, system, count, random) -> None:
    pods, metrics = mixed
    zones = [Zone(name=str(number), allocatable=HALF) for number in range(count)]
    bound = {one.uid: [random.randrange(-1, count + 1)] for one in pods}
    shuffled = load(*random.sample(pods, len(pods)), metrics=metrics, system=system)

    found = figured(load(*pods, metrics=metrics, system=system), zones, bound)

    assert figured(shuffled, zones, bound) == found
    assert all(0 <= cpu <= 5_000 and 0 <= mem <= 50 for cpu, mem in found.values())
