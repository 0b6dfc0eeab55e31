"""The place for the newest sample that was not sent: what it carries may not be overtaken."""

from __future__ import annotations

from slacktide.agents.node.outbox import Newest, Offered
from slacktide.schemas.sample import NodeSample
from testbed.samples import FACTS, PODS, keyframe, sample


def offered(taken: NodeSample) -> Offered:
    return Offered(taken, FACTS, PODS)


def whole(taken: NodeSample) -> bool:
    return (taken.facts, taken.pods) == (FACTS, PODS)


def test_what_overtakes_a_keyframe_is_one() -> None:
    newest = Newest()

    assert newest.put(offered(keyframe(1))) is None
    assert newest.put(offered(sample(2))) == offered(keyframe(1))
    assert newest.put(offered(sample(3))) == offered(sample(2))
    assert newest.take().sample == keyframe(3)


def test_what_overtakes_changed_facts_carries_them() -> None:
    newest = Newest()
    newest.put(offered(sample(1, facts=FACTS)))
    newest.put(offered(sample(2)))

    assert whole(newest.take().sample)


def test_a_keyframe_that_was_not_sent_and_is_overtaken_is_made_up_for() -> None:
    newest = Newest()
    newest.put(offered(keyframe(1)))
    unsent = newest.take()
    newest.put(offered(sample(2)))

    assert newest.put_back(unsent) is unsent
    assert whole(newest.take().sample)


def test_a_keyframe_that_was_not_sent_goes_again() -> None:
    newest = Newest()
    newest.put(offered(keyframe(1)))

    assert newest.put_back(newest.take()) is None
    assert newest.take().sample == keyframe(1)


def test_only_one_makes_up_for_it() -> None:
    newest = Newest()
    newest.put(offered(keyframe(1)))
    newest.put(offered(sample(2)))
    newest.take()
    newest.put(offered(sample(3)))

    assert newest.take().sample == sample(3)


def test_after_a_new_connection_the_next_sample_is_a_keyframe() -> None:
    """Whoever reads at its other end may have lost all that was there."""
    newest = Newest()
    newest.put(offered(sample(1)))
    newest.owe_keyframe()

    assert newest.take().sample == keyframe(1)
    newest.put(offered(sample(2)))
    assert newest.take().sample == sample(2)
