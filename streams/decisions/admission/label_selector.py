"""Parses label selectors, or rejects them with a reason.

Reading: kubernetes v1.31, apimachinery/pkg/apis/meta/v1/helpers.go (LabelSelectorAsSelector),
pkg/labels/selector.go (NewRequirement), pkg/util/validation/validation.go.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from slacktide.schemas.policy.selector import Operator, Requirement, Selector

LABEL_LENGTH_MAX = 63
PREFIX_LENGTH_MAX = 253
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_OPERATORS: tuple[Operator, ...] = get_args(Operator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A requirement on one label, before validation: the operator may be any text."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidSelector:
    """A selector that Kubernetes rejects. It matches nothing."""

    why: str


def selector_of(match_labels: Mapping[str, str], expressions: Iterable[Expression]) -> Selector | InvalidSelector:
    """Parse a selector. Without labels and expressions it matches everything."""
    requirements: list[Requirement] = []
    for key, value in match_labels.items():
        if flaw := _label_flaw(key, (value,)):
            return InvalidSelector(why=flaw)
    for expression in expressions:
        operator = next((known for known in _OPERATORS if known == expression.operator), None)
        if operator is None:
            return InvalidSelector(why=f"operator {expression.operator!r} is none of {', '.join(_OPERATORS)}")
        if operator in ("In", "NotIn") and not expression.values:
            return InvalidSelector(why=f"{operator} of {expression.key!r} needs values")
        if operator not in ("In", "NotIn") and expression.values:
            return InvalidSelector(why=f"{operator} of {expression.key!r} takes no values")
        if flaw := _label_flaw(expression.key, expression.values):
            return InvalidSelector(why=flaw)
        requirements.append(Requirement(key=expression.key, operator=operator, values=expression.values))
    return Selector(match_labels=dict(match_labels), match_expressions=tuple(requirements))


def is_empty(selector: Selector) -> bool:
    """Return whether the selector has no requirements and so matches everything."""
    return not selector.match_labels and not selector.match_expressions


def _label_flaw(key: str, values: Iterable[str]) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > PREFIX_LENGTH_MAX or not _DOMAIN.fullmatch(prefix)):
        return f"{key!r}: {prefix!r} is not a DNS subdomain"
    if not _is_name(name):
        return f"{key!r} is not a label's key"
    wrong = next((value for value in values if value and not _is_name(value)), None)
    return "" if wrong is None else f"{wrong!r} is not a value that label {key!r} can have"


def _is_name(text: str) -> bool:
    return len(text) <= LABEL_LENGTH_MAX and _NAME.fullmatch(text) is not None
