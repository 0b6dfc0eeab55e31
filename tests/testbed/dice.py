"""Random choices by a seed, the same on every machine."""

import random
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Only `random()` gives the same numbers in every version of Python."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, share: float) -> bool:
        return self._random.random() < share

    def share(self) -> float:
        return round(self._random.random(), 6)

    def of(self, *them: T) -> T:
        return them[int(self._random.random() * len(them))]

    def whole(self, least: int, most: int) -> int:
        return least + int(self._random.random() * (most - least + 1))

    def some(self, *them: T, share: float = 0.5) -> list[T]:
        """Each with this chance."""
        return [one for one in them if self.below(share)]
