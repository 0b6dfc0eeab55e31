"""An agent on a bench, told as a story: steps in a line of text, and after each what was reported and what changed."""

from operator import attrgetter
from pathlib import Path
from typing import Protocol

import pytest
import yaml

from slacktide.agents.node.interfaces import Spool
from slacktide.schemas.outcome import NodeOutcome
from testbed.lone_agent import WALL_MS

FOLDER = Path(__file__).parents[1] / "pure/stories"


def each_story(name: str) -> pytest.MarkDecorator:
    """A test of each story in a file: what the bench is given, and the steps."""
    found = yaml.load((FOLDER / f"{name}.yaml").read_text(), yaml.CSafeLoader)
    rows = [pytest.param(one.get("given", {}), one["steps"], id=fact) for fact, one in found.items()]
    return pytest.mark.parametrize(("given", "steps"), rows)


class Bench(Protocol):
    """Whose methods are the steps of a story. With an agent on it: ``spool``, and ``concerns`` of an outcome."""

    def state(self) -> dict[str, object]:
        """What holds, by name."""


def story(bench: Bench, steps: str) -> str:
    """Take steps such as ``ticks 3; agent.close``: the outcomes that each led to, and what changed with it."""
    lines: list[str] = []
    reported = 0
    before: dict[str, object] = {}
    for step in ["at first", *steps.split("; ")]:
        name, *words = step.split()
        if name != "at":
            attrgetter(name)(bench)(*(int(word) if word.isdecimal() else word for word in words))
        spool: Spool | None = getattr(bench, "spool", None)
        outcomes = [one for _, one in spool.pending(10_000)] if spool else []
        lines.append(step)
        lines += [f"  {told(one)}" for one in outcomes[reported:] if bench.concerns(one)]
        now = bench.state()
        lines += [f"  -> {name}: {value}" for name, value in now.items() if name not in before or before[name] != value]
        reported, before = len(outcomes), now
    return "\n".join(lines)


def told(one: NodeOutcome) -> str:
    """An outcome in a line."""
    whose = f"{one.target} ({one.pod.namespace}/{one.pod.name})" if one.pod else one.target
    at = f"{one.acted_ms - WALL_MS:,} ms (age {one.age_ms:,})"
    parts = [f"{at}: {whose} {one.rule}, {one.origin}: {one.result} {one.bound}".strip()]
    parts += [one.reason] if one.reason else []
    parts += [f"{one.count} times"] if one.count > 1 else []
    parts += [f"{one.knob.knob} {one.knob.before} -> {one.knob.after}"] if one.knob else []
    parts += [f"spent {one.spent.evictions} of epoch {one.spent.epoch}"] if one.spent else []
    if one.after and one.result != "unchanged":
        before = one.before and one.before.be_cfs_quota_us
        parts.append(f"quota {before} -> {one.after.be_cfs_quota_us}, CPUs {one.after.be_cpuset}")
    if one.terms and not one.about_limit and one.result != "refused":
        parts.append(" ".join(f"{name} {value}" for name, value in one.terms.items()))
    return "; ".join(parts)
