"""The fingerprint of a set of pods."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.numa.reservations import pod_fingerprint

NAMES = st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), max_size=6)


def test_no_pods_have_a_fingerprint_too() -> None:
    assert pod_fingerprint([]) == "pfp0v001ef46db3751d8e999"


def test_the_same_pod_twice_counts_twice() -> None:
    assert pod_fingerprint([("a", "b")]) != pod_fingerprint([("a", "b")] * 2)


def test_namespace_and_name_are_not_one_text() -> None:
    assert pod_fingerprint([("a", "bc")]) != pod_fingerprint([("ab", "c")])


@given(NAMES, st.randoms(use_true_random=False))
def test_the_order_of_pods_decides_nothing(pods: list[tuple[str, str]], random) -> None:
    shuffled = pods.copy()
    random.shuffle(shuffled)

    assert pod_fingerprint(shuffled) == pod_fingerprint(pods)
    assert len(pod_fingerprint(pods)) == 24
