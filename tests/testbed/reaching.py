"""What a test reaches, by its fixtures and by what it calls, against the marks that it carries.

A test without the mark of its rung is not skipped where the rung is lacking: it fails there, with an error of Java's.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TypeVar

import pytest

TESTS = Path(__file__).parents[1]
T = TypeVar("T", bound=Callable[..., object])
_NEEDS: dict[object, tuple[str, ...]] = {}


def needs(*marks: str) -> Callable[[T], T]:
    """Of what starts something: who reaches it carries one of these marks. It holds for subclasses, too."""

    def declare(starter: T) -> T:
        _NEEDS[starter] = marks
        return starter

    return declare


def unmarked(item: pytest.Item) -> str:
    """Which mark a test must carry and does not, or ""."""
    has = {mark.name for mark in item.iter_markers()}
    for begin in _begins(item):
        for name, marks in _reached(begin):
            if not has & set(marks):
                return f"it reaches {name} and must carry the mark {' or '.join(marks)}"
    return ""


def _begins(item: pytest.Item) -> Iterator[FunctionType]:
    """The test itself, and its fixtures."""
    found = getattr(item, "_fixtureinfo", None)
    fixtures = [defs[-1].func for defs in found.name2fixturedefs.values() if defs] if found is not None else []
    for each in (getattr(item, "function", None), *fixtures):
        if isinstance(inner := inspect.unwrap(each) if callable(each) else each, FunctionType):
            yield inner


@functools.cache
def _reached(begin: FunctionType) -> list[tuple[str, tuple[str, ...]]]:
    """All that is declared by `needs` and that code of the tests names on its way from here."""
    todo: list[object] = [begin]
    seen: set[object] = set()
    found = []
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        for one in inspect.getmro(here) if isinstance(here, type) else [here]:
            if one in _NEEDS:
                found.append((getattr(here, "__qualname__", str(here)), _NEEDS[one]))
                break
        else:
            todo += _named(here)
    return found


def _named(here: object) -> Iterator[object]:
    """Functions and classes of the tests that its code names."""
    if isinstance(here, type):
        yield from (each for each in vars(here).values() if isinstance(each, FunctionType))
        return
    inner = inspect.unwrap(here) if callable(here) else here
    if not isinstance(inner, FunctionType):
        return
    names = set(_names(inner.__code__))
    for name in names:
        value = inner.__globals__.get(name)
        of_module = [vars(value).get(each) for each in names] if isinstance(value, ModuleType) else [value]
        yield from (each for each in of_module if _is_ours(each))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


@functools.cache
def _of_tests(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and Path(file).is_relative_to(TESTS)


def _is_ours(value: object) -> bool:
    return isinstance(value, type | FunctionType) and _of_tests(value.__module__)
