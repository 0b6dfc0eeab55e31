"""Recorded runs of real processes in real groups: five to which virtual nodes are fitted, and five that check them.

`python -m testbed.real_runs FIRST LAST FILE` records runs, as root on cgroup v1: a minute and a half for each policy.
"""

import gzip
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from kernel.groups import Groups

from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.policy import Policy
from slacktide.streams.analysis.advise.advice import Choice, Tag, advise
from slacktide.streams.records import Record
from testbed.colocated import GRACE_S, LINE_PCT, Loads, Node, foretold, policy, record_of
from testbed.fitted import FITTED, Step
from testbed.plants import Behaviour, RealPlant, VirtualPlant

FILE = Path(__file__).with_name("real_runs.jsonl.gz")
FITS, CHECKS = range(5), range(5, 10)
STEPS, SURGE_EACH_S = 45, 60
SIZE = Resources(cpu_milli=600, mem_bytes=320 << 20)
"""Small, so that other work on two CPUs does not show."""
RECORDED = (65, 70)
OTHERS = ((80, 67), (55, 75))


def policies(of_run: int) -> list[tuple[int, int]]:
    """What acts in a run, one after another: of those that check, both sides."""
    other = OTHERS[of_run % 2]
    return [RECORDED, other] if of_run in CHECKS else [RECORDED if of_run % 3 == 0 else other]


def loads(of_run: int) -> Loads:
    """Of a run, whichever policy acts."""
    return Loads.drawn((of_run, 77), STEPS, SURGE_EACH_S)


def record(of_run: int, percents: tuple[int, int]) -> Iterator[Step]:
    groups = Groups(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            plant = RealPlant(groups, Path(folder), GRACE_S)
            node = Node(f"run-{of_run:03}", loads(of_run), policy(*percents), plant, SIZE)
            for step in range(STEPS):
                told = set(plant.ended_ms)
                node.step(step)
                ended = {uid: ms - GRACE_S * 1_000 for uid, ms in plant.ended_ms.items() if uid not in told}
                yield Step(run=of_run, policy=percents, sample=node.newest, wants=node.wants, ended_ms=ended)
                node.decide()
            plant.close()
    finally:
        groups.close()


def recorded() -> list[Step]:
    return [msgspec.json.decode(line, type=Step) for line in gzip.decompress(FILE.read_bytes()).splitlines()]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was not fitted: what was foretold, what virtual nodes came to, and what real processes did."""

    run: int
    choice: Choice
    core_h: float
    evictions: int
    virtual_core_h: float
    virtual_evictions: int


def check(steps: Sequence[Step], of_run: int, behaviour: Behaviour = FITTED) -> Checked:
    """Foretell the other policy from the record of one, and compare with the record of the other."""
    first, other = policies(of_run)
    one, came = ([step for step in steps if (step.run, step.policy) == (of_run, two)] for two in (first, other))
    by = policy(*other)
    tried = foretold(policy(*first), by, records(one))
    virtual = simulated(of_run, by, behaviour)
    return Checked(
        run=of_run,
        choice=advise(tried, [Tag(policy_version=by.version)], LINE_PCT).choices[0],
        core_h=sum(_be_milli_ms(step) for step in came) / 3.6e9,
        evictions=len({uid for step in came for uid in step.sample.evict.dying}),
        virtual_core_h=virtual.used_milli_ms / 3.6e9,
        virtual_evictions=virtual.evicted,
    )


def simulated(of_run: int, by: Policy, behaviour: Behaviour) -> Node:
    """The same run on a virtual node."""
    plant = VirtualPlant(cpus=2, mem_bytes=SIZE.mem_bytes or 0, grace_s=GRACE_S, behaviour=behaviour, seed=(of_run, 77))
    node = Node(f"run-{of_run:03}", loads(of_run), by, plant, SIZE)
    for step in range(STEPS):
        node.step(step)
        node.decide()
    return node


def records(steps: Sequence[Step]) -> Iterator[Record]:
    """As agents sent them."""
    pods: Sequence[Pod] = ()
    for offset, step in enumerate(steps):
        pods = step.sample.pods or pods
        yield msgspec.structs.replace(record_of(step.sample, pods), offset=offset)


def _be_milli_ms(step: Step) -> int:
    used = sum(use.cpu_milli or 0 for use in step.sample.pod_use if use.best_effort_group)
    return used * step.sample.interval_ms


def main() -> None:
    first, last, file = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    with gzip.open(file, "wb") as out:
        for of_run in range(first, last + 1):
            for percents in policies(of_run):
                for step in record(of_run, percents):
                    out.write(msgspec.json.encode(step) + b"\n")
                sys.stderr.write(f"run {of_run}, {percents}: recorded\n")


if __name__ == "__main__":
    main()
