"""What a cluster lacks of the table of topics."""

from dataclasses import replace

from slacktide.deploy.cli.topic_plan import changes, plan_text
from slacktide.schemas.topics import POLICY, SAMPLE, TOPICS, Topic
from slacktide.streams.kafka import TopicState
from testbed.snapshots import situations


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


def sample_state(**there: object) -> dict[str, TopicState]:
    state = replace(as_asked(SAMPLE), **there)
    return {SAMPLE.name: replace(state, config=SAMPLE.config(state.replication))}


def drifted() -> dict[str, TopicState]:
    state = as_asked(SAMPLE)
    return {SAMPLE.name: replace(state, config=state.config | {"retention.ms": "3600000"})}


@situations(
    "given",
    {
        "a cluster that has all as asked": (TOPICS, {topic.name: as_asked(topic) for topic in TOPICS}, 3),
        "an empty cluster": ([SAMPLE, POLICY], {}, 3),
        "replication is limited by the brokers": ([POLICY], {}, 1),
        "a setting that drifted is set again, and only that": ([SAMPLE], drifted(), 3),
        "partitions stay: keys would move": ([SAMPLE], sample_state(partitions=6), 3),
        "replication stays: data would move": ([SAMPLE], sample_state(replication=1), 3),
    },
)
def test_what_a_cluster_lacks_is_planned(given: tuple, snapshot) -> None:
    found = changes(*given)
    settings = [f"{one.topic} {one.kind}: {dict(one.config)}" for one in found]
    assert "\n".join([plan_text(found), *settings]) == snapshot


def test_a_broker_that_tells_no_settings_is_believed() -> None:
    state = replace(as_asked(SAMPLE), config={})

    assert changes([SAMPLE], {SAMPLE.name: state}, 3) == []
