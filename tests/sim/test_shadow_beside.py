"""Workers with a shadow beside them, in worlds where everything goes wrong: nothing else happens than without it."""

from collections.abc import Iterable

import pytest

from sim.world import Parts, World
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import COMMAND, SHADOW_COMMAND
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from slacktide.streams.worker.one_by_one import Shadow
from testbed.rungs import NIGHTLY


class Shadowed(Worker):
    """A worker whose shadow speaks as soon as its answers are made."""

    def __init__(self, name: str, policy: Policy, agreed: list[bool]) -> None:
        super().__init__(name)
        self.shadow = Shadow(name, policy)
        self._agreed = agreed

    def samples(self, records: Iterable[Record], now_ms: int) -> list[Out]:
        """As ever; and where both have one policy, and the sample's is it, too, they must say the same."""
        outs = super().samples(records, now_ms)
        assert self.shadow is not None
        beside = [out for seen in self.shadow.take() for out in self.shadow.decisions(seen, now_ms)]
        real, shadow = _commands(outs, COMMAND.name), _commands(beside, SHADOW_COMMAND.name)
        assert shadow.keys() <= real.keys()
        for key, command in shadow.items():
            assert command.policy_version == self.shadow.policy.version
            if real[key].policy_version == command.policy_version and real[key].reason != "other policy":
                self._agreed.append(real[key] == command)
        return outs


def _commands(outs: list[Out], topic: str) -> dict[tuple[str, str, int, int], NodeCommand]:
    said = [decode(out.value, NodeCommand) for out in outs if out.topic == topic]
    return {(each.node, each.boot_id, each.seq, each.sample.offset if each.sample else -1): each for each in said}


@pytest.mark.parametrize("seed", range(4 if NIGHTLY else 2))
def test_a_shadow_changes_nothing_in_the_world(seed: int) -> None:
    """To the last event; and a shadow of the policy in force agrees on whatever it sees."""
    agreed: list[bool] = []
    alone = World(seed)
    first = alone.policy
    beside = World(seed, Parts(worker=lambda name: Shadowed(name, first, agreed))).run()

    assert beside.trace.fingerprint() == alone.run().trace.fingerprint()
    assert agreed, "it met its own policy"
    assert all(agreed)
