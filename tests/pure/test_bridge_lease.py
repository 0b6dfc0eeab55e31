"""The lease of the bridge: one leads at a time, and no two terms share a number."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.cluster.bridge.election import (
    TIMING,
    LeaseSpec,
    Seen,
    epoch_of,
    gained,
    is_held,
    micro_time,
    released,
    renewed,
    seen,
)

TIMES = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 5), st.booleans()), max_size=60)


@given(TIMES)
def test_however_replicas_look_no_two_lead_at_once_and_terms_are_numbered_upwards(looks: list) -> None:
    """Each look renews, gains or gives up; one that did not renew within its deadline leads no more."""
    spec: LeaseSpec | None = None
    known: dict[str, Seen] = {}
    renewed_s: dict[str, float] = {}
    terms: list[int] = []
    now_s = 0.0
    for who, pause_s, alive in looks:
        now_s += pause_s
        if not alive:
            continue
        leads = who in renewed_s and now_s < renewed_s[who] + TIMING.renew_deadline_s
        if spec is not None:
            known[who] = seen(known.get(who), spec, now_s)
        if leads and spec is not None and spec.holder_identity == who:
            spec = renewed(spec, round(now_s * 1_000), spec.lease_transitions)
            renewed_s[who] = now_s
        elif spec is None or not is_held(known[who], who, now_s):
            spec = gained(spec, who, round(now_s * 1_000), TIMING.duration_s)
            terms.append(spec.lease_transitions)
            renewed_s = {one: at_s for one, at_s in renewed_s.items() if one != who} | {who: now_s}
        leaders = [one for one, at_s in renewed_s.items() if now_s < at_s + TIMING.renew_deadline_s]
        assert len(leaders) <= 1
    assert terms == sorted(set(terms))


def test_a_lease_that_was_given_back_is_free_at_once() -> None:
    held = gained(None, "a", 0, 15)
    at_once = Seen(spec=released(held, 0), at_s=0)
    assert is_held(Seen(spec=held, at_s=0), "b", 14.9)
    assert not is_held(Seen(spec=held, at_s=0), "b", 15)
    assert not is_held(at_once, "b", 0)


def test_a_term_is_above_all_that_the_log_has_seen() -> None:
    assert epoch_of(0, 0) == 1, "above a writer without Kubernetes"
    assert epoch_of(7, 7) == 8
    assert epoch_of(0, 12) == 13, "the lease was deleted"


def test_times_are_kubernetes_micro_times() -> None:
    assert micro_time(1_700_000_000_123) == "2023-11-14T22:13:20.123000Z"
