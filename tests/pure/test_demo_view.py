"""What the demo shows: the story it takes from the topics, decisions in words, the chart, the screen."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.demo import chart
from slacktide.deploy.demo.chart import Scale
from slacktide.deploy.demo.conditions import conditions
from slacktide.deploy.demo.report import Decided, Reaction, Report, Slowdown, Utilization
from slacktide.deploy.demo.screen import PlainScreen
from slacktide.deploy.demo.story import Point, Story, because
from slacktide.deploy.demo.view import Frame, layout, plain_line
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse
from testbed import chains, samples

SCALE = Scale(capacity_milli=2000, ceiling_milli=1300, request_milli=1000)
TERMS = {"ceiling_milli": 1300, "nonbe_pods_milli": 890, "nonbe_hosts_milli": 0, "system_milli": 100,
         "formula_milli": 310, "target_us": 2000, "step_us_max": 20_000}  # fmt: skip
REPORT = Report(
    mode="real", reaction_ms=Reaction(p50=600, p99=900, n=2, steps=2), decided_by=Decided(stream=3, guard=0),
    utilization=Utilization(ls_alone=None, colocated=None, others=None), ls_p99_ms={"alone": 9.0}, shares={},
    ls_slowdown=Slowdown(uncontrolled=None, weights=None, controlled=None), batch_cpu_seconds=0.0, ls_requests=9,
    applied=0, controlled_seconds=0.0,
)  # fmt: skip


def sample(seq: int, service_milli: int, *, batch_milli: int = 300) -> NodeSample:
    return samples.sample(
        seq,
        "n",
        use=NodeUse(cpu_milli=service_milli + batch_milli + 100),
        pod_use=[PodUse(uid="s", cpu_milli=service_milli), PodUse(uid="b", cpu_milli=batch_milli)],
        limits=Limits(be_cfs_quota_us=30_000),
        observed_ms=seq * 1000,
    )


def outcome(seq: int, before_us: int | None, after_us: int | None, **other) -> NodeOutcome:
    values = {"bound": "target", "terms": TERMS, "age_ms": 10} | other
    limits = {"before": Limits(be_cfs_quota_us=before_us), "after": Limits(be_cfs_quota_us=after_us)}
    return chains.outcome(seq, node="n", observed_ms=seq * 1000, acted_ms=seq * 1000 + 10, **limits, **values)


def answered(seq: int, decided_ms: int) -> NodeCommand:
    return NodeCommand(
        id="c", node="n", boot_id=samples.BOOT, seq=seq, observed_ms=seq * 1000, policy_version="p",
        facts_revision="f", pods_revision="q", answer="set", decided_ms=decided_ms,
    )  # fmt: skip


def story_so_far() -> Story:
    story = Story({"b"})
    story.condition = "controlled"
    for seq, service_milli in ((1, 370), (2, 890)):
        story.sample(sample(seq, service_milli))
    return story


def frame_of(story: Story, **other) -> Frame:
    values = {
        "mode": "real", "why": "root, cgroup v1", "takes_s": 90.0, "console": "", "now_ms": 2_500, "story": story,
        "scale": SCALE,
        "condition": conditions(15)[3], "stage": "", "left_s": 3.0, "done_part": 0.5, "report": REPORT,
    } | other  # fmt: skip
    return Frame(**values)


def test_a_decision_is_told_with_its_arithmetic(snapshot):
    """What moved, what follows, the terms, and what else fixed the result; a lifted limit has no terms."""
    story = story_so_far()
    story.outcome(outcome(2, 84_000, 31_000))
    others = [because(outcome(2, None, 31_000, bound=bound)) for bound in ("stepped", "floored", "disabled", "kept")]
    lifted = because(outcome(2, 31_000, None, bound="disabled", terms={}))
    assert "\n".join([story.lines(5)[0][1], *others, lifted]) == snapshot


def test_the_age_of_each_stage_is_known_in_whatever_order_topics_are_read():
    """The outcome may be read before the command that it came of."""
    story = story_so_far()
    story.outcome(outcome(2, 84_000, 31_000))
    story.command(answered(2, decided_ms=2_004))
    ages = story.nodes["n"].ages

    assert (ages.sample_to_command, ages.command_to_applied, ages.sample_to_applied) == (4, 6, 10)


def test_only_lower_limits_are_cuts_and_only_acts_are_decisions():
    """Raises, refusals and housekeeping are something else."""
    story = story_so_far()
    story.outcome(outcome(1, 30_000, 50_000))
    story.outcome(outcome(2, 50_000, 30_000, origin="guard"))
    story.outcome(outcome(2, 50_000, 50_000, result="refused"))
    story.outcome(outcome(2, 50_000, None, origin="agent"))

    assert [cut.acted_ms for cut in story.cuts] == [2_010]
    assert story.decided(0, 10_000) == {("stream", "applied"): 1, ("guard", "applied"): 1}


def test_what_a_pod_uses_that_has_just_come_is_not_shown_as_the_systems():
    """It has no rate in its first sample; the node's use shows it all the same."""
    story = story_so_far()
    new = sample(3, 400)
    new = msgspec.structs.replace(new, pod_use=[new.pod_use[0], PodUse(uid="b2"), PodUse(uid="b", cpu_milli=0)])
    story.sample(new)
    point = story.nodes["n"].points[-1]

    assert (point.ls_milli, point.be_milli, point.system_milli) == (400, 300, 100)


def test_samples_without_an_answer_are_the_lag():
    """Until the stream has answered them."""
    story = story_so_far()
    story.command(answered(1, 1_004))

    assert story.lag() == 1
    story.command(answered(2, 2_004))
    assert story.lag() == 0


def test_the_p99_of_a_second_is_of_the_requests_that_were_due_in_it():
    """And known again when more of them have been served."""
    story = Story(set())
    story.latencies([(1_500, 5.0)])

    assert story.p99_ms(1_900) == 5.0
    story.latencies([(1_999, 80.0)])
    assert (story.p99_ms(1_000), story.p99_ms(2_000)) == (80.0, None)


points = st.builds(
    Point,
    at_ms=st.just(0), ls_milli=st.integers(0, 3000), be_milli=st.integers(0, 3000), system_milli=st.integers(0, 3000),
    allowance_milli=st.none() | st.integers(0, 5000), reclaimable_milli=st.none() | st.integers(0, 5000),
    condition=st.sampled_from(["alone", "controlled", None]),
)  # fmt: skip


@given(st.lists(points, max_size=30), st.integers(1, 40), st.integers(2, 30))
def test_the_chart_always_fits(shown, width, height):
    """Whatever the machine does, each row has as many cells as asked for."""
    drawn = chart.stack(shown, SCALE, width, height)

    assert len(drawn) == height
    assert all(sum(len(text) for text, _ in row) == width for row in drawn)
    assert sum(len(text) for text, _ in chart.ribbon(shown, width)) == width


def test_a_column_is_as_high_as_what_is_used():
    """Half a machine of eight rows: four full cells of the service, then of the batch."""
    point = Point(at_ms=0, ls_milli=500, be_milli=500, system_milli=0, allowance_milli=None,
                  reclaimable_milli=None, condition=None)  # fmt: skip
    column = [row[0] for row in chart.stack([point], Scale(capacity_milli=2000, ceiling_milli=1999, request_milli=1998),
                                            1, 8)]  # fmt: skip

    assert [style for _, style in column][-4:] == [chart.BE, chart.BE, chart.LS, chart.LS]
    assert [text for text, _ in column][1:4] == [" ", " ", " "]


@pytest.mark.parametrize(("width", "height"), [(60, 16), (80, 24), (100, 30), (120, 40), (220, 70)])
def test_the_screen_fits_any_terminal(width, height):
    """Never a line more, never a cell more or less."""
    story = story_so_far()
    story.outcome(outcome(2, 84_000, 31_000))
    lines = layout(frame_of(story), width, height)

    assert len(lines) <= height
    assert {sum(len(text) for text, _ in line) for line in lines} == {width}


def test_the_screen_and_a_plain_line_show_the_same(snapshot):
    """The screen says first which of the two worlds it shows, and why; a line is key-value pairs for scripts."""
    story = story_so_far()
    story.outcome(outcome(2, 84_000, 31_000))
    screen = ["".join(text for text, _ in line).rstrip() for line in layout(frame_of(story), 100, 30)]
    assert "\n".join([*screen, plain_line(frame_of(story))]) == snapshot


def test_the_consoles_address_stands_in_the_view_and_once_in_the_lines(capsys):
    frame = frame_of(story_so_far(), console="console: http://127.0.0.1:9470")
    screen = PlainScreen()
    screen.show(frame_of(story_so_far()))
    screen.show(frame)
    screen.show(frame)

    assert "console: http://127.0.0.1:9470" in "".join(text for text, _ in layout(frame, 118, 36)[2])
    assert capsys.readouterr().out.count("slacktide demo: console: http://127.0.0.1:9470\n") == 1
