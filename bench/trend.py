"""Whether something grows, and how long it was quiet. Pure."""

from collections.abc import Sequence


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line through points (x, y) with the least squares; 0.0 of fewer than two."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    wide = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / wide if wide else 0.0


def missing(numbers: Sequence[int]) -> int:
    """How many whole numbers lack between the smallest and the largest one."""
    return max(numbers) - min(numbers) + 1 - len(set(numbers)) if numbers else 0


def back_at(points: Sequence[tuple[int, int]], level: int, after: int) -> int | None:
    """The first x after ``after`` from which on no y of the points (x, y) is below ``level``; None: there is none."""
    found: int | None = None
    for x, y in points:
        if x > after and y >= level:
            found = x if found is None else found
        elif x > after:
            found = None
    return found
