"""Any message there can be: hypothesis strategies made from the messages' own types."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from slacktide.schemas.message import Message

INT64 = 2**63
M = TypeVar("M", bound=Message)


def check(value: object, schema: dict[str, Any]) -> None:
    """Raise unless a value keeps to a schema."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 -- it makes grammars for seconds, in each process

    Draft202012Validator(schema).validate(value)


@functools.cache
def any_message(kind: type[M]) -> st.SearchStrategy[M]:
    return _any(inspect.type_info(kind))


def any_value(of: object) -> st.SearchStrategy:
    return _any(inspect.type_info(of))


def _any(kind: inspect.Type) -> st.SearchStrategy:
    return _BY_TYPE[type(kind)](kind)


def _struct(kind: inspect.StructType) -> st.SearchStrategy:
    """What may be left out often is: a message of many parts stays small."""
    needed = {field.name: _any(field.type) for field in kind.fields if field.required}
    others = {field.name: _any(field.type) for field in kind.fields if not field.required}
    return st.fixed_dictionaries(needed, optional=others).map(lambda fields: kind.cls(**fields))


def _list(kind: inspect.ListType) -> st.SearchStrategy:
    least = kind.min_length or 0
    return st.lists(_any(kind.item_type), min_size=least, max_size=min(max(least, 3), kind.max_length or 3))


_BY_TYPE: dict[type, Callable] = {
    inspect.StructType: _struct,
    inspect.UnionType: lambda kind: st.one_of([_any(each) for each in kind.types]),
    inspect.ListType: _list,
    inspect.VarTupleType: lambda kind: st.lists(_any(kind.item_type), max_size=3).map(tuple),
    inspect.DictType: lambda kind: st.dictionaries(_any(kind.key_type), _any(kind.value_type), max_size=4),
    inspect.LiteralType: lambda kind: st.sampled_from(kind.values),
    inspect.IntType: lambda kind: st.integers(
        -INT64 if kind.ge is None else kind.ge, INT64 - 1 if kind.le is None else kind.le
    ),
    inspect.FloatType: lambda kind: st.floats(
        kind.ge if kind.gt is None else kind.gt,
        kind.le,
        exclude_min=kind.gt is not None,
        allow_nan=False,
        allow_infinity=False,
    ),
    inspect.StrType: lambda kind: (
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
        if kind.pattern is None
        else st.from_regex(kind.pattern, fullmatch=True)
    ),
    inspect.BoolType: lambda _: st.booleans(),
    inspect.NoneType: lambda _: st.none(),
}
"""What messages are made of; a new kind of field needs its line here."""


def plain(message: Message) -> dict:
    """The message as a reader without our types sees it."""
    return msgspec.json.decode(msgspec.json.encode(message))
