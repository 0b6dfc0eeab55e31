"""The AsyncAPI document: each topic with its key, partitions, retention and examples; nothing in it leads nowhere."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from generate.schemas import ASYNCAPI, COMMON
from slacktide.schemas.access import IN_THE_LOOP
from slacktide.schemas.headers import headers
from slacktide.schemas.topics import STAMPED, TIMESTAMP_TYPE, TOPICS, Topic
from testbed.messages import check

DOCUMENT: dict[str, Any] = json.loads(ASYNCAPI.read_text())
EACH = pytest.mark.parametrize("topic", [pytest.param(topic, id=topic.name) for topic in TOPICS])
FIELDS = {
    "": {"asyncapi", "info", "defaultContentType", "channels", "operations", "components"},
    "channels": {"address", "description", "messages", "bindings"},
    "operations": {"action", "summary", "channel", "messages", "bindings"},
    "messages": {
        "name", "description", "contentType", "headers", "correlationId", "payload", "bindings", "examples",
    },
}  # fmt: skip
"""What is used of AsyncAPI 3.0.0, which allows no field that it does not know."""


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from references(each)


def resolved(reference: str) -> Any:
    """What a reference leads to, within the document."""
    root, *steps = reference.split("/")
    assert root == "#", f"{reference} leads out of the document"
    found = DOCUMENT
    for step in steps:
        found = found[step.replace("~1", "/").replace("~0", "~")]
    return found


def undescribed(part: str, schema: dict[str, Any]) -> list[str]:
    return [f"{part}.{name}" for name, field in schema.get("properties", {}).items() if not field.get("description")]


def test_every_field_of_every_message_is_described() -> None:
    schemas = DOCUMENT["components"]["schemas"]

    assert len(schemas) > len(TOPICS)
    assert [one for part, schema in schemas.items() for one in undescribed(part, schema)] == []


def test_no_common_description_is_without_a_field() -> None:
    parts = {name.partition("[")[0]: schema for name, schema in DOCUMENT["components"]["schemas"].items()}
    fields = {name for schema in parts.values() for name in schema.get("properties", {})}
    own = {f"{part}.{name}" for part, schema in parts.items() for name in schema.get("properties", {})}

    assert [name for name in COMMON if name not in fields | own] == []


def test_every_reference_leads_somewhere_in_the_document() -> None:
    found = set(references(DOCUMENT))

    assert len(found) > 2 * len(TOPICS)
    assert all(resolved(reference) for reference in found)


def test_it_uses_the_fields_of_asyncapi_3_and_no_others() -> None:
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert DOCUMENT.keys() <= FIELDS[""]
    for kind, parts in (("channels", DOCUMENT), ("operations", DOCUMENT), ("messages", DOCUMENT["components"])):
        for name, part in parts[kind].items():
            assert part.keys() <= FIELDS[kind], name
    assert {operation["action"] for operation in DOCUMENT["operations"].values()} == {"send", "receive"}


@EACH
def test_a_topic_is_told_as_the_cluster_has_it(topic: Topic) -> None:
    channel = DOCUMENT["channels"][topic.name]
    binding = channel["bindings"]["kafka"]

    assert channel["address"] == binding["topic"] == topic.name
    assert (binding["partitions"], binding["replicas"]) == (topic.partitions, topic.replication)
    config = {"cleanup.policy": topic.cleanup} | {
        k: str(v) for k, v in binding["topicConfiguration"].items() if k[0] != "c"
    }
    # The binding has no field for the type of timestamps, nor for the codec.
    codec = {"compression.type": topic.compression} if topic.compression else {}
    assert config | codec | {TIMESTAMP_TYPE: STAMPED} == topic.config(topic.replication)
    assert binding["topicConfiguration"]["cleanup.policy"] == [topic.cleanup]


@EACH
def test_its_records_have_a_key_a_schema_and_three_examples_that_keep_to_it(topic: Topic) -> None:
    message = resolved(DOCUMENT["channels"][topic.name]["messages"]["record"]["$ref"])
    schema = resolved(message["payload"]["schema"]["$ref"])

    assert message["bindings"]["kafka"]["key"]["description"] == f"UTF-8: {topic.key}"
    assert len(message["examples"]) >= 3
    for example in message["examples"]:
        check(example["payload"], {**schema, "components": DOCUMENT["components"]})


def test_headers_as_they_are_written_keep_to_what_is_said_of_them() -> None:
    written = headers(kind="a.v1", source="agent/n", subject="n", event_id="1", event_ms=0, trace="n/b/1")
    schema = DOCUMENT["components"]["schemas"]["headers"]

    check({name: raw.decode() for name, raw in written}, schema)
    assert {name for name, _ in written} | {"ce_deadletter"} == schema["properties"].keys()


@EACH
def test_who_writes_and_reads_it_is_told(topic: Topic) -> None:
    """Operators read along and are no part of the loop; the governor lives in the worker's process."""
    told = {
        (operation["action"], name.partition(".")[0])
        for name, operation in DOCUMENT["operations"].items()
        if operation["channel"]["$ref"] == f"#/channels/{topic.name}"
    }
    process = {role: part.name for part in IN_THE_LOOP for role in part.roles}

    assert {who for action, who in told if action == "send"} == {process[role] for role in topic.producers}
    assert {process[role] for role in topic.consumers if role in process} <= {
        who for act, who in told if act == "receive"
    }
