"""Which nodes a strategy is for: Kubernetes' label selectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.message import Message

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


class Requirement(Message, frozen=True, kw_only=True):
    """What one label must be."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class Selector(Message, frozen=True, kw_only=True):
    """All of these must hold; an empty one matches every node."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is meant."""
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    return all(_holds(requirement, labels.get(requirement.key)) for requirement in selector.match_expressions)


def _holds(requirement: Requirement, value: str | None) -> bool:
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


def overlaps(selectors: Sequence[Selector]) -> Iterator[tuple[int, int]]:
    """Each selector that overlaps with an earlier one, and the first of those, by place.

    Two overlap if some node that has only the labels that one of them speaks of is meant by both.
    Selectors of unrelated labels may still meet on a node that has both; which ones do, only the nodes show.
    Reading: koordinator a7a1b76b, pkg/webhook/cm/plugins/sloconfig/checker.go, NodeSelectorOverlap.
    """
    seen: list[Mapping[str, _Values]] = []
    for place, selector in enumerate(selectors):
        its = _values(selector)
        for earlier, mine in enumerate(seen):
            if _meet(mine, its) or _meet(its, mine):
                yield place, earlier
                break
        seen.append(its)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """What a label may be: absent, one of ``only`` (None: any), none of ``never``."""

    absent: bool = True
    only: frozenset[str] | None = None
    never: frozenset[str] = frozenset()

    def and_(self, other: _Values) -> _Values:
        sets = [values for values in (self.only, other.only) if values is not None]
        return _Values(
            absent=self.absent and other.absent,
            only=frozenset.intersection(*sets) if sets else None,
            never=self.never | other.never,
        )

    @property
    def possible(self) -> bool:
        return self.absent or self.only is None or bool(self.only - self.never)


_ANY = _Values()
_NONE: frozenset[str] = frozenset()


def _values(selector: Selector) -> dict[str, _Values]:
    found = {key: _Values(absent=False, only=frozenset({value})) for key, value in selector.match_labels.items()}
    for requirement in selector.match_expressions:
        found[requirement.key] = found.get(requirement.key, _ANY).and_(_allowed(requirement))
    return found


def _allowed(requirement: Requirement) -> _Values:
    values = frozenset(requirement.values)
    match requirement.operator:
        case "In":
            return _Values(absent=False, only=values)
        case "NotIn":
            return _Values(never=values)
        case "Exists":
            return _Values(absent=False)
        case "DoesNotExist":
            return _Values(only=_NONE)


def _meet(spoken: Mapping[str, _Values], other: Mapping[str, _Values]) -> bool:
    """Whether a node with the labels of ``spoken`` and no other is meant by both."""
    for key, values in other.items():
        if not (values.and_(spoken[key]).possible if key in spoken else values.absent):
            return False
    return all(values.possible for key, values in spoken.items() if key not in other)
