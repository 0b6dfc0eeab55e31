"""What batch pods may ask for in each NUMA zone."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.resources.batch_resource import Zone, batch_resource_zones
from slacktide.streams.decisions.resources.node_load import NodeLoad
from testbed.node_loads import GIB, batch_pod, load, pod, pods_and_metrics, use, used, uses

PLAIN = Colocation(cpu_reclaim_threshold_pct=100, mem_reclaim_threshold_pct=100)
HALF = Resources(cpu_milli=5_000, mem_bytes=50 * GIB)
ZONES = (Zone(name="node-0", allocatable=HALF), Zone(name="node-1", allocatable=HALF))


def figured(node: NodeLoad, zones=ZONES, bound=None, **strategy) -> dict[str, tuple[int, float]]:
    """Millicores and GiB by zone."""
    found = batch_resource_zones(node, msgspec.structs.replace(PLAIN, **strategy), zones, bound or {})
    return {zone.name: (one.cpu_milli, one.mem_bytes / GIB) for zone, one in zip(zones, found, strict=False)}


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        pytest.param([], {"node-0": (4_500, 45), "node-1": (4_500, 45)}, id="an unbound pod is everywhere alike"),
        pytest.param([1], {"node-0": (5_000, 50), "node-1": (4_000, 40)}, id="a bound pod is where it is bound"),
        pytest.param([1, 1], {"node-0": (5_000, 50), "node-1": (4_000, 40)}, id="a zone named twice counts once"),
        pytest.param([7, 0], {"node-0": (4_000, 40), "node-1": (5_000, 50)}, id="a zone that is not there: the others"),
        pytest.param([2, -1], {"node-0": (4_500, 45), "node-1": (4_500, 45)}, id="only such zones: everywhere"),
        pytest.param([0, 1], {"node-0": (4_500, 45), "node-1": (4_500, 45)}, id="two zones share it"),
    ],
)
def test_a_pod_counts_in_its_zones(bound: list[int], expected: dict) -> None:
    assert figured(load(pod("a", 3_000, 30), metrics=[used("a", 1_000, 10)]), bound={"a": bound}) == expected


def test_system_reservation_and_use_without_a_pod_are_shared_by_all_zones() -> None:
    node = load(
        metrics=[used("gone", 200, 2)], system=use(900, 3), host_use=use(100, 1), reserved=Resources(mem_bytes=10 * GIB)
    )

    assert figured(node) == {"node-0": (4_400, 44), "node-1": (4_400, 44)}


def test_of_system_and_reservation_the_larger_counts_for_each_resource() -> None:
    node = load(system=use(900, 7), host_use=use(100, 1), reserved=Resources(cpu_milli=3_000, mem_bytes=2 * GIB))

    assert figured(node) == {"node-0": (3_500, 46), "node-1": (3_500, 46)}


@pytest.mark.parametrize(("qos", "cpu_milli"), [("LSE", 3_000), ("LSR", 4_500), ("LS", 4_500)])
def test_only_exclusive_cpus_count_as_asked_for(qos: str, cpu_milli: int) -> None:
    node = load(pod("a", 2_000, 20, qos_label=qos), metrics=[used("a", 500, 10)])

    assert figured(node, bound={"a": [1]})["node-1"] == (cpu_milli, 40)


def test_the_terms_of_an_idle_node_are_its_own_amounts() -> None:
    empty = Zone(name="empty", allocatable=Resources())
    cpu, mem = batch_resource_zones(load(), PLAIN, [empty, ZONES[0]], {})[0].because

    assert {name: value for name, value in cpu.terms.items() if value} == {}
    assert {name: value for name, value in mem.terms.items() if value} == {}


def test_parts_are_rounded_up() -> None:
    """Three zones, one millicore: each zone keeps a whole one."""
    zones = [Zone(name=str(number), allocatable=HALF) for number in range(3)]

    assert {cpu for cpu, _ in figured(load(system=use(1)), zones).values()} == {4_999}
    (zone, *_) = batch_resource_zones(load(system=msgspec.structs.replace(use(), mem_bytes=2)), PLAIN, zones, {})
    assert zone.mem_bytes == HALF.mem_bytes  # 2/3 of a byte is kept: rounding up gives it back


def test_by_the_larger_a_pod_without_a_metric_counts_here() -> None:
    node = load(pod("a", 2_000, 20))
    strategy = {"cpu_calculate_policy": "maxUsageRequest", "mem_calculate_policy": "maxUsageRequest"}

    assert figured(node, **strategy) == {"node-0": (4_000, 40), "node-1": (4_000, 40)}


def test_a_pod_that_asks_for_nothing_counts_nothing() -> None:
    (zone, _) = batch_resource_zones(load(pod("a")), PLAIN, ZONES, {})

    assert [
        one.terms[f"high_priority_{unit}"] for one, unit in zip(zone.because, ("milli", "millibytes"), strict=False)
    ] == [0, 0]
    assert figured(load(pod("a"))) == figured(load()) == {"node-0": (5_000, 50), "node-1": (5_000, 50)}


def test_low_classes_and_finished_pods_do_not_count() -> None:
    node = load(
        batch_pod("b", 1_000, 5),
        pod("done", 1_000, 5, phase="Failed"),
        metrics=[used("b", 900, 4, "koord-batch"), used("gone", 900, 4, "koord-free")],
    )

    assert figured(node) == {"node-0": (5_000, 50), "node-1": (5_000, 50)}


def test_exclusive_cpus_stay_whole_in_their_zone() -> None:
    node = load(pod("a", 2_000, 20, qos_label="LSE"), metrics=[used("a", 500, 10)])

    assert figured(node, bound={"a": [0]}) == {"node-0": (3_000, 40), "node-1": (5_000, 50)}


def test_margin_and_cap_are_of_the_zones_own_allocatable() -> None:
    zones = [Zone(name="big", allocatable=Resources(cpu_milli=8_000, mem_bytes=80 * GIB)), ZONES[0]]

    assert figured(load(), zones, cpu_reclaim_threshold_pct=50, batch_mem_threshold_pct=10) == {
        "big": (4_000, 8), "node-0": (2_500, 5)
    }  # fmt: skip


def test_a_zone_without_resources_gives_nothing_and_none_with_any_is_no_figure() -> None:
    empty = Zone(name="empty", allocatable=Resources())
    memory = Zone(name="memory", allocatable=Resources(mem_bytes=GIB))

    assert figured(load(), [ZONES[0], empty])["empty"] == (0, 0)
    assert figured(load(), [memory, empty]) == {"memory": (0, 1), "empty": (0, 0)}
    assert figured(load(), [empty, empty]) == figured(load(), []) == {}


def test_each_zones_terms_lead_to_its_figure() -> None:
    (zone, _) = batch_resource_zones(load(pod("a", 1_000, 8)), Colocation(), ZONES, {"a": [0]})
    cpu, mem = zone.because

    assert (cpu.of, mem.of) == ("zones/node-0/batch_cpu_milli", "zones/node-0/batch_memory_bytes")
    assert cpu.terms["available_milli"] == zone.cpu_milli == 5_000 - 2_000 - 1_000
    assert mem.terms["batch_millibytes"] == zone.mem_bytes * 1000 == mem.terms["batch_bytes"] * 1000
    assert mem.terms["high_priority_millibytes"] == 8 * GIB * 1000


@given(pods_and_metrics(), uses, st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_of_pods_does_not_matter_and_no_zone_gives_more_than_it_has(mixed, system, count, random) -> None:
    pods, metrics = mixed
    zones = [Zone(name=str(number), allocatable=HALF) for number in range(count)]
    bound = {one.uid: [random.randrange(-1, count + 1)] for one in pods}
    shuffled = load(*random.sample(pods, len(pods)), metrics=metrics, system=system)

    found = figured(load(*pods, metrics=metrics, system=system), zones, bound)

    assert figured(shuffled, zones, bound) == found
    assert all(0 <= cpu <= 5_000 and 0 <= mem <= 50 for cpu, mem in found.values())
