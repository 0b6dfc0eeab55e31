"""The data of one refresh of the view, or one plain line. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slacktide.deploy.demo.chart import Scale
from slacktide.deploy.demo.conditions import Condition, Name
from slacktide.deploy.demo.report import Decided, Reaction
from slacktide.deploy.demo.story import NodeStory, Point, Story


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The state of the demo at one moment."""

    mode: str
    why: str
    """Why the nodes are real or virtual."""
    takes_s: float
    """Approximate duration of the demo."""
    console: str
    """The console's address, or why there is none; "": not yet, or disabled."""
    now_ms: int
    story: Story
    scale: Scale
    condition: Condition | None
    """None: the processes are starting."""
    stage: str
    """The pending step; "" while measuring."""
    left_s: float
    """Seconds left of the condition."""
    done_part: float
    """Progress of the demo, 0 to 1."""
    p99_ms: Mapping[Name, float]
    """The median of the blocks so far, by condition."""
    slowdowns: Mapping[Name, float]
    reaction: Reaction
    decided: Decided
    """During controlled time."""

    @property
    def node(self) -> str:
        """Return the node on the chart."""
        return min(self.story.nodes, default="")

    @property
    def node_story(self) -> NodeStory:
        """Return that node's records; empty before the first sample."""
        return self.story.nodes.get(self.node) or NodeStory()

    @property
    def point(self) -> Point | None:
        """Return that node's newest sample."""
        points = self.node_story.points
        return points[-1] if points else None


def plain_line(frame: Frame) -> str:
    """Format one second as ``key=value`` pairs."""
    condition, point, node = frame.condition, frame.point, frame.node_story
    words: dict[str, object] = {
        "mode": frame.mode,
        "condition": condition.name if condition else "starting",
        "block": condition.block + 1 if condition else 0,
        "stage": "measuring" if condition and not frame.stage else "settling" if condition else "starting",
        "left_s": f"{frame.left_s:.0f}",
    }
    if point is not None:
        limit = point.allowance_milli
        words |= {
            "node": frame.node,
            "capacity_milli": frame.scale.capacity_milli,
            "ls_request_milli": frame.scale.request_milli,
            "ls_milli": point.ls_milli,
            "be_milli": point.be_milli,
            "be_limit_milli": "unlimited" if limit is None else limit,
            "reclaimable_milli": "unknown" if node.reclaimable_milli is None else node.reclaimable_milli,
            "system_milli": point.system_milli,
            "sample_age_ms": max(0, frame.now_ms - point.at_ms),
        }
    if ages := node.ages:
        if ages.sample_to_command is not None:
            words |= {"command_ms": ages.sample_to_command, "applied_ms": ages.command_to_applied}
        words["sample_to_applied_ms"] = ages.sample_to_applied
    p99 = frame.story.p99_ms(frame.now_ms - 1_500)
    words |= {
        "lag": frame.story.lag(),
        "by": node.in_charge or "nobody",
        "p99_ms": "unknown" if p99 is None else f"{p99:.0f}",
    }
    return " ".join(f"{key}={value}" for key, value in words.items())
