"""Write what is derived from the messages: a JSON Schema per topic, an AsyncAPI document, docs/topics.md's table.

``python -m generate.schemas`` in a checkout; ``--check`` writes nothing and fails where a file is behind.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import yaml

from generate import asyncapi
from slacktide.schemas import heartbeat
from slacktide.schemas.command import KEEP, NodesKept
from slacktide.schemas.heartbeat import Heartbeat
from slacktide.schemas.message import Message
from slacktide.schemas.queue_objects import Part
from slacktide.schemas.topics import HOUR_MS, TOPICS, Topic

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "schemas/jsonschema"
COMMON: dict[str, str] = yaml.safe_load((FOLDER.parent / "fields.yaml").read_text())
"""What a field means if its class does not state it: by name, or by ``Class.name``."""
DOCS = ROOT / "docs"
ASYNCAPI, PAGE = DOCS / "asyncapi.json", DOCS / "topics.md"
BEGIN, END = "<!-- topics -->\n", "<!-- /topics -->"


def json_schema(topic: Topic) -> dict[str, object]:
    """The topic's body as JSON Schema."""
    return schema_of(topic.name, topic.message)


def schema_of(name: str, message: type[Message]) -> dict[str, object]:
    """A message as JSON Schema: descriptions are the docstrings, units the ends of the names.

    Raises:
        ValueError: a field has no description.
    """
    schema = msgspec.json.schema(message)
    kinds = {kind.__name__: kind for base in (Message, Part) for kind in _below(base)}
    for definition in schema["$defs"].values():
        definition["description"] = one_line(definition["description"])
        kind = kinds[definition["title"].partition("[")[0]]
        written = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
        docs = {written[field]: one_line(text) for field, text in _field_docs(kind).items()}
        for key, field in definition.get("properties", {}).items():
            text = docs.get(key) or COMMON.get(f"{kind.__name__}.{key}") or COMMON.get(key)
            if not text:
                raise ValueError(f"{kind.__name__}.{key}: no text below the field, and none in schemas/fields.yaml")
            field["description"] = text
    return {"$schema": DIALECT, "$id": f"{name}.json", "title": name, **schema}


def definitions(schemas: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """What all these schemas define, by its name.

    Raises:
        ValueError: two of them define a name differently.
    """
    found: dict[str, object] = {}
    for schema in schemas:
        parts = schema["$defs"]
        assert isinstance(parts, dict)
        if other := [name for name, part in parts.items() if found.setdefault(name, part) != part]:
            raise ValueError(
                f"{schema['title']}: another topic defines {', '.join(other)} differently: rename the class"
            )
    return found


def _below(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for kind in base.__subclasses__():
        if kind.__module__.startswith("slacktide.schemas."):  # readers of the API server extend the same base
            yield kind
        yield from _below(kind)


def _field_docs(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The text under each field that has one."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef), f"{kind} is written as a class"
    docs = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            docs[field.target.id] = str(text.value.value)
    return docs


def one_line(text: str) -> str:
    """Python versions differ in how they indent a docstring; readers do not care for its lines."""
    return " ".join(text.split())


def topics_table() -> str:
    """The table of topics in Markdown."""
    rows = [
        "| topic | key | partitions | kept | replicas (in sync) | acks | from → to |",
        "|---|---|---|---|---|---|---|",
    ]
    for topic in TOPICS:
        kept = "compacted" if topic.retention_ms is None else _duration(topic.retention_ms)
        route = f"{', '.join(topic.producers)} → {', '.join(topic.consumers)}"
        replicas = f"{topic.replication} ({topic.min_insync_replicas})"
        rows.append(
            f"| `{topic.name}` | {topic.key} | {topic.partitions} | {kept} | {replicas} | {topic.acks} | {route} |"
        )
    return "\n".join(rows) + "\n"


def _duration(span_ms: int) -> str:
    hours = span_ms // HOUR_MS
    return f"{hours} h" if hours <= 48 else f"{hours // 24} d"


def derived() -> dict[Path, str]:
    """Every derived file with the text that it should hold."""
    schemas = {topic.name: json_schema(topic) for topic in TOPICS}
    schemas[heartbeat.KIND] = schema_of(heartbeat.KIND, Heartbeat)
    schemas[KEEP] = schema_of(KEEP, NodesKept)
    files = {FOLDER / f"{name}.json": _written(schema) for name, schema in schemas.items()}
    if DOCS.is_dir():
        files[ASYNCAPI] = _written(asyncapi.document(definitions(schemas.values())))
        before, _, rest = PAGE.read_text().partition(BEGIN)
        files[PAGE] = before + BEGIN + topics_table() + rest[rest.index(END) :]
    return files


def _written(document: dict[str, object]) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def main(arguments: list[str]) -> int:
    """Write the files that are behind, or with ``--check`` name them.

    Returns:
        0 when all is as it should be.
    """
    wanted = derived()
    behind = [path for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
    stray = sorted(set(FOLDER.glob("*.json")) - set(wanted))
    if arguments == ["--check"]:
        for path in behind + stray:
            print(f"{path}: differs from the message types; run python -m generate.schemas")  # noqa: T201
        return 1 if behind or stray else 0
    FOLDER.mkdir(exist_ok=True)
    for path in behind:
        path.write_text(wanted[path])
    for path in stray:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
