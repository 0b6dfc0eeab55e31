"""Windows in event time: what is averaged over what, what is late, and how much is kept."""

from itertools import pairwise
from math import ceil, isnan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.schemas.codec import encode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.metric import Use
from slacktide.schemas.sample import NodeSample, NodeUse, PodUse
from slacktide.schemas.window import NodeWindowSegment
from slacktide.streams.columns.rings import FIGURES, LENGTHS_S, PERCENTS, SECONDS, Rings
from slacktide.streams.columns.segments import (
    Completed,
    Minute,
    minutes_of,
    restore,
    segments,
    written_minute,
    written_seconds,
)
from slacktide.streams.columns.series import SLOTS_MAX, slot_ms
from slacktide.streams.columns.windows import Arrival, Averages, Windows, averages_of
from testbed.samples import START_MS, sample
from testbed.scenarios import run, scenarios
from testbed.vectors import each_row


class OneNode:
    """A node's window, in arrays of its own."""

    def __init__(self, window_ms: int = 10_000) -> None:
        self.windows = Windows()
        self.window_ms = window_ms
        self.window = self.windows.window("node-1", window_ms)

    def merge(self, said: NodeSample, listed: list[Pod] | None = None, *, restarted: bool = False) -> bool:
        [merged] = self.windows.merge([Arrival(self.window, said, listed, self.window_ms, restarted)])
        return merged

    def tell(self, at_ms: int, interval_ms: int, cpu_milli: int | None, *pods: PodUse) -> bool:
        return self.merge(said(at_ms, interval_ms, cpu_milli, *pods))

    @property
    def averages(self) -> Averages:
        found = self.windows.averages([self.window])
        return averages_of(self.window, found.values, found.counts[0])

    @property
    def pods(self) -> dict[str, Use]:
        return {
            uid: Use(cpu_milli=round(cpu), mem_bytes=round(mem))
            for uid, (cpu, mem) in zip(self.window.rows, self.averages.pods, strict=True)
            if not isnan(cpu) and not isnan(mem)
        }

    def says(
        self,
        at_ms: int,
        interval_ms: int,
        cpu: int | None,
        *,
        listed: str | None = None,
        anew: bool = False,
        **pods: Any,
    ) -> bool:
        restarted = pods.pop("restarted", False)
        one = said(at_ms, interval_ms, cpu, *(pod(uid, milli) for uid, milli in pods.items()))
        return self.merge(one, None if listed is None else _listed(listed), restarted=restarted)

    def fill(self, at_ms: int, interval_ms: int, cpu: int | None, **pods: int) -> int:
        one = said(at_ms, interval_ms, cpu, *(pod(uid, milli) for uid, milli in pods.items()))
        return self.windows.fill(self.window, one)

    def another(self, node: str = "node-1", window_ms: int = 10_000) -> None:
        """The window of another length, or of a node that has the place of the one that is dropped."""
        self.window_ms = window_ms
        if node != self.window.node:
            self.windows.drop(self.window)
            self.window = self.windows.window(node, window_ms)

    def stands(self) -> dict[str, Any] | None:
        if np.isnan(self.windows.averages([self.window]).values).all():
            return None
        now = self.averages
        return {
            "averages": [now.node.cpu_milli, now.system.cpu_milli, now.system.mem_bytes],
            "covered_ms": now.covered_ms,
            "samples": now.samples,
            "pods": {uid: use.cpu_milli for uid, use in self.pods.items()},
            "spreads": [[covered_ms, figures[0]] for covered_ms, figures in self.spreads()],
        }

    def spreads(self) -> list[tuple[int, list[list[float]]]]:
        return [(one.covered_ms[0], one.figures[0]) for one in self.windows.spreads([self.window])]

    def segments(self) -> list[NodeWindowSegment]:
        last = self.window.watermark_ms // 60_000
        its = [Completed(self.window, number, "b", 1) for number in range(last - 31, last)]
        return [one for one in segments(self.windows, its) if one is not None]

    def minutes(self) -> list[Minute]:
        last = self.window.watermark_ms // 60_000
        return minutes_of(self.windows, self.window, range(last - 31, last + 1))

    def read(self, one: NodeWindowSegment) -> Minute:
        raw = encode(one)
        return written_minute(written_seconds(raw), raw, self.window)

    def restore(self, *minutes: Minute) -> None:
        restore(self.windows, [(self.window, one) for one in minutes])


def said(at_ms: int, interval_ms: int, cpu_milli: int | None, *pods: PodUse) -> NodeSample:
    return sample(
        0,
        observed_ms=START_MS + at_ms,
        interval_ms=interval_ms,
        use=NodeUse(cpu_milli=cpu_milli, mem_bytes=1_000),
        pod_use=list(pods),
    )


def pod(uid: str, cpu_milli: int | None, mem_bytes: int | None = 100) -> PodUse:
    return PodUse(uid=uid, cpu_milli=cpu_milli, mem_bytes=mem_bytes)


def _listed(uids: str) -> list[Pod]:
    return [Pod(uid=uid, namespace="n", name=uid) for uid in uids]


def test_a_long_window_has_no_more_slots_than_a_short_one() -> None:
    """A day is kept in slots of 72 minutes: coarse at its far end, exact in what it sums."""
    node = OneNode(86_400_000)
    for minute in range(1, 3_001):
        node.tell(minute * 60_000, 60_000, minute % 2 * 100)

    assert 86_400_000 * (1 - 1 / SLOTS_MAX) <= node.averages.covered_ms <= 86_400_000
    assert node.averages.node.cpu_milli == 50


def test_many_nodes_grow_the_arrays_and_each_keeps_its_own() -> None:
    windows = Windows()
    nodes = [windows.window(f"n{number}", 10_000) for number in range(300)]
    for second in (1, 2):
        wave = [
            Arrival(window, said(second * 1_000, 1_000, number, pod("p", number)), None, 10_000)
            for number, window in enumerate(nodes)
        ]
        assert all(windows.merge(wave))
    found = windows.averages(nodes)

    assert found.values[::4, 0].tolist() == list(range(300))
    assert found.values[3::4, 0].tolist() == list(range(300))


# Late ones


# A pod come or gone: what is measured and what is listed are read at different times.


# Out, and in again elsewhere


def busy(node: OneNode, seconds: int, begin_s: int = 0) -> None:
    for second in range(begin_s + 1, begin_s + seconds + 1):
        at_ms = second * 1_000 + 300
        uses = [pod("a", 100 + second % 7 * 13, 4_096 * (second % 11)), pod("b", second % 50, 8_192)]
        node.merge(said(at_ms, 1_000, 1_000 + second * 37 % 400, *uses), LISTED)


LISTED = _listed("ab")


@pytest.mark.parametrize("window_s", [10, 100, 300, 1_000])
def test_a_restored_window_gives_the_same(window_s: int) -> None:
    """After the segments come the samples of the minute that was not over."""
    node, other = OneNode(window_s * 1_000), OneNode(window_s * 1_000)
    busy(node, 2_000)
    for one in node.segments():
        other.restore(other.read(one))
    done_s = (other.window.watermark_ms - START_MS) // 1_000
    busy(other, 2_000 - done_s + 1, done_s - 1)

    assert other.spreads() == node.spreads()
    assert other.averages.covered_ms == node.averages.covered_ms
    for uid, use in node.pods.items():
        assert other.pods[uid].cpu_milli == pytest.approx(use.cpu_milli, abs=1)
        assert other.pods[uid].mem_bytes == pytest.approx(use.mem_bytes, rel=1e-5)
    assert other.averages.node.cpu_milli == pytest.approx(node.averages.node.cpu_milli, abs=1)
    assert other.averages.system.cpu_milli == pytest.approx(node.averages.system.cpu_milli, abs=1)


def test_segments_of_many_nodes_are_those_of_each() -> None:
    """Of windows whose slots differ, with unknown figures, gaps, and a node without pods."""
    windows, its = Windows(), []
    for number, window_s in enumerate((300, 300, 10, 1_500, 10, 60)):
        node = OneNode(window_s * 1_000)
        node.windows, node.window = windows, windows.window(f"node-{number}", window_s * 1_000)
        for second in range(1 + number, 200, 1 + number % 2 * 40):
            uses = [pod(f"p{one}", None if second % 9 == one else 10 * second) for one in range(number % 4)]
            node.tell(second * 1_000, 1_000, None if second % 7 == number else second, *uses)
        last = node.window.watermark_ms // 60_000
        its += [Completed(node.window, minute, f"b{number}", number) for minute in range(last - 4, last + 1)]
    together = list(segments(windows, its))

    assert together == [one for each in its for one in segments(windows, [each])]
    assert {one and (one.node, one.seq, len(one.pods)) for one in together} >= {
        None,
        ("node-0", 0, 0),
        ("node-3", 3, 3),
    }
    assert {len(pod.parts) for one in together if one for pod in one.pods} == {0, 4, 20, 60}


def test_a_window_that_lives_already_is_restored_behind_and_twice_is_once() -> None:
    node, other = OneNode(300_000), OneNode(300_000)
    busy(node, 600)
    busy(other, 5, 595)
    for _ in range(2):
        for one in node.segments():
            other.restore(other.read(one))

    assert other.spreads() == node.spreads(), "also in the second of which this one heard a part"
    assert other.averages.covered_ms <= 300_000
    assert abs(other.pods["a"].cpu_milli - node.pods["a"].cpu_milli) <= 3


@pytest.mark.parametrize("window_s", [100, 300])
def test_the_order_in_which_minutes_come_back_makes_no_difference(window_s: int) -> None:
    """The newest first, as who takes over wants them; or all at once."""
    node, one_by_one, at_once = OneNode(window_s * 1_000), OneNode(window_s * 1_000), OneNode(window_s * 1_000)
    busy(node, 500)
    for one in reversed(node.segments()):
        one_by_one.restore(one_by_one.read(one))
    at_once.restore(*(node.read(one) for one in node.segments()))

    assert one_by_one.spreads() == at_once.spreads()
    assert one_by_one.pods == at_once.pods
    assert one_by_one.averages.covered_ms == at_once.averages.covered_ms > 0


def test_pods_come_back_into_slots_of_another_length() -> None:
    """The policy's window was another one when the minutes were said."""
    node, other = OneNode(300_000), OneNode(200_000)
    busy(node, 600)
    for one in node.segments():
        other.restore(other.read(one))

    assert (node.window.slot_ms, other.window.slot_ms) == (15_000, 10_000)
    assert other.averages.covered_ms == 200_000
    same = OneNode(200_000)
    busy(same, (other.window.watermark_ms - START_MS) // 1_000 - 1)
    for uid, use in same.pods.items():
        assert other.pods[uid].cpu_milli == pytest.approx(use.cpu_milli, abs=2)


def test_what_no_window_needs_of_a_segment_is_not_read() -> None:
    """The pods of a minute long past; a bad one within the window is refused."""
    node, other = OneNode(60_000), OneNode(60_000)
    busy(node, 300)
    older, *_, newest = node.segments()
    raw = encode(older).replace(b'"cpu_ms":', b'"cpu_ms":-')
    bad = encode(newest).replace(b'"cpu_ms":', b'"cpu_ms":-')
    other.restore(other.read(newest), written_minute(written_seconds(raw), raw, node.window))

    assert sum(other.spreads()[-1][:1]) == sum(older.covered_ms) + sum(newest.covered_ms)
    with pytest.raises(BadMessageError):
        written_minute(written_seconds(bad), bad, node.window)


@each_row("was", "instead")
def test_a_segment_that_is_no_minute_is_refused(was: str, instead: str) -> None:
    node = OneNode()
    busy(node, 181)
    raw = encode(node.segments()[-1]).replace(was.encode(), instead.encode())

    with pytest.raises(BadMessageError):
        written_minute(written_seconds(raw), raw, node.window)


# Against a plain reference

FIGURE = st.none() | st.integers(0, 100_000)
STEP = st.tuples(
    st.sampled_from([100, 130, 300, 1_000, 1_000, 1_000, 1_001, 2_500, 7_000]),  # interval
    st.sampled_from([0, 0, 0, 0, 1, 900, 4_000, 70_000]),  # not covered before it
    FIGURE,
    st.lists(FIGURE, max_size=3),
)


@given(steps=st.lists(STEP, min_size=1, max_size=40), offset_ms=st.integers(0, 999), window_s=st.integers(1, 400))
def test_windows_say_what_a_plain_reference_says(steps, offset_ms, window_s) -> None:
    """Averages by the millisecond, percentiles by the second; late samples between are nothing."""
    node = OneNode(window_s * 1_000)
    spans: list[tuple[int, int, int | None, dict[str, int | None]]] = []
    at_ms = START_MS + offset_ms
    for interval_ms, gap_ms, cpu_milli, pods_milli in steps:
        at_ms += gap_ms + interval_ms
        uses = [pod(f"p{number}", milli) for number, milli in enumerate(pods_milli)]
        assert node.tell(at_ms - START_MS, interval_ms, cpu_milli, *uses)
        assert not node.tell(at_ms - START_MS - interval_ms, 100, 77, *uses)
        spans.append((at_ms - interval_ms, at_ms, cpu_milli, {use.uid: use.cpu_milli for use in uses}))

    _same_average(node, spans, at_ms)
    _same_percentiles(node, spans, at_ms)


def _same_average(node: OneNode, spans: list, now_ms: int) -> None:
    length_ms = slot_ms(node.window_ms)
    slots = max(1, -(-node.window_ms // length_ms))
    begin_ms = ((now_ms - 1) // length_ms - slots + 1) * length_ms
    own, *_ = node.windows.averages([node.window]).values.tolist()
    wanted = _weighted([(begin, end, cpu) for begin, end, cpu, _ in spans], begin_ms, now_ms, node.window_ms)
    assert own[0] == pytest.approx(wanted, rel=1e-5, nan_ok=True)
    last = spans[-1][3]
    for uid in last:
        since = 1 + max((at for at, span in enumerate(spans) if uid not in span[3]), default=-1)
        mine = [(begin, end, pods[uid]) for begin, end, _, pods in spans[since:]]
        found = node.windows.averages([node.window]).values.tolist()[3 + list(node.window.rows).index(uid)][0]
        assert found == pytest.approx(_weighted(mine, begin_ms, now_ms, node.window_ms), rel=1e-5, nan_ok=True)


def _weighted(spans: list, begin_ms: int, now_ms: int, window_ms: int) -> float:
    """Over the slots; of a sample longer than the window, over the window."""
    pieces = [(cpu, end - max(begin, begin_ms, end - window_ms)) for begin, end, cpu in spans if cpu is not None]
    pieces = [(cpu, weight) for cpu, weight in pieces if weight > 0]
    total = sum(weight for _, weight in pieces)
    return sum(cpu * weight for cpu, weight in pieces) / total if total else float("nan")


def _same_percentiles(node: OneNode, spans: list, now_ms: int) -> None:
    seconds: dict[int, list[tuple[int | None, int]]] = {}
    for begin, end, cpu, _ in spans:
        for second in range(begin // 1_000, (end - 1) // 1_000 + 1):
            weight = min(end, (second + 1) * 1_000) - max(begin, second * 1_000)
            seconds.setdefault(second, []).append((cpu, weight))
    newest = (now_ms - 1) // 1_000
    for length_s, (covered_ms, figures) in zip(LENGTHS_S, node.spreads(), strict=True):
        there = {second: parts for second, parts in seconds.items() if second > newest - length_s}
        assert covered_ms == sum(weight for parts in there.values() for _, weight in parts)
        known = sorted(
            round(sum(cpu * weight for cpu, weight in parts) / sum(weight for _, weight in parts))
            for every in there.values()
            if (parts := [(cpu, weight) for cpu, weight in every if cpu is not None])
        )
        if known:
            ranks = [known[max(0, ceil(percent * len(known) / 100) - 1)] for percent in (50, 90, 95, 99)]
            assert figures[0][1:] == ranks
            assert known[0] <= round(figures[0][0]) <= known[-1]
            assert all(low <= high for low, high in pairwise(figures[0][1:]))
        else:
            assert isnan(figures[0][0])


STEP_MS = st.tuples(
    st.sampled_from([100, 700, 1_000, 1_000, 1_001, 2_000, 5_300, 40_000]),  # interval
    st.sampled_from([0, 0, 0, 0, 250, 3_000, 70_400, 400_000]),  # not covered before it
    st.integers(0, 100_000),  # of the node: of a second of which a part is unknown not all is kept
    st.tuples(FIGURE, FIGURE),
)


@settings(deadline=None)
@given(
    data=st.data(),
    steps=st.lists(STEP_MS, min_size=1, max_size=60),
    window_s=st.integers(1, 1_200),
    offset_ms=st.sampled_from([0, 0, 1, 400, 999]),
)
def test_minutes_taken_back_are_as_if_the_samples_had_been_heard(data, steps, window_s, offset_ms) -> None:
    """By one that hears only the last samples: from an owner's segments, and from whoever heard all before the last."""
    heard, owner, beside, last = [OneNode(window_s * 1_000) for _ in range(4)]
    begin = data.draw(st.integers(0, len(steps)), "the first of the last")
    end = data.draw(st.integers(begin, len(steps)), "the owner's end")
    at_ms = offset_ms
    for number, (interval_ms, gap_ms, cpu_milli, (a, b)) in enumerate(steps):
        at_ms += gap_ms + interval_ms
        for node in (heard, *([owner] if number < end else []), beside if number < begin else last):
            node.tell(at_ms, interval_ms, cpu_milli, pod("a", a), pod("b", b))
    written = [last.read(one) for one in owner.segments()]
    last.restore(*beside.minutes())
    last.restore(*data.draw(st.permutations(written)), *data.draw(st.sampled_from([[], written])))

    if begin < len(steps) or end == len(steps):
        for (covered_ms, figures), (wanted_ms, wanted) in zip(last.spreads(), heard.spreads(), strict=True):
            assert covered_ms == wanted_ms
            np.testing.assert_allclose(figures, wanted, rtol=1e-6, atol=1)
    wanted, found = (node.windows.averages([node.window]) for node in (heard, last))
    told_ms = [min(window_s * 1_000, one.counts[0][0]) for one in (wanted, found)]  # slots may be longer together
    assert told_ms[1] == pytest.approx(told_ms[0], abs=1)
    pods = slice(3, None if begin == end else 3)  # what both heard of a slot is shared out evenly
    for own in (slice(0, 2), pods):
        assert found.values[own] == pytest.approx(wanted.values[own], rel=1e-4, abs=1, nan_ok=True)


@settings(max_examples=4, deadline=None)
@given(st.integers(2, 5_000_000), st.integers(0, 9))
def test_a_full_ring_has_the_percentiles_of_its_sorted_seconds(values: int, seed: int) -> None:
    seconds = np.random.default_rng(seed).integers(0, values, (2, FIGURES, SECONDS)).astype(np.float32)
    rings = Rings(2)
    for second in range(SECONDS):
        at_ms = np.full(2, second * 1_000)
        rings.add(np.arange(2), at_ms, at_ms + 1_000, seconds[:, :, second])
    whole = rings.spreads(np.arange(2))[-1]
    ranks = [ceil(SECONDS * percent / 100) - 1 for percent in PERCENTS]
    assert np.array_equal(np.array(whole.figures)[..., 1:], np.sort(seconds)[..., ranks])


@scenarios("windows")
def test_windows(case: dict[str, Any]) -> None:
    run(case, OneNode)
