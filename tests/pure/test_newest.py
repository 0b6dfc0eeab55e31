"""The place for the newest sample that was not sent: what it carries may not be overtaken."""

from syrupy.assertion import SnapshotAssertion

from slacktide.agents.node.outbox import Newest, Offered
from slacktide.schemas.sample import NodeSample
from testbed.samples import FACTS, PODS, keyframe, sample
from testbed.stories import each_story, story


def offered(taken: NodeSample) -> Offered:
    return Offered(taken, FACTS, PODS)


def whole(taken: NodeSample) -> bool:
    return (taken.facts, taken.pods) == (FACTS, PODS)


class Place:
    """What is put into it by seq, and what is taken out of it."""

    def __init__(self) -> None:
        self.newest, self.taken = Newest(), None
        self.back: Offered | None = None

    def put(self, seq: int, kind: str = "sample") -> None:
        made = {"sample": sample(seq), "keyframe": keyframe(seq), "facts": sample(seq, facts=FACTS)}
        self.back = self.newest.put(offered(made[kind]))

    def take(self) -> None:
        self.taken = self.newest.take()

    def put_back(self) -> None:
        self.back = self.newest.put_back(self.taken)

    def state(self) -> dict[str, object]:
        def shown(one: Offered | None) -> str | None:
            if one is None:
                return None
            kinds = {"keyframe": keyframe(one.sample.seq), "sample": sample(one.sample.seq)}
            kind = [name for name, made in kinds.items() if made == one.sample]
            return f"{'whole ' if whole(one.sample) else ''}{' '.join(kind)} {one.sample.seq}"

        return {"overtaken": shown(self.back), "taken": shown(self.taken)}


@each_story("newest")
def test_what_is_sent(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    assert story(Place(), steps) == snapshot
