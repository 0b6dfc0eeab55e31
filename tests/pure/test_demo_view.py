"""What the demo shows: the story it takes from the topics, decisions in words, the chart, the screen."""

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group
from rich.text import Text

from slacktide.deploy.demo import screen
from slacktide.deploy.demo.backend import Machine, Served, Used
from slacktide.deploy.demo.conditions import conditions
from slacktide.deploy.demo.conductor import Conductor
from slacktide.deploy.demo.screen import PlainScreen, chart, layout, plain_line
from slacktide.deploy.demo.story import NodeStory, Point, Story, because
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse
from testbed import chains, samples

PLAN = conditions(15)
TERMS = {"ceiling_milli": 1300, "nonbe_pods_milli": 890, "nonbe_hosts_milli": 0, "system_milli": 100,
         "formula_milli": 310, "target_us": 2000, "step_us_max": 20_000}  # fmt: skip
NODES = """NODE  STATE  USED
n     ok     890m 45%
1 node, 0 with a problem or a warning"""


class Standing:
    """A clock that shows two seconds and a half."""

    def mono_ns(self) -> int:
        return 2_500_000_000

    def wall_ms(self) -> int:
        return 2_500


class Still:
    """A backend of one node that never changes."""

    mode, scenario, why, nodes = "real", "cpu", "root, cgroup v1", ("n",)
    machine = Machine(capacity_milli=2000, mem_bytes=1 << 30)


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


def demo_of(story: Story, *, measuring: bool = True) -> Conductor:
    """One that has measured the service alone, and measures under control."""
    demo = Conductor(Still(), story, Standing(), PLAN, publish=lambda _: None, trouble=str)
    for condition, start_s in ((PLAN[0], 0.0), (PLAN[3], 0.5)):
        window = demo.ledger.begin(condition, start_s)
        demo.ledger.receive([Served(start_s + 0.1, 9.0)])
        if condition is PLAN[0]:
            window.used = Used(service_s=1.0, batch_s=0.0)
    demo.condition, demo.stage = PLAN[3], "" if measuring else "settling"
    return demo


def text_of(line) -> str:
    return line.plain.rstrip()


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
    node = story.nodes["n"]

    assert (node.stages_ms(node.last), node.last.age_ms) == ((4, 6), 10)


def test_only_lower_limits_are_cuts_and_only_acts_are_decisions():
    """Raises, refusals and housekeeping are something else."""
    story = story_so_far()
    story.outcome(outcome(1, 30_000, 50_000))
    story.outcome(outcome(2, 50_000, 30_000, origin="guard"))
    story.outcome(outcome(2, 50_000, 50_000, result="refused"))
    story.outcome(outcome(2, 50_000, None, origin="agent"))

    assert [cut.acted_ms for cut in story.cuts] == [2_010]
    assert story.decided(0, 10_000) == ["stream", "guard"]
    assert story.applied == 2


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


points = st.builds(
    Point,
    at_ms=st.just(0), ls_milli=st.integers(0, 3000), be_milli=st.integers(0, 3000), system_milli=st.integers(0, 3000),
    allowance_milli=st.none() | st.integers(0, 5000), reclaimable_milli=st.none() | st.integers(0, 5000),
    condition=st.sampled_from(["alone", "controlled", None]),
)  # fmt: skip


def drawn_of(points: list[Point], width: int, height: int) -> list[Text]:
    story = Story(set())
    story.nodes["n"] = NodeStory()
    story.nodes["n"].points.extend(points)
    return list(chart(demo_of(story), width, height))


@given(st.lists(points, max_size=30), st.integers(1, 40), st.integers(2, 30))
def test_the_chart_always_fits(shown, width, height):
    """Whatever the machine does, each row has as many cells as asked for, and then come conditions and latencies."""
    *drawn, ribbon, latencies = drawn_of(shown, width, height)

    assert len(drawn) == height
    assert {len(row) for row in drawn} == {screen.MARGIN + width}
    assert {len(row) for row in (ribbon, latencies)} == {screen.MARGIN + min(width, len(shown))}


def test_a_column_is_as_high_as_what_is_used():
    """Half a machine of eight rows: two full cells of the service, then of the batch."""
    point = Point(at_ms=0, ls_milli=500, be_milli=500, system_milli=0, allowance_milli=None,
                  reclaimable_milli=None, condition=None)  # fmt: skip
    column = [(row.plain[-1], str(row.spans[-1].style) if row.spans else "") for row in drawn_of([point], 1, 8)[:8]]

    assert column[-4:] == [("█", screen.BE), ("█", screen.BE), ("█", screen.LS), ("█", screen.LS)]
    assert column[1:4] == [(" ", ""), (" ", ""), ("▄", screen.REQUEST)]


@pytest.mark.parametrize(("width", "height"), [(60, 16), (80, 24), (100, 30), (120, 40), (220, 70)])
def test_the_screen_fits_any_terminal(width, height):
    """Never a line more, never a cell more."""
    story = story_so_far()
    story.outcome(outcome(2, 84_000, 31_000))
    console = Console(width=width, height=height, file=io.StringIO())
    console.print(Group(*layout(demo_of(story), width, height, nodes=NODES)))
    lines = console.file.getvalue().splitlines()

    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_the_screen_and_a_plain_line_show_the_same(snapshot):
    """The screen says first which of the two worlds it shows, and why; a line is key-value pairs for scripts."""
    story = story_so_far()
    story.outcome(outcome(2, 84_000, 31_000))
    lines = map(text_of, layout(demo_of(story), 100, 32, nodes=NODES))
    assert "\n".join([*lines, plain_line(demo_of(story))]) == snapshot


def test_the_consoles_address_stands_in_the_view_and_once_in_the_lines(capsys):
    demo, address = demo_of(story_so_far()), "console: http://127.0.0.1:9470"
    plain = PlainScreen()
    plain.show(demo, "", "")
    plain.show(demo, address, "")
    plain.show(demo, address, "")

    assert address in text_of(layout(demo, 118, 36, console=address)[2])
    assert capsys.readouterr().out.count(f"slacktide demo: {address}\n") == 1
