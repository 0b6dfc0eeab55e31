"""PURE: what the chart accepts below ``policy.config``, as JSON Schema made of the policy's own types."""

import json
from collections.abc import Mapping
from typing import Any

from generate.schemas import schema_of
from slacktide.schemas.message import Message
from slacktide.schemas.policy.configmap import CONFIGS, NODE_STRATEGIES_MAX, Config
from slacktide.schemas.policy.keys import DURATIONS, NAMES, NARROWER
from slacktide.schemas.policy.message import Policy
from slacktide.schemas.policy.reading import UNREAD
from slacktide.schemas.topics import POLICY

Json = dict[str, Any]
LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
"""Helm's patterns know no look-ahead."""
UNDER_A_SECOND = r"^[0.]+(h|m|s)$|^[0-9.]{1,3}ms$"
_VALUE = {"type": "string", "pattern": LABEL_VALUE}
_WITH_VALUES = {"operator": {"enum": ["In", "NotIn"]}, "values": {"minItems": 1}}
_WITHOUT = {"operator": {"enum": ["Exists", "DoesNotExist"]}, "values": {"maxItems": 0}}
SELECTOR: Json = {
    "type": "object",
    "additionalProperties": False,
    "minProperties": 1,
    "properties": {
        "matchLabels": {"type": "object", "patternProperties": {LABEL_KEY: _VALUE}, "additionalProperties": False},
        "matchExpressions": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "key": {"type": "string", "pattern": LABEL_KEY},
                    "operator": {"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                    "values": {"type": "array", "items": _VALUE},
                },
                "required": ["key", "operator"],
                "if": {"properties": {"operator": _WITH_VALUES["operator"]}},
                "then": {"properties": _WITH_VALUES, "required": ["values"]},
                "else": {"properties": _WITHOUT},
            },
        },
    },
}


def with_policy(text: str) -> str:
    """The chart's schema with the policy's definitions renewed: each on a line, below those written by hand."""
    schema = json.loads(text)
    written = {name: one for name, one in schema["$defs"].items() if not name.startswith("policy.")}
    made = {f"policy.{name}": one for name, one in _definitions().items()}
    body = json.dumps({**schema, "$defs": written | dict.fromkeys(made, "MADE")}, indent=2)
    for one in made.values():
        body = body.replace('"MADE"', json.dumps(one), 1)
    return body + "\n"


def _definitions() -> Json:
    kinds: Any = schema_of(POLICY.name, Policy)["$defs"]
    parts = {kind.__name__: _object(_properties(kind, kinds[kind.__name__]["properties"])) for kind in NAMES}
    return parts | {config.key: _config(config, parts) for config in CONFIGS} | {"nodeSelector": SELECTOR}


def _properties(kind: type[Message], fields: Mapping[str, Json]) -> Json:
    found = {}
    for name, field in NAMES[kind].items():
        schema = _referring({key: value for key, value in fields[field].items() if key != "default"})
        if (kind, field) in NARROWER:
            schema = {"enum": list(NARROWER[kind, field]), "description": schema["description"]}
        elif field == "durations_s":
            item = {"type": "string", "pattern": f"^{DURATIONS}$", "not": {"pattern": UNDER_A_SECOND}}
            schema = {"type": "array", "minItems": 1, "items": item, "description": schema["description"]}
        found[name] = schema
    return found


def _referring(schema: Any) -> Any:
    """With references to where a definition lies here."""
    return json.loads(json.dumps(schema).replace('"#/$defs/', '"#/$defs/policy.'))


def _object(properties: Json) -> Json:
    known = properties | {name: {} for name in sorted(UNREAD)}
    return {"type": "object", "additionalProperties": False, "properties": known}


def _config(config: Config, parts: Mapping[str, Json]) -> Json:
    kind = type(config.default).__name__
    own = parts[kind]["properties"]
    body = {config.cluster: {"$ref": f"#/$defs/policy.{kind}"}} if config.cluster else own
    if config.nodes:
        named = {"name": {"type": "string"}, "nodeSelector": {"$ref": "#/$defs/policy.nodeSelector"}}
        item = {**_object(own | named), "required": ["nodeSelector"]}
        body = body | {config.nodes: {"type": "array", "maxItems": NODE_STRATEGIES_MAX, "items": item}}
    return _object(body)
