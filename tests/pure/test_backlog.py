"""Samples that wait for a log that is away: in order, bounded in number and bytes, counted where they are given up."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.outbox import BACKLOG_BYTES_MAX, BACKLOG_SAMPLES_MAX, Backlog
from slacktide.schemas.sample import PodUse
from slacktide.schemas.sample_columns_codec import to_sample
from slacktide.schemas.topics import BACKFILL
from slacktide.streams.records import Out
from testbed.samples import sample


def waiting(backlog: Backlog) -> list[int]:
    return seqs(backlog.some(len(backlog)))


def seqs(outs: Sequence[Out]) -> list[int]:
    """Each names its pods itself."""
    return [to_sample(out.value, lambda _: None).seq for out in outs]


def test_it_goes_to_the_topic_of_history_under_the_nodes_key() -> None:
    backlog = Backlog()
    backlog.add(sample(1))

    [out] = backlog.some(5)
    assert (out.topic, out.key) == (BACKFILL.name, b"node-1")


def test_of_a_long_outage_the_last_ten_minutes_are_kept() -> None:
    backlog = Backlog()
    given_up = [backlog.add(sample(seq)) for seq in range(1, BACKLOG_SAMPLES_MAX + 4)]

    assert waiting(backlog) == list(range(4, BACKLOG_SAMPLES_MAX + 4))
    assert sum(given_up) == 3


def test_samples_of_very_many_pods_are_bounded_in_bytes() -> None:
    use = [PodUse(uid=f"pod-{number:032}", cpu_milli=1, mem_bytes=1) for number in range(2_000)]
    backlog = Backlog()
    given_up = sum(backlog.add(sample(seq, pod_use=use)) for seq in range(1, 61))

    kept = backlog.some(60)
    assert sum(len(out.value or b"") for out in kept) <= BACKLOG_BYTES_MAX
    assert given_up == 60 - len(kept) > 0
    assert waiting(backlog)[-1] == 60


@given(st.lists(st.one_of(st.integers(1, 50), st.none()), max_size=80))
def test_what_is_sent_is_the_oldest_and_each_once_whenever_a_failed_one_comes_back(steps: list[int | None]) -> None:
    """A number: a sample of that seq is kept. None: a few are sent."""
    backlog, kept = Backlog(), set[int]()
    for step in steps:
        if step is None:
            batch = backlog.some(3)
            expected = sorted(kept)[:3]
            assert seqs(batch) == expected
            backlog.sent(batch)
            kept -= set(expected)
        elif step not in kept:
            assert backlog.add(sample(step)) == 0
            kept.add(step)

    assert waiting(backlog) == sorted(kept)
