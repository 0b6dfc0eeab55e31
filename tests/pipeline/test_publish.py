"""``slacktide publish`` as a process: what its files say is in the log, and what changes in them follows."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from slacktide.agents.clock import SystemClock
from slacktide.agents.publisher import Publisher, read_policy
from slacktide.schemas.inventory import NodeInventory
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import INVENTORY, POLICY
from slacktide.streams.tasks import ended
from testbed.audit import records
from testbed.brokers import EmbeddedBroker
from testbed.one_machine import policy
from testbed.parts import Part, running_part
from testbed.policies import policy_from
from testbed.waiting import soon

SHIPPED = Path(__file__).parents[2] / "deploy/compose"


@contextmanager
def publishing(bootstrap: str, folder: Path, *arguments: str) -> Iterator[Part]:
    where = ["--bootstrap", bootstrap, "--state-folder", str(folder), "--node-name", "alpha"]
    with running_part(folder, "publish", *where, *arguments) as part:
        yield part
        assert part.stop() == 0, part.last_words()


@asynccontextmanager
async def bridge(broker: EmbeddedBroker, policy: Policy) -> AsyncIterator[None]:
    """What a bridge publishes of its ConfigMap, in its third term."""

    async def ensured() -> None:
        """The topics are there."""

    publisher = Publisher(
        broker.cluster, ensure_topics=ensured, now_ms=SystemClock().wall_ms, node_source="inventory", writer_epoch=3
    )
    publisher.policy(policy)
    running = asyncio.create_task(publisher.run(asyncio.Event()))
    try:
        await soon(lambda: asyncio.sleep(0, publisher.away), "it publishes", enough=lambda away: not away)
        yield
    finally:
        await ended(running)


def thresholds(bootstrap: str) -> list[int]:
    told = records(bootstrap, POLICY, Policy)
    return [each.resource_threshold.cpu_suppress_threshold_pct or 0 for each in told]


def test_policy_and_node_are_in_the_log_and_a_change_follows(embedded_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Of pods alone the machine is the node."""
    file = tmp_path / "policy.yaml"
    file.write_text(json.dumps(policy()))
    at = embedded_broker.bootstrap
    embedded_broker.apply_topics(3)
    with publishing(at, tmp_path, f"--policy={file}", f"--inventory={SHIPPED / 'pods.yaml'}") as part:
        part.wait(lambda: 65 in thresholds(at), "the policy is published")
        [told] = records(at, INVENTORY, NodeInventory)
        assert told.node == "alpha"
        assert told.facts.capacity.cpu_milli

        file.write_text(json.dumps(policy(cpuSuppressThresholdPercent=50)))
        part.wait(lambda: 50 in thresholds(at), "the changed policy is published")

    said = len(records(at, POLICY, Policy))
    with publishing(at, tmp_path, f"--policy={file}", f"--inventory={SHIPPED / 'pods.yaml'}") as part:
        part.wait(lambda: len(records(at, POLICY, Policy)) > said, "the policy is published again")
    ids = {each.installation for each in records(at, POLICY, Policy)}
    assert len(ids) == 1, "the next publisher adopts the id of the topic's first"
    assert ids != {""}


async def test_beside_a_bridge_it_publishes_nothing_that_readers_would_reject(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Readers follow the bridge, whose epoch is higher. The files are in force again with a topic of their own."""
    file, at = tmp_path / "policy.yaml", embedded_broker.bootstrap
    file.write_text(json.dumps(policy()))
    embedded_broker.apply_topics(3)
    with publishing(at, tmp_path, f"--policy={file}", f"--inventory={SHIPPED / 'pods.yaml'}") as part:

        async def wait(true: Callable[[], object], what: str) -> None:
            await asyncio.to_thread(part.wait, true, what)

        await wait(lambda: 65 in thresholds(at), "the policy is published")
        async with bridge(
            embedded_broker,
            policy_from(threshold={"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 70}}),
        ):
            await wait(lambda: 70 in thresholds(at), "the bridge's policy is published")
            file.write_text(json.dumps(policy(cpuSuppressThresholdPercent=50)))
            await wait(lambda: "another writer's, with writer_epoch 3" in part.ask("fresh"), "it gives way")
            assert part.ask("ready").startswith("200")
        assert (await read_policy(embedded_broker.cluster)).refused == ""
        assert 50 not in await asyncio.to_thread(thresholds, at)

        embedded_broker.forget()
        embedded_broker.apply_topics(3)
        await wait(lambda: 50 in thresholds(at), "the file's policy is published")
