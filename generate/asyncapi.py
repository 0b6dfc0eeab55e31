"""The topics as an AsyncAPI 3 document with Kafka bindings: for tools, and for who looks at them with other eyes."""

import json
from collections.abc import Mapping
from pathlib import Path

from slacktide.schemas import heartbeat
from slacktide.schemas.access import IN_THE_LOOP, STREAM, STREAM_GROUP, Part
from slacktide.schemas.command import KEEP, KEEP_KEY, NodesKept
from slacktide.schemas.heartbeat import Heartbeat
from slacktide.schemas.message import Message
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, METRIC, SAMPLE, SCORE, SHADOW_COMMAND, TOPICS, Topic

Json = dict[str, object]

VERSION = "3.0.0"
BEATEN = (METRIC, ALLOCATABLE, SCORE)
"""Topics that carry heartbeats, too."""
BINDING = "0.5.0"
SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
EXAMPLES = Path(__file__).resolve().parent.parent / "schemas/examples"
SCHEMAS = "#/components/schemas"

HEADERS: Json = {
    "type": "object",
    "description": "CloudEvents in binary mode. One traceparent holds a sample, its answer and its outcome together.",
    "properties": {
        "ce_specversion": {"const": "1.0", "description": "Version of CloudEvents."},
        "ce_id": {"type": "string", "description": "Unique together with ce_source."},
        "ce_type": {"type": "string", "description": "The topic's name."},
        "ce_source": {"type": "string", "description": "Who wrote it, such as agent/node-1 or stream/blue."},
        "ce_subject": {"type": "string", "description": "The record's key."},
        "ce_time": {"type": "string", "format": "date-time", "description": "Event time, as RFC 3339."},
        "ce_dataschema": {"type": "string", "description": "The schema's name in schemas/jsonschema."},
        "content-type": {"const": "application/json", "description": "Of the body."},
        "traceparent": {"type": "string", "description": "W3C trace context of the sample that led to it."},
        "ce_deadletter": {
            "type": "string",
            "description": "Written again by dead-letter replay: where the original lies.",
        },
    },
    "required": ["ce_specversion", "ce_id", "ce_type", "ce_source", "ce_subject", "ce_time", "content-type"],
}


def document(definitions: Mapping[str, object]) -> Json:
    """All of it, complete in itself.

    Args:
        definitions: the schema of each message and part, by its name; each refers to others as ``#/$defs/NAME``.
    """
    schemas = json.loads(json.dumps(definitions).replace('"#/$defs/', f'"{SCHEMAS}/'))
    return {
        "asyncapi": VERSION,
        "info": {
            "title": "Slacktide's topics",
            "version": "1",
            "description": "A control loop for colocation on Kubernetes that is a log. Written by make schemas.",
        },
        "defaultContentType": "application/json",
        "channels": {topic.name: _channel(topic) for topic in TOPICS},
        "operations": {
            f"{part.name}.{action}.{topic.name}": _operation(part, action, topic)
            for part in IN_THE_LOOP
            for action, topics in (("send", part.writes), ("receive", part.reads))
            for topic in topics
        },
        "components": {
            "schemas": {"headers": HEADERS, **schemas},
            "messages": {
                topic.name: _message(topic.name, topic.message, {"description": f"UTF-8: {topic.key}"})
                for topic in TOPICS
            }
            | {heartbeat.KIND: _heartbeat(), KEEP: _message(KEEP, NodesKept, {"const": KEEP_KEY})},
        },
    }


def _messages(topic: Topic) -> dict[str, str]:
    """What a topic carries: its record; in topics of latest figures heartbeats, in those of commands many at once."""
    record = {"record": topic.name}
    if topic in (COMMAND, SHADOW_COMMAND):
        return record | {"keep": KEEP}
    return record | {"heartbeat": heartbeat.KIND} if topic in BEATEN else record


def _heartbeat() -> Json:
    """The message that has no payload: its body is in a header."""
    examples = [json.loads(path.read_bytes()) for path in sorted((EXAMPLES / heartbeat.KIND).glob("*.json"))]
    body: Json = {
        "type": "string",
        "description": f"JSON by {SCHEMAS}/{Heartbeat.__name__}.",
        "contentMediaType": "application/json",
    }
    return {
        "name": Heartbeat.__name__,
        "description": " ".join((Heartbeat.__doc__ or "").split()),
        "headers": {
            "allOf": [{"$ref": "#/components/schemas/headers"}],
            "type": "object",
            "properties": {heartbeat.HEADER: body},
            "required": [heartbeat.HEADER],
        },
        "payload": {"type": "null"},
        "bindings": {"kafka": {"key": {"type": "string", "const": heartbeat.KEY}, "bindingVersion": BINDING}},
        "examples": [
            {"name": str(number), "headers": {heartbeat.HEADER: json.dumps(one)}}
            for number, one in enumerate(examples, 1)
        ],
    }


def _channel(topic: Topic) -> Json:
    config = topic.config(topic.replication)
    numbers = {name: int(text) for name, text in config.items() if text.isdigit()}
    return {
        "address": topic.name,
        "description": f"{', '.join(topic.producers)} -> {', '.join(topic.consumers)}; key: {topic.key}",
        "messages": {name: {"$ref": f"#/components/messages/{of}"} for name, of in _messages(topic).items()},
        "bindings": {
            "kafka": {
                "topic": topic.name,
                "partitions": topic.partitions,
                "replicas": topic.replication,
                "topicConfiguration": {"cleanup.policy": [topic.cleanup], **numbers},
                "bindingVersion": BINDING,
            }
        },
    }


def _message(name: str, message: type[Message], key: Json) -> Json:
    return {
        "name": message.__name__,
        "description": " ".join((message.__doc__ or "").split()),
        "contentType": "application/json",
        "headers": {"$ref": "#/components/schemas/headers"},
        "correlationId": {"location": "$message.header#/traceparent"},
        "payload": {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": f"{SCHEMAS}/{message.__name__}"}},
        "bindings": {"kafka": {"key": {"type": "string", **key}, "bindingVersion": BINDING}},
        "examples": [
            {"name": path.stem, "payload": json.loads(path.read_bytes())}
            for path in sorted((EXAMPLES / name).glob("*.json"))
        ],
    }


def _operation(part: Part, action: str, topic: Topic) -> Json:
    channel = f"#/channels/{topic.name}"
    described: Json = {
        "action": action,
        "summary": part.what,
        "channel": {"$ref": channel},
        "messages": [{"$ref": f"{channel}/messages/{name}"} for name in _messages(topic)],
    }
    if part is STREAM and action == "receive" and topic is SAMPLE:
        group = {"type": "string", "enum": [STREAM_GROUP]}
        described["bindings"] = {"kafka": {"groupId": group, "bindingVersion": BINDING}}
    return described
