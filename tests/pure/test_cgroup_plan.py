"""The plan of writes against a simulated kernel that refuses what cgroup v1 refuses."""

from pathlib import PurePosixPath

from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from slacktide.agents.node.cgroup.plan import (
    BEST_EFFORT_ITSELF,
    PERIOD_FILE,
    QUOTA_FILE,
    Bandwidth,
    Plan,
    Write,
    plan_own_v1,
    plan_v1,
    plan_v2,
)
from testbed.stories import each_story, story
from testbed.vectors import each_row

BE = BEST_EFFORT_ITSELF
POD, POD_2 = PurePosixPath("pod1"), PurePosixPath("pod2")
CONTAINER = POD / "c1"
PATHS = [BE, POD, POD_2, CONTAINER, POD / "c2", POD_2 / "c3", CONTAINER / "nested"]


class RefusedError(Exception):
    """EINVAL."""


class V1Kernel:
    """Quotas of a tree of groups, by the rules of kernel/sched/core.c (tg_cfs_schedulable_down, cgroup v1)."""

    def __init__(self, held: dict[PurePosixPath, Bandwidth]) -> None:
        self.held = dict(held)
        self.check()

    def write(self, write: Write) -> None:
        before = self.held[write.group]
        number = int(write.text)
        if write.file == PERIOD_FILE:
            after = Bandwidth(before.quota_us, number)
        else:
            assert write.file == QUOTA_FILE
            after = Bandwidth(None if number < 0 else number, before.period_us)
        self.held[write.group] = after
        try:
            self.check()
        except RefusedError:
            self.held[write.group] = before
            raise

    def check(self) -> None:
        for path, now in self.held.items():
            if not 1_000 <= now.period_us <= 1_000_000 or (now.quota_us is not None and now.quota_us < 1_000):
                raise RefusedError(path, now)
            if path.parts and ratio(now) is not None:
                limit = self.effective(path.parent)
                if limit is not None and ratio(now) > limit:
                    raise RefusedError(path, now, limit)

    def effective(self, path: PurePosixPath) -> int | None:
        own = ratio(self.held[path])
        return own if own is not None or not path.parts else self.effective(path.parent)

    def carry_out(self, wanted: Bandwidth, clipped: dict, stop_after: int | None = None) -> dict:
        plan = plan_v1(self.held, wanted, clipped)
        for write in plan.writes[:stop_after]:
            self.write(write)
        return plan.after if stop_after is None else plan.before


def ratio(bandwidth: Bandwidth) -> int | None:
    return None if bandwidth.quota_us is None else (bandwidth.quota_us << 20) // bandwidth.period_us


def at(quota_us: int | None, period_us: int = 100_000) -> Bandwidth:
    return Bandwidth(quota_us, period_us)


periods = st.sampled_from([100_000, 100_000, 100_000, 50_000, 10_000, 1_000, 250_000, 1_000_000])
bandwidths = st.builds(Bandwidth, st.one_of(st.none(), st.integers(1_000, 800_000)), periods)
limits = st.builds(Bandwidth, st.one_of(st.none(), st.integers(1_000, 800_000)), st.just(100_000) | periods)


@st.composite
def kernels(draw: st.DrawFn) -> V1Kernel:
    """Any state that a kernel can be in: what it would refuse is left unlimited."""
    kernel = V1Kernel({path: Bandwidth(None, draw(periods)) for path in PATHS})
    for path in PATHS:
        wanted = draw(bandwidths)
        before = kernel.held[path]
        kernel.held[path] = wanted
        try:
            kernel.check()
        except RefusedError:
            kernel.held[path] = before
    return kernel


@given(kernels(), st.lists(limits, min_size=1, max_size=5))
def test_every_plan_is_accepted_from_any_state_to_any_limit(kernel: V1Kernel, wanted: list[Bandwidth]) -> None:
    own = dict(kernel.held)
    clipped: dict = {}
    for limit in wanted:
        clipped = kernel.carry_out(limit, clipped)

        assert kernel.held[BE] == limit
        for path in PATHS[1:]:
            assert kernel.held[path].within(own[path])
            if all(own[path].within(kernel.held[above]) for above in path.parents):
                assert kernel.held[path] == own[path], "what fits is its own"
    kernel.carry_out(at(None), clipped)

    assert {path: kernel.held[path] for path in PATHS[1:]} == {path: own[path] for path in PATHS[1:]}


@given(kernels(), limits)
def test_after_an_unlimited_group_nothing_is_remembered(kernel: V1Kernel, limit: Bandwidth) -> None:
    clipped = kernel.carry_out(limit, {})

    assert kernel.carry_out(at(None), clipped) == {}


@given(kernels(), limits)
def test_a_cut_stopped_anywhere_has_loosened_nothing(kernel: V1Kernel, limit: Bandwidth) -> None:
    before = {path: kernel.effective(path) for path in PATHS}
    if not limit.within(kernel.held[BE]):
        return
    for write in plan_v1(kernel.held, limit, {}).writes:
        kernel.write(write)
        for path in PATHS:
            now = kernel.effective(path)
            assert before[path] is None or (now is not None and now <= before[path])


@given(kernels(), st.lists(st.tuples(limits, st.integers(0, 12)), min_size=1, max_size=4))
def test_an_agent_that_died_within_a_plan_gives_back_what_was_not_its_own(
    kernel: V1Kernel, attempts: list[tuple[Bandwidth, int]]
) -> None:
    own = dict(kernel.held)
    clipped: dict = {}
    for limit, stop_after in attempts:
        clipped = kernel.carry_out(limit, clipped, stop_after)
    kernel.carry_out(at(None), clipped)

    assert {path: kernel.held[path] for path in PATHS[1:]} == {path: own[path] for path in PATHS[1:]}


@settings(deadline=None)
@given(
    kernels(),
    st.lists(st.tuples(st.sampled_from(PATHS), limits, st.none() | st.integers(0, 6)), min_size=1, max_size=6),
)
def test_own_quotas_and_the_limit_of_all_come_in_any_order_and_what_fits_is_held(
    kernel: V1Kernel, acts: list[tuple[PurePosixPath, Bandwidth, int | None]]
) -> None:
    """Each write is taken; a plan that is cut short is made good by the next one of that group."""
    own, clipped = dict(kernel.held), {}
    for group, asked, stop_after in acts:
        if group == BE:
            clipped = kernel.carry_out(asked, clipped)
            own[BE] = asked
            continue
        wanted = Bandwidth(asked.quota_us, own[group].period_us)
        near = {path: now for path, now in kernel.held.items() if path in group.parents or path.is_relative_to(group)}
        for stop in (0, None) if stop_after is None else (stop_after, None):
            plan = plan_own_v1(near, group, wanted, clipped)
            for write in plan.writes[:stop]:
                kernel.write(write)
            clipped = plan.after if stop is None else plan.before
            near = {path: kernel.held[path] for path in near}
        own[group] = wanted
        if all(wanted.within(kernel.held[above]) for above in group.parents):
            assert kernel.held[group] == wanted
    kernel.carry_out(at(None), clipped)

    for path in PATHS[1:]:
        if all(own[path].within(kernel.held[above]) for above in path.parents):
            assert kernel.held[path] == own[path]


class Run:
    """A kernel of v1 whose groups hold quotas, or a quota and a period; ``.`` is the best-effort group itself."""

    def __init__(self, **held: int | list[int | None] | None) -> None:
        pairs = {PurePosixPath(path): one if isinstance(one, list) else [one] for path, one in held.items()}
        self.kernel = V1Kernel({path: at(*pair) for path, pair in pairs.items()})
        self.remembered: dict = {}
        self.writes: list[Write] = []

    def limit(self, quota_us: int | str) -> None:
        plan = plan_v1(self.kernel.held, at(None if quota_us == "unlimited" else quota_us), self.remembered)
        self.carry_out(plan)

    def own(self, path: str, quota_us: int) -> None:
        self.carry_out(plan_own_v1(self.kernel.held, PurePosixPath(path), at(quota_us), self.remembered))

    def carry_out(self, plan: Plan) -> None:
        for write in plan.writes:
            self.kernel.write(write)
        self.writes, self.remembered = plan.writes, plan.after

    def somebody_sets(self, path: str, quota_us: int) -> None:
        self.kernel.held[PurePosixPath(path)] = at(quota_us)

    def end(self, path: str) -> None:
        del self.kernel.held[PurePosixPath(path)]

    def state(self) -> dict[str, object]:
        held = {str(path): (now.quota_us, now.period_us) for path, now in self.kernel.held.items()}
        writes = [f"{one.group}/{one.file} {one.text}" for one in self.writes]
        return {"held": held, "writes": writes, "remembered": sorted(map(str, self.remembered))}


@each_story("cgroup_plan")
def test_what_is_written(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    assert story(Run(**given), steps) == snapshot


def test_on_v2_what_holds_already_is_not_written() -> None:
    assert plan_v2(at(20_000), at(20_000)) == []


@each_row("wanted", "text")
def test_on_v2_one_file_says_it_all(wanted: Bandwidth, text: str) -> None:
    plan = plan_v2(at(30_000), wanted)

    assert [(write.group, write.file, write.text) for write in plan] == [(BE, "cpu.max", text)]
