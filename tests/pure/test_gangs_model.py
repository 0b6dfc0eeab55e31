"""Random gangs, pods, nodes and changes of leadership: what holds of gangs whatever happens."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.agents.cluster.scheduler.gang_group import Standing
from slacktide.streams.decisions.gang.membership import MODE
from testbed.gang_world import NODE_MILLI, Watched

SETTLED_S = 60.0


class Create(NamedTuple):
    gang: str
    pods: int
    least: int
    cpu_milli: int
    mode: str
    gated: bool


class Delete(NamedTuple):
    number: int


class Pass(NamedTuple):
    seconds: float


class Lead(NamedTuple):
    replica: str


class Loner(NamedTuple):
    cpu_milli: int


creates = st.builds(
    Create,
    st.sampled_from("efgh"),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([1_000, 2_000]),
    st.sampled_from(["Strict", "NonStrict"]),
    st.booleans(),
)
steps = st.one_of(
    creates,
    creates,
    st.builds(Delete, st.integers(0, 20)),
    st.builds(Pass, st.sampled_from([0.5, 2.0, 12.0])),
    st.builds(Lead, st.sampled_from("ab")),
    st.builds(Loner, st.sampled_from([1_000, 2_000])),
)


class Stepping(Watched):
    def step(self, step: Create | Delete | Pass | Lead | Loner) -> None:
        match step:
            case Create():
                for _ in range(step.pods):
                    self.pod(
                        f"{step.gang}-{len(self.pods)}-{round(self.clock.now_s * 10)}", step.gang, step.least,
                        cpu=str(step.cpu_milli), gated=step.gated, annotations={MODE: step.mode},
                    )  # fmt: skip
            case Loner():
                self.pod(f"loner-{len(self.pods)}-{round(self.clock.now_s * 10)}", cpu=str(step.cpu_milli), gated=False)
            case Delete():
                if self.pods:
                    self.delete(sorted(self.pods)[step.number % len(self.pods)])
            case Pass():
                self.run(step.seconds)
            case Lead():
                self.lead = step.replica


@settings(max_examples=100)
@given(st.lists(steps, min_size=2, max_size=12), st.integers(1, 3))
def test_no_gang_starts_without_places_for_all_and_none_holds_any_while_it_waits(
    given: list[Create | Delete | Pass | Lead | Loner], nodes: int
) -> None:
    world = Stepping("a", "b", nodes=nodes, batch=NODE_MILLI)
    for step in given:
        world.step(step)
    world.run(SETTLED_S)
    used = world.used()
    for replica in world.replicas.values():
        held = {
            uid
            for uid in replica.view._assumed
            if world.pods.get(uid.removeprefix("uid-"), {"spec": {}})["spec"].get("nodeName") is None
        }
        assert not held, f"{replica.name} still holds {held}"
        for group in replica.answers.gangs._groups.values():
            assert group.plan is None, f"{replica.name}: {group.key} has a plan"
            standing = replica.answers.gangs._registry.standing(group)
            if not isinstance(standing, Standing):
                continue
            free = {node: NODE_MILLI - used[node] for node in world.nodes}
            shapes = {one.member.shape for one in standing.waiting if one.member}
            if standing.needs_plan and len(shapes) == 1:
                asked = standing.waiting[0].asked.pod.requests.batch_cpu_milli or 1
                fits = sum(one // asked for one in free.values())
                assert fits < max(one.needed for one in standing.needs), f"{group.key} fits, and waits: {group.held}"
