"""Batch work: one process that would eat a whole CPU."""

from __future__ import annotations


def main() -> None:
    """Work without end."""
    while True:
        sum(range(1000))


if __name__ == "__main__":
    main()
