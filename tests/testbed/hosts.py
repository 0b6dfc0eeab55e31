"""Where a process of a test runs, and how the test does something there: here, or in a network of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _here(work: Callable[[], Any]) -> Any:
    return work()


@dataclass(frozen=True, slots=True)
class Host:
    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """The command that runs a program there."""
    inside: Callable[[Callable[[], Any]], Any] = _here
    """Does something there: connections are made from there."""


HERE = Host()
