"""What becomes of a link between two roles."""

import random

from testbed.lan import Lan

SLOW_MS = 200, 600
LOST_PART = 0.3, 1.0
Pair = tuple[str, str]


def partition(lan: Lan, pair: Pair, dice: random.Random) -> str:
    """Cut it in both directions; says so."""
    lan.cut(*pair)
    return "nothing passes"


def one_way_loss(lan: Lan, pair: Pair, dice: random.Random) -> str:
    """Lose all packets in one direction, or a part of them; says which."""
    sender, receiver = dice.sample(pair, 2)
    part = dice.choice([1.0, round(dice.uniform(*LOST_PART), 2)])
    lan.lose(sender, receiver, part)
    return f"{part:.0%} lost from {sender} to {receiver}"


def slow_link(lan: Lan, pair: Pair, dice: random.Random) -> str:
    """Delay all packets; says by how much."""
    delay_ms = dice.randrange(*SLOW_MS)
    lan.slow(*pair, delay_ms)
    return f"{delay_ms} ms each way"


FAULTS = [partition, one_way_loss, slow_link]
