"""What the log says: outcomes and answers of one node, ends of topics; and the policy written into it."""

import asyncio
import time
from contextlib import aclosing
from typing import TypeVar

import yaml
from aiokafka import AIOKafkaProducer

from bench.counting import Counting
from bench.rig import CannotRunError
from slacktide.deploy.demo.pods import policy_yaml
from slacktide.schemas import policy as policies
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.connection import Cluster
from slacktide.schemas.message import Message
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import COMMAND, METRIC, OUTCOME, POLICY, SAMPLE, Topic
from slacktide.streams.kafka import describe_topics, read_topic

M = TypeVar("M", bound=Message)

POLICY_IN_FORCE = policies.parse(yaml.safe_load(policy_yaml(suppress=True)), "the demo's policy").policy

"""Its windows are short, so that a demonstration shows something soon."""
USUAL_CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
    "data": {
        "colocation-config": '{"enable": true}',
        "resource-threshold-config": '{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota"}}',
    },
}
USUAL_POLICY = policies.parse(USUAL_CONFIG_MAP, "the usual policy").policy
"""With the usual windows, of 5 minutes and more."""


def outcomes(bootstrap: str, node: str, since_ms: int = 0) -> list[NodeOutcome]:
    """What became of a node's limit by samples that were taken since, in the order of the log."""
    told = _of(bootstrap, OUTCOME, node, NodeOutcome)
    return [one for one in told if one.about_limit and one.observed_ms >= since_ms]


def commands(bootstrap: str, node: str | None = None, since_ms: int = 0) -> list[NodeCommand]:
    """A node's answers that were decided since; of all nodes where none is named."""
    return [one for one in _of(bootstrap, COMMAND, node, NodeCommand) if one.decided_ms >= since_ms]


def metrics(bootstrap: str, node: str) -> list[NodeMetric]:
    """What was published of a node, in order; not what was said of its silence after a backlog's end."""
    return [one for one in _of(bootstrap, METRIC, node, NodeMetric) if not one.stale_ms]


def end(bootstrap: str, topic: Topic) -> int:
    """How many records a topic ever got."""
    return sum(asyncio.run(describe_topics(Cluster(bootstrap), [topic.name]))[topic.name].end.values())


def answered(bootstrap: str) -> int:
    """How many samples were ever answered."""

    async def count() -> int:
        async with Counting(bootstrap, COMMAND.name) as counting:
            return await counting.now(wait_ms=1_000)

    return asyncio.run(count())


def wait_for(bootstrap: str, topic: Topic, at_least: int, within_s: float, *alive) -> None:
    """Wait until a topic got so many records, or that of the commands so many answers.

    Raises:
        CannotRunError: it did not, in time.

    """

    async def reach() -> None:
        until_s = time.monotonic() + within_s
        async with Counting(bootstrap, topic.name) as counting:
            while (got := await counting.now()) < at_least:
                for process in alive:
                    process.check()
                if time.monotonic() > until_s:
                    raise CannotRunError(f"{topic.name}: {got} of {at_least} after {within_s:g} s")

    asyncio.run(reach())


def wait_for_keys(bootstrap: str, topic: Topic, at_least: int, within_s: float) -> None:
    """Wait until a topic has records of so many keys, heartbeats aside.

    Raises:
        CannotRunError: it has not, in time.

    """
    keys: set[bytes | None] = set()

    async def reach() -> None:
        async with asyncio.timeout(within_s), aclosing(read_topic(Cluster(bootstrap), topic.name, follow=True)) as read:
            async for record in read:
                if record.value is not None:
                    keys.add(record.key)
                if len(keys) >= at_least:
                    return

    try:
        asyncio.run(reach())
    except TimeoutError as exc:
        raise CannotRunError(f"{topic.name}: {len(keys)} of {at_least} keys after {within_s:g} s") from exc


def wait_caught_up(bootstrap: str, at_least: int, within_s: float, *alive) -> None:
    """Wait until there are so many samples, and as many answers as samples.

    Raises:
        CannotRunError: it did not come to that, in time.

    """
    wait_for(bootstrap, SAMPLE, at_least, within_s, *alive)
    wait_for(bootstrap, COMMAND, end(bootstrap, SAMPLE), within_s, *alive)


def publish_policy(bootstrap: str, policy: Policy = POLICY_IN_FORCE) -> None:
    """Write a policy; the demo's unless said otherwise, which node files of a bench have, too."""

    async def publish() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
            await producer.send_and_wait(POLICY.name, encode(policy), policies.KEY.encode())

    asyncio.run(publish())


def _of(bootstrap: str, topic: Topic, node: str | None, kind: type[M]) -> list[M]:
    async def read() -> list[M]:
        async with aclosing(read_topic(Cluster(bootstrap), topic.name, key=node)) as records:
            return [decode(record.value, kind) async for record in records]

    return asyncio.run(read())
