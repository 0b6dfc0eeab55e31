"""Whatever is wanted and whatever credit comes: steps come in their order and pace, and all are undone."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.evict.holdback import CALM_NS, FREEZE_AFTER_NS, FREEZE_APART_NS, Move, Restraint

UIDS = ["a", "b", "c", "d"]
MOMENT = st.tuples(
    st.integers(100, 3_000).map(lambda ms: ms * 1_000_000), st.lists(st.sampled_from(UIDS), unique=True), st.booleans()
)


@given(st.lists(MOMENT, max_size=40))
def test_nobody_is_frozen_before_little_cpu_was_tried_nor_two_at_once(moments: list) -> None:
    restraint = Restraint()
    now_ns = throttled_ns = 0
    froze_ns = -FREEZE_APART_NS
    for apart_ns, starved, fed in moments:
        now_ns += apart_ns
        moves = restraint.due(starved, fed=fed, now_ns=now_ns)
        for move in moves:
            if move.kind == "throttle":
                throttled_ns = now_ns
            if move.kind == "freeze":
                assert restraint.throttled
                assert now_ns - throttled_ns >= FREEZE_AFTER_NS
                assert now_ns - froze_ns >= FREEZE_APART_NS
                assert move.uid == next(uid for uid in starved if uid not in restraint.frozen)
                froze_ns = now_ns
            restraint.did(move, now_ns)
        if starved:
            assert {move.kind for move in moves} <= {"throttle", "freeze"}
        elif fed:
            assert restraint.undone() == [], "who has credit holds nobody back"


@given(st.lists(MOMENT, max_size=40))
def test_all_is_undone_once_nobody_was_wanted_for_a_while_the_last_step_first(moments: list) -> None:
    restraint = Restraint()
    now_ns = 0
    for apart_ns, starved, fed in moments:
        now_ns += apart_ns
        for move in restraint.due(starved, fed=fed, now_ns=now_ns):
            restraint.did(move, now_ns)
    held = [Move("thaw", uid) for uid in reversed(restraint.frozen)] + [Move("lift")] * restraint.throttled

    assert restraint.due([], fed=False, now_ns=now_ns + CALM_NS) == held
