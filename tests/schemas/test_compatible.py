"""Topics stay readable from one release to the next, and what says so can tell."""

import copy
from pathlib import Path

import msgspec
import pytest

from generate.schemas import FOLDER, PAGE, derived, json_schema
from slacktide.schemas.command import KEEP
from slacktide.schemas.heartbeat import KIND
from slacktide.schemas.topics import BY_NAME
from testbed.compatible import Schema, breaks

RELEASED = sorted((Path(__file__).parent / "released").glob("*.json"))
"""Schemas of the last release, copied from schemas/jsonschema when it was made."""

OLD: Schema = {
    "$ref": "#/$defs/Sample",
    "$defs": {
        "Sample": {
            "type": "object",
            "properties": {
                "node": {"type": "string"},
                "seq": {"type": "integer", "minimum": 0},
                "answer": {"enum": ["keep", "set"]},
                "reason": {"type": "string", "default": ""},
                "limits": {"anyOf": [{"$ref": "#/$defs/Limits"}, {"type": "null"}]},
                "pods": {"type": "array", "items": {"$ref": "#/$defs/Limits"}, "default": []},
                "terms": {"type": "object", "additionalProperties": {"type": "integer"}, "default": {}},
            },
            "required": ["node", "seq", "answer", "limits"],
        },
        "Limits": {"type": "object", "properties": {"quota_us": {"type": "integer"}}, "required": ["quota_us"]},
    },
}


def changed(path: str, value: object) -> Schema:
    """The old schema with one place set, or removed (None)."""
    new = copy.deepcopy(OLD)
    *folders, name = path.split("/")
    place = new["$defs"]
    for folder in folders:
        place = place[folder]
    if value is None:
        del place[name]
    else:
        place[name] = value
    return new


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        pytest.param("Sample/properties/reason", None, "$.reason: removed", id="a field goes"),
        pytest.param("Limits/properties/quota_us", None, "$.limits.quota_us: removed", id="a field of a part goes"),
        pytest.param(
            "Sample/required", ["node", "seq", "answer", "limits", "uid"], "$.uid: new and required", id="required anew"
        ),
        pytest.param(
            "Sample/required",
            ["node", "seq", "answer", "limits", "reason"],
            "$.reason: now required",
            id="what could be absent is required",
        ),
        pytest.param(
            "Sample/required",
            ["node", "seq", "answer"],
            "$.limits: may now be absent",
            id="what was there may be absent",
        ),
        pytest.param(
            "Sample/properties/node", {"type": "integer"}, "$.node: narrowed, no longer string", id="other type"
        ),
        pytest.param(
            "Sample/properties/seq", {"type": "integer", "minimum": 1}, "$.seq: narrowed", id="a bound is moved"
        ),
        pytest.param(
            "Limits/properties/quota_us",
            {"type": "integer", "maximum": 100},
            "$.limits.quota_us: narrowed",
            id="a first limit that records may pass",
        ),
        pytest.param(
            "Sample/properties/answer", {"enum": ["keep"]}, "$.answer: narrowed, no longer 'set'", id="one answer less"
        ),
        pytest.param(
            "Sample/properties/answer",
            {"enum": ["keep", "set", "evict"]},
            "$.answer: widened, may now be 'evict'",
            id="one answer more",
        ),
        pytest.param(
            "Sample/properties/limits",
            {"$ref": "#/$defs/Limits"},
            "$.limits: narrowed, no longer null",
            id="never null",
        ),
        pytest.param(
            "Limits/properties/quota_us",
            {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "$.pods[].quota_us: widened, may now be null",
            id="null within a list",
        ),
        pytest.param(
            "Sample/properties/terms/additionalProperties",
            {"type": "string"},
            "$.terms.*: narrowed, no longer integer",
            id="another kind of map",
        ),
        pytest.param("Sample/properties/reason/default", "none", "$.reason: another default", id="another default"),
    ],
)
def test_a_change_that_an_older_part_could_not_survive_is_named(path: str, value: object, said: str) -> None:
    assert [line for line in breaks(OLD, changed(path, value)) if line.startswith(said)]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("Sample/properties/uid", {"type": "string", "default": ""}, id="a field that may be absent"),
        pytest.param("Limits/properties/burst_us", {"type": "integer", "default": 0}, id="the same in a part"),
        pytest.param("Sample/description", "Said better.", id="another description"),
        pytest.param("Sample/properties/answer", {"enum": ["set", "keep"]}, id="another order"),
        pytest.param(
            "Limits/properties/quota_us", {"type": "integer", "minimum": 0, "maximum": 2**50}, id="a first, far limit"
        ),
        pytest.param("Sample/properties/node", {"type": "string", "maxLength": 253}, id="a first, far length"),
        pytest.param(
            "Sample/properties/pods",
            {"type": "array", "items": {"$ref": "#/$defs/Limits"}, "maxItems": 5_000, "default": []},
            id="a first, far length of a list",
        ),
    ],
)
def test_a_change_that_harms_nobody_passes(path: str, value: object) -> None:
    assert breaks(OLD, changed(path, value)) == []


def test_a_part_may_be_renamed_for_its_name_is_not_on_the_wire() -> None:
    renamed = msgspec.json.decode(msgspec.json.encode(OLD).replace(b"Limits", b"Bounds"))

    assert breaks(OLD, renamed) == []


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in RELEASED])
def test_this_version_lives_beside_the_last_release(path: Path) -> None:
    """Where this fails, restore the field or make the topic's ``.v2``."""
    topic = BY_NAME.get(path.stem)
    assert topic is not None, f"{path.stem}: a released topic is gone from the table"

    assert breaks(msgspec.json.decode(path.read_bytes()), json_schema(topic)) == []


def test_every_derived_file_is_what_the_messages_say() -> None:
    """Schemas and the table in docs/topics.md; ``make schemas`` renews them."""
    behind = [path.name for path, text in derived().items() if not path.is_file() or path.read_text() != text]

    assert behind == []
    assert PAGE in derived()
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted([*BY_NAME, KIND, KEEP])
