"""The wire: what is written is read back the same, by any reader of any version."""

import contextlib
import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generate.schemas import json_schema
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.topics import AUDIT, BY_NAME, CREDIT, TOPICS
from testbed.messages import any_message, check, plain

ANY = st.sampled_from(TOPICS).flatmap(lambda topic: st.tuples(st.just(topic), any_message(topic.message)))
schema_of = functools.cache(json_schema)
PER_TOPIC = pytest.mark.parametrize("kind", [pytest.param(topic.message, id=topic.name) for topic in TOPICS])


@given(ANY)
def test_what_is_written_is_read_back_the_same(given_message: tuple) -> None:
    topic, message = given_message

    assert decode(encode(message), topic.message) == message


@given(ANY)
def test_what_is_written_keeps_to_the_published_schema(given_message: tuple) -> None:
    topic, message = given_message

    check(plain(message), schema_of(topic))


@given(ANY, st.text(min_size=1))
def test_a_reader_ignores_fields_that_a_newer_writer_added(given_message: tuple, name: str) -> None:
    """At every level: a part of a message may grow, too."""
    topic, message = given_message

    assert decode(json.dumps(_grown(plain(message), f"{name} of tomorrow")).encode(), topic.message) == message


def _grown(value: object, name: str) -> object:
    """Every object gets one more field, but maps of numbers and texts, whose keys are data."""
    if isinstance(value, list):
        return [_grown(each, name) for each in value]
    if isinstance(value, dict):
        grown = {key: each if key in _MAPS else _grown(each, name) for key, each in value.items()}
        return grown | {name: {"anything": [1, None]}}
    return value


_MAPS = {
    "cores",
    "terms",
    "cpu_terms",
    "mem_terms",
    "mid_cpu_terms",
    "mid_mem_terms",
    "free_cpu_terms",
    "free_mem_terms",
    "bucket_weights",
    "items",
    "headers",
    "labels",
    "annotations",
    "hugepages_bytes",
    "devices",
    "match_labels",
    "matchLabels",
    "nodeLabels",
    "nodeSelector",
    "requests",
    "limits",
    "overhead",
    "flavors",
    "usage",
    "resourceUsage",
    "pod_conditions",
}


@PER_TOPIC
def test_bodies_are_objects_that_kcat_prints_on_one_line(kind: type[Message]) -> None:
    """No line break and no blank between tokens: some hundred bytes count at 10,000 nodes."""

    @settings(max_examples=20, deadline=None)
    @given(any_message(kind))
    def check(message: Message) -> None:
        raw = encode(message)
        assert raw.startswith(b"{")
        assert b"\n" not in raw
        assert len(raw) <= len(json.dumps(plain(message), ensure_ascii=False).encode())

    check()


@PER_TOPIC
@given(raw=st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused_by_one_error(kind: type[Message], raw: bytes) -> None:
    with contextlib.suppress(BadMessageError):
        assert isinstance(decode(raw, kind), kind)


@PER_TOPIC
def test_a_null_value_is_told_apart_from_a_bad_one(kind: type[Message]) -> None:
    with pytest.raises(BadMessageError, match="null"):
        decode(None, kind)


def test_the_table_lists_each_topic_once() -> None:
    assert len(BY_NAME) == len(TOPICS)


def test_topics_keyed_by_node_have_as_many_partitions_as_each_other() -> None:
    """Otherwise a join would need a repartition, and a node's order would be lost."""
    alone = {CREDIT.name, AUDIT.name}  # each is read whole, in one order, and joined with nothing
    keyed = {topic.partitions for topic in TOPICS if topic.key == "node" and topic.name not in alone}

    assert len(keyed) == 1
    assert CREDIT.partitions == 1  # one governor at a time: whoever has the partition


@pytest.mark.parametrize("replication", [1, 2, 3, 5])
def test_no_topic_asks_for_more_replicas_in_sync_than_it_has(replication: int) -> None:
    for topic in TOPICS:
        assert int(topic.config(replication)["min.insync.replicas"]) <= replication
