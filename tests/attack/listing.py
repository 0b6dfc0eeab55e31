"""The list of attacks. An attack is one function; dice choose within its class. It returns what else must hold."""

import time
from collections.abc import Callable

from attack.target import Target

Attack = Callable[[Target], Callable[[], None] | None]


ATTACKS: dict[str, Attack] = {}


def attack(made: Attack) -> Attack:
    """Put it into the list."""
    ATTACKS[made.__name__] = made
    return made


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def restart_a_worker(target: Target) -> None:
    """Its successor reads back: what stops a takeover stops every worker, one after another."""
    part = target.dice.choice(target.system.workers)
    part.kill()
    part.start()
    part.wait_ready()
