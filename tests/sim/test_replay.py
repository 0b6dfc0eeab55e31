"""Whatever happens in a simulated world, its log replayed is equal."""

import pytest
from replay.traces import replayed, world_trace

from sim.trouble import Trouble
from testbed.rungs import NIGHTLY


@pytest.mark.parametrize("seed", range(8 if NIGHTLY else 2))
def test_a_world_replayed_is_equal(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers die and come back, hear of policies late, answer twice; topics are made anew. None is a difference.

    Answers bent on their way are left out: those would be found.
    """
    monkeypatch.setattr(Trouble, "on_its_way", lambda _, out: out)
    result = replayed(world_trace(seed))

    assert [(one.why, one.topic, one.key, one.fields) for one in result.differences] == []
    assert result.commands["equal"] > 100
