"""Mid resources by prediction on a real broker: an agent trains and publishes, a worker sells by it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.forecast import NodeForecast
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.topics import ALLOCATABLE, FORECAST, METRIC
from testbed.agent_rig import agent_of
from testbed.brokers import DATED_BY_CLIENTS, EmbeddedBroker
from testbed.one_machine import NODE, VirtualNode
from testbed.stream_rig import PARTITIONS, Rig
from testbed.waiting import soon

SOON = policy_of(
    Colocation(enable=True, metric_aggregate_duration_s=2, mid_cold_start_s=10), ResourceThreshold(enable=True)
)
TRAIN_EVERY_MS = 1_000


@pytest.fixture
async def rig(embedded_broker: EmbeddedBroker) -> AsyncIterator[Rig]:
    embedded_broker.apply_topics(PARTITIONS, DATED_BY_CLIENTS)
    async with Rig(embedded_broker.bootstrap) as rig:
        await rig.publish(SOON)
        yield rig


async def test_mid_is_sold_by_what_production_pods_were_seen_to_use_and_not_before(
    rig: Rig, embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """It asks for 4,000m and uses 500m. The models outlive their agent, and then the file that they are kept in."""

    async def figures() -> list[NodeAllocatable]:
        return [decode(one.value, NodeAllocatable) for one in await rig.read(ALLOCATABLE.name) if one.value]

    async def forecasts() -> list[NodeForecast]:
        return [decode(one.value, NodeForecast) for one in await rig.read(FORECAST.name)]

    def sold(found: list[NodeAllocatable]) -> bool:
        return bool(found and found[-1].mid_cpu_milli)

    async def of_two_boots() -> list[NodeForecast]:
        found = await forecasts()
        return found if len({one.boot_id for one in found}) > boots else []

    where = embedded_broker.bootstrap
    with VirtualNode(tmp_path) as node:
        async with rig.worker():
            async with agent_of(node, where, tmp_path, train_every_ms=TRAIN_EVERY_MS):
                found = await soon(figures, "mid resources", enough=sold)
                metrics = [decode(one.value, NodeMetric) for one in await rig.read(METRIC.name) if one.value]
            boots, kept = 1, tmp_path / "state" / "forecast.json"
            before = decode(kept.read_bytes(), NodeForecast)
            async with agent_of(node, where, tmp_path, train_every_ms=TRAIN_EVERY_MS):
                again = await soon(of_two_boots, "a forecast of the second start")
            boots = 2
            kept.write_bytes(kept.read_bytes()[:100])
            async with agent_of(node, where, tmp_path, train_every_ms=TRAIN_EVERY_MS):
                recalled = await soon(of_two_boots, "a forecast of the third start")

    states = [one.prediction.state if one.prediction else None for one in found]
    assert {one.mid_cpu_milli for one, state in zip(found, states, strict=True) if state != ""} == {0}
    assert "cold start" in states
    [service] = again[-1].pods
    assert (again[-1].node, service.uid) == (NODE, "uid-service")
    offered, prediction = found[-1].mid_cpu_terms, found[-1].prediction
    assert prediction is not None
    assert offered["reclaimable_milli"] == prediction.cpu_terms["reclaimable_milli"]
    # On a busy machine a second's use may leave less than is reclaimable.
    assert found[-1].mid_cpu_milli == min(offered["reclaimable_milli"], offered["unused_milli"])
    assert prediction.cpu_terms["prod_request_milli"] == 4_000
    assert metrics[-1].prod_reclaimable is not None
    assert metrics[-1].prod_reclaimable.cpu_milli == prediction.cpu_terms["reclaimable_milli"]
    assert service.peaks.samples >= before.pods[0].peaks.samples
    assert recalled[-1].pods[0].peaks.since_ms == before.pods[0].peaks.since_ms
