"""What a cluster lacks of the table of topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slacktide.deploy.cli.topic_plan import changes, plan_text
from slacktide.schemas.topics import POLICY, SAMPLE, TOPICS, Topic
from slacktide.streams.kafka import TopicState


def as_asked(topic: Topic, brokers: int = 3) -> TopicState:
    """The topic as the table wants it on so many brokers."""
    replication = min(topic.replication, brokers)
    return TopicState(
        name=topic.name,
        partitions=topic.partitions,
        replication=replication,
        config=topic.config(replication) | {"segment.bytes": "1073741824"},
        begin={},
        end={},
    )


def test_a_cluster_that_has_all_as_asked_needs_nothing() -> None:
    there = {topic.name: as_asked(topic) for topic in TOPICS}

    assert changes(TOPICS, there, 3) == []
    assert plan_text([]) == "nothing to do: all topics match the table of topics"


def test_an_empty_cluster_needs_every_topic() -> None:
    found = changes(TOPICS, {}, 3)

    assert [(change.topic, change.kind) for change in found] == [(topic.name, "create") for topic in TOPICS]
    assert plan_text(found).splitlines()[0] == (
        "+ slacktide.node.sample.v1: 12 partitions, replication 3, "
        "cleanup.policy=delete message.timestamp.type=LogAppendTime min.insync.replicas=2 retention.ms=172800000"
    )


def test_replication_is_limited_by_the_brokers_and_says_so() -> None:
    (found,) = changes([POLICY], {}, 1)

    assert found.text.startswith("1 partition, replication 1 of 3 (1 broker), ")
    assert found.config["min.insync.replicas"] == "1"


def test_a_setting_that_drifted_is_set_again_and_only_that() -> None:
    state = as_asked(SAMPLE)
    drifted = replace(state, config=state.config | {"retention.ms": "3600000"})
    (found,) = changes([SAMPLE], {SAMPLE.name: drifted}, 3)

    assert (found.kind, found.config) == ("set", {"retention.ms": "172800000"})
    assert found.text == "retention.ms 3600000 -> 172800000"


@pytest.mark.parametrize(
    ("there", "text"),
    [
        pytest.param(
            {"partitions": 6}, "6 partitions, but the table has 12: not changed", id="partitions: keys would move"
        ),
        pytest.param(
            {"replication": 1}, "replication 1, but 3 is possible: not changed", id="replication: data would move"
        ),
    ],
)
def test_what_cannot_be_changed_in_place_is_said_and_left(there: dict[str, int], text: str) -> None:
    state = replace(as_asked(SAMPLE), **there)
    state = replace(state, config=SAMPLE.config(state.replication))
    (found,) = changes([SAMPLE], {SAMPLE.name: state}, 3)

    assert found.kind == "differs"
    assert found.text.startswith(text)
    assert plan_text([found]).splitlines()[-1] == "0 to create, 0 to change, 1 with differences that are not changed"


def test_a_broker_that_tells_no_settings_is_believed() -> None:
    state = replace(as_asked(SAMPLE), config={})

    assert changes([SAMPLE], {SAMPLE.name: state}, 3) == []
