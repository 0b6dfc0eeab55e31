"""An agent on a real broker publishes its services' minutes, and takes the largest slope into its facts."""

from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from slacktide.agents.node.state import State
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.policy import KEY, Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, LearnedCaps, ResourceThreshold
from slacktide.schemas.service import ServiceMinute, ServiceSlope
from slacktide.schemas.topics import POLICY, SERVICE_MINUTE, SERVICE_SLOPE, TOPICS
from slacktide.streams.kafka import Sender, node_reader, read_topic
from slacktide.streams.records import Out
from testbed import brokers
from testbed.agent_rig import agent_of
from testbed.brokers import EmbeddedBroker
from testbed.one_machine import CPUS, NODE, VirtualNode
from testbed.sampled import sampled
from testbed.waiting import soon

SERVICE = "default/web"
MINUTE_MS = 1_000


def policy(mode: LearnedCaps) -> Policy:
    return policy_of(Colocation(enable=True, learned_caps=mode), ResourceThreshold(enable=True))


def record(one: Policy | ServiceSlope) -> Out:
    if isinstance(one, Policy):
        return Out(topic=POLICY.name, key=KEY.encode(), value=encode(one))
    return Out(topic=SERVICE_SLOPE.name, key=one.service.encode(), value=encode(one))


def slope(permille: int, service: str = SERVICE) -> ServiceSlope:
    return ServiceSlope(service=service, slope_permille=permille, observed_ms=1, partition=0, folded_to=1)


def counted(what: str) -> float:
    return REGISTRY.get_sample_value(f"slacktide_agent_service_minutes{what}_total", {"node": NODE}) or 0


def connections(to: str) -> float:
    return REGISTRY.get_sample_value("slacktide_agent_connections_total", {"node": NODE, "to": to}) or 0


class Log:
    """What a test puts into Kafka and sees there."""

    def __init__(self, bootstrap: str) -> None:
        self._cluster = Cluster(bootstrap)

    async def put(self, *records: Out) -> None:
        sender = Sender(self._cluster, client_id="test", acks="all", timeout_s=5)
        await sender.connect([one.topic for one in records])
        await sender.send(records)
        await sender.close()

    async def minutes(self) -> list[ServiceMinute]:
        records = [one async for one in read_topic(self._cluster, SERVICE_MINUTE.name)]
        found = [decode(one.value, ServiceMinute) for one in records]
        assert [one.key for one in records] == [one.service.encode() for one in found]
        return found

    async def facts(self) -> NodeFacts:
        """The newest in a sample."""
        return [one.facts for one in await sampled(self._cluster) if one.facts is not None][-1]

    async def told(self, permille: int) -> NodeFacts:
        return await soon(self.facts, f"a slope of {permille}", enough=lambda one: one.slope_permille == permille)


async def test_minutes_go_out_and_slopes_come_in_while_the_policy_learns(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded_broker.apply_topics(4)
    log = Log(embedded_broker.bootstrap)
    await log.put(record(policy("shadow")), record(slope(400)), record(slope(9_000, "default/elsewhere")))
    sent, dropped = counted(""), counted("_dropped")
    with VirtualNode(tmp_path) as node:
        node.own_service("web")
        node.stall_service(5_000, 0)
        async with agent_of(node, embedded_broker.bootstrap, tmp_path, minute_ms=MINUTE_MS):
            assert (await log.told(400)).slope_of == SERVICE, "it was there before"
            await soon(log.minutes, "a minute")
            node.stall_service(705_000, 20_000)
            minutes = await soon(log.minutes, "a wait", enough=lambda found: any(one.wait_us for one in found))
            assert counted("") >= sent + len(minutes)

            await log.put(record(slope(700)))
            assert (await log.told(700)).slope_of == SERVICE
            await log.put(record(policy("off")))
            assert (await log.told(0)).slope_of == ""
            await log.put(record(policy("on")))
            await log.told(700)
            await log.put(Out(topic=SERVICE_SLOPE.name, key=SERVICE.encode(), value=None))
            assert (await log.told(0)).slope_of == ""

    assert {(one.service, one.node, one.pods, one.cpus) for one in minutes} == {(SERVICE, NODE, 1, CPUS)}
    [waited] = [one for one in minutes if one.wait_us]
    assert (waited.wait_us, waited.mem_wait_us) == (700_000, 20_000)
    assert all(one.span_ms >= MINUTE_MS for one in minutes)
    # Files are read one after the other, while the machine goes on: single minutes may be off by a step of it.
    ran_us, ls_cpu_us = sum(one.run_us for one in minutes), sum(one.ls_cpu_us for one in minutes)
    assert 0 < ran_us <= 1.5 * ls_cpu_us
    assert sum(one.be_cpu_us for one in minutes) > 0
    assert counted("_dropped") == dropped


async def test_minutes_of_an_outage_are_dropped_and_a_recreated_topic_is_read_anew(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded_broker.apply_topics(4)
    log = Log(embedded_broker.bootstrap)
    await log.put(record(policy("on")), record(slope(400)))
    dropped = counted("_dropped")

    async def lost() -> bool:
        return counted("_dropped") > dropped

    with VirtualNode(tmp_path) as node:
        node.own_service("web")
        node.stall_service(0, 0)
        async with agent_of(node, embedded_broker.bootstrap, tmp_path, minute_ms=MINUTE_MS):
            await log.told(400)
            await soon(log.minutes, "a minute")
            embedded_broker.stop()
            await soon(lost, "a lost minute")
            embedded_broker.start()
            embedded_broker.apply_topics(4)
            assert await soon(log.minutes, "a minute again")
            assert (await log.told(0)).slope_of == "", "the broker forgot it"


async def test_without_the_topics_of_learned_caps_an_agent_does_all_else_and_goes_on_from_what_it_knew(
    embedded_broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The slopes of its last run hold from its first sample on, until there are others."""
    embedded_broker.apply_topics(4)
    log = Log(embedded_broker.bootstrap)
    await log.put(record(policy("on")), record(slope(400)), record(slope(900, "default/elsewhere")))
    with VirtualNode(tmp_path) as node:
        node.own_service("web")
        node.stall_service(0, 0)
        async with agent_of(node, embedded_broker.bootstrap, tmp_path):
            await log.told(400)
        assert State(tmp_path / "state").slopes() == {SERVICE: 400}

        embedded_broker.forget()
        optional = {SERVICE_MINUTE.name, SERVICE_SLOPE.name}
        with monkeypatch.context() as older:
            older.setattr(brokers, "TOPICS", tuple(one for one in TOPICS if one.name not in optional))
            embedded_broker.apply_topics(4)
        monkeypatch.setattr(node_reader, "SLOPES_LOOK_S", 1.0)
        dropped, outcomes = counted("_dropped"), connections("outcomes")

        async def lost() -> float:
            return counted("_dropped") - dropped

        async with agent_of(node, embedded_broker.bootstrap, tmp_path, minute_ms=MINUTE_MS):
            await log.told(400)
            first = (await sampled(Cluster(embedded_broker.bootstrap)))[0]
            assert first.facts is not None
            assert (first.facts.slope_permille, first.facts.slope_of) == (400, SERVICE)
            await log.put(record(policy("off")))
            await log.told(0)
            await log.put(record(policy("on")))
            await log.told(400)
            await soon(lost, "lost minutes", enough=lambda minutes: minutes >= 3)
            assert connections("outcomes") <= outcomes + 1, "they cost only themselves"

            answers = connections("answers")
            embedded_broker.apply_topics(4)
            await log.put(record(slope(700)))
            await log.told(700)
            assert await soon(log.minutes, "a minute")
            assert connections("answers") == answers, "it looked for the topic"
    [warned] = [one for one in caplog.records if "slopes of services" in one.getMessage()]
    assert vars(warned)["topic"] == SERVICE_SLOPE.name
    assert "slacktide topics apply" in vars(warned)["why"]
