"""Every number in a record has a range, so that no record can bring arithmetic to its end."""

from collections.abc import Iterator

import pytest
from msgspec import inspect

from slacktide.schemas.bounds import AMOUNT_MAX, INT64_MAX, PODS_MAX
from slacktide.schemas.command import KEEP, NodesKept
from slacktide.schemas.heartbeat import KIND, Heartbeat
from slacktide.schemas.message import Message
from slacktide.schemas.topics import TOPICS


def unbounded(kind: inspect.Type, path: str, within: frozenset[type] = frozenset()) -> Iterator[str]:
    """Paths of numbers that lack a limit on either side."""
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        if (kind.ge is None and kind.gt is None) or (kind.le is None and kind.lt is None):
            yield path
        return
    inner = within | {kind.cls} if isinstance(kind, inspect.StructType) else within
    for step, part in parts(kind):
        if not (isinstance(part, inspect.StructType) and part.cls in inner):
            yield from unbounded(part, path + step, inner)


def parts(kind: inspect.Type) -> list[tuple[str, inspect.Type]]:
    """What a value of this type holds."""
    match kind:
        case inspect.StructType():
            return [(f".{field.name}", field.type) for field in kind.fields]
        case inspect.UnionType():
            return [("", one) for one in kind.types]
        case inspect.ListType() | inspect.VarTupleType():
            return [("[]", kind.item_type)]
        case inspect.TupleType():
            return [(f"[{place}]", one) for place, one in enumerate(kind.item_types)]
        case inspect.DictType():
            return [(".*", kind.value_type)]
        case inspect.StrType() | inspect.BoolType() | inspect.NoneType() | inspect.LiteralType():
            return []
        case _:
            raise AssertionError(f"a new kind of field: {kind}")


@pytest.mark.parametrize(
    "kind",
    [
        *(pytest.param(topic.message, id=topic.name) for topic in TOPICS),
        pytest.param(Heartbeat, id=KIND),
        pytest.param(NodesKept, id=KEEP),
    ],
)
def test_every_number_in_a_message_has_a_range(kind: type[Message]) -> None:
    """Types with ranges are in ``schemas/bounds.py``."""
    assert list(unbounded(inspect.type_info(kind), "$")) == []


def test_a_number_without_a_range_is_found_at_any_depth() -> None:
    kind = inspect.type_info(dict[str, list[int | None]])

    assert list(unbounded(kind, "$")) == ["$.*[]"]


def test_the_sum_of_a_full_pod_list_fits_in_64_bits() -> None:
    assert AMOUNT_MAX * PODS_MAX <= INT64_MAX
