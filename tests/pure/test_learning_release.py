"""A release: pods of another template. What was learned before counts for little, and its level is not compared."""

import random
from collections.abc import Iterator

import msgspec
import pytest

from slacktide.agents.node.service_times import NodeTimes, PodTimes, service_minutes
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.service import ServiceMinute
from slacktide.streams.learning.fold import ServiceFold
from testbed.service_minutes import DAY_MS, MINUTE_MS, START_MS, folded, minute

NODES = 20


def minutes(slope: float, level: float, cap: float, template: str, first_ms: int) -> Iterator[ServiceMinute]:
    """A day of nodes where a cap holds best-effort work, so that its share hardly varies."""
    dice = random.Random(f"{slope}/{first_ms}")
    for at_ms in range(first_ms, first_ms + DAY_MS, MINUTE_MS):
        for node in range(NODES):
            x = min(1.0, max(0.0, dice.gauss(cap, 0.03)))
            z = dice.gauss(0.3, 0.02)
            one = minute(node=f"node-{node}", at_ms=at_ms, x=x, y=level + slope * x + dice.gauss(0, 0.1), z=z)
            yield msgspec.structs.replace(one, template=template)


@pytest.mark.parametrize("after", [0.7, 1.4, 2.8])
def test_a_slope_is_known_a_day_after_a_release_though_the_cap_moves_with_it(after: float) -> None:
    """Without the template, a higher level at a lower share would look like best-effort work that helps."""
    fold = folded(minutes(1.4, 0.2, 0.3, "one", START_MS))
    cap = 0.3 * 1.4 / after
    fold = folded(minutes(after, 0.4, cap, "two", START_MS + DAY_MS), fold)

    assert fold.profile().slope_permille == pytest.approx(1_000 * after, rel=0.2)
    assert fold.profile().status == "learned"


def test_a_release_keeps_a_slope_until_another_is_known() -> None:
    fold = folded(minutes(1.4, 0.2, 0.3, "one", START_MS))
    before, told = fold.profile(), fold.published
    nodes = (minute(node=f"node-{node}", at_ms=START_MS + DAY_MS, x=0.3, y=2.0) for node in range(NODES))
    for number, one in enumerate(nodes):
        assert fold.take(msgspec.structs.replace(one, template="two"), before.folded_to + 1 + number) == "folded"

    assert fold.slope_out() is None
    assert fold.profile().slope_permille == pytest.approx(before.slope_permille, rel=0.05)
    assert fold.published == told is not None
    assert fold.profile().node_hours < before.node_hours / 2


def test_a_first_minute_after_a_release_in_which_pods_start_up_counts_once() -> None:
    """Caches are cold and best-effort work is low: nothing follows from it for the slope."""
    fold = folded(minutes(1.4, 0.2, 0.3, "one", START_MS))
    cold = (minute(node=f"node-{node}", at_ms=START_MS + DAY_MS, x=0.0, y=2.5, z=0.9) for node in range(NODES))
    for number, one in enumerate(cold):
        fold.take(msgspec.structs.replace(one, template="two"), fold.folded_to + 1 + number)
    fold = folded(minutes(1.4, 0.2, 0.3, "two", START_MS + DAY_MS + MINUTE_MS), fold)

    assert fold.profile().slope_permille == pytest.approx(1_400, rel=0.2)


def test_pods_of_two_templates_are_no_release() -> None:
    fold, last = ServiceFold(), ServiceFold()
    for number in range(600):
        one = minute(at_ms=START_MS + number * MINUTE_MS, x=number % 10 / 20, y=0.2 + number % 10 / 20)
        fold.take(msgspec.structs.replace(one, template="one" if number % 3 else ""), number)
        last.take(msgspec.structs.replace(one, template="one"), number)

    assert fold.profile() == last.profile()


@pytest.mark.parametrize(("templates", "found"), [(["a", "a"], "a"), (["a", "b"], ""), (["", ""], "")])
def test_an_agent_names_the_template_that_all_pods_of_a_service_have(templates: list[str], found: str) -> None:
    pods = [
        Pod(uid=f"uid-{number}", namespace="shop", name=f"web-{number}", owner="web", template=template)
        for number, template in enumerate(templates)
    ]
    capacity = Resources(cpu_milli=4_000)
    times = [
        NodeTimes(
            mono_ns=second * 10**9, be_cpu_us=0, ls_cpu_us=second * 10**5,
            pods={pod.uid: PodTimes(second * 10**5, 0, 0, {}) for pod in pods},
        )
        for second in (0, 60)
    ]  # fmt: skip
    facts = NodeFacts(name="n", capacity=capacity, allocatable=capacity)

    assert [one.template for one in service_minutes(*times, facts, pods, START_MS)] == [found]
