"""Batch work: one process that uses a whole CPU."""

from __future__ import annotations


def main() -> None:
    """Loop forever."""
    while True:
        sum(range(1000))


if __name__ == "__main__":
    main()
