"""A trace shared out among processes: what comes of it is what one process says."""

import gzip
import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from slacktide.deploy.cli.replay import jobs
from slacktide.deploy.cli.replay.jobs import Jobs, Plan, ReplayError
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.topics import COMMAND, POLICY
from slacktide.streams.analysis.replay.lines import records_of
from slacktide.streams.records import Record

pytestmark = pytest.mark.exhaustive

GOLDEN = Path(__file__).parents[1] / "replay" / "golden.jsonl.gz"
TIGHT = policy_of(
    Colocation(enable=True),
    ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_pct=20),
)


@pytest.fixture(scope="module")
def trace() -> list[Record]:
    lines = gzip.decompress(GOLDEN.read_bytes()).splitlines(keepends=True)
    return list(records_of(lines[1:], "golden"))


def done(trace: list[Record], count: int, *, other: Policy | None = None, few: int = 100, forks: bool = False):
    plan = Plan(policies=[one for one in trace if one.topic == POLICY.name], since_ms=0, nodes=(), kept=2, other=other)
    shared = Jobs(plan, count, few, forks=forks)
    shared.take([one for one in trace if one.topic != POLICY.name])
    return shared


def forged(trace: list[Record]) -> list[Record]:
    """Each tenth answer says another quota."""
    return [
        replace(one, value=(one.value or b"").replace(b'"be_cfs_quota_us":', b'"be_cfs_quota_us":4'))
        if one.topic == COMMAND.name and at % 10 == 0
        else one
        for at, one in enumerate(trace)
    ]


@pytest.mark.parametrize("forks", [False, True])
def test_three_processes_find_what_one_finds(trace: list[Record], *, forks: bool) -> None:
    for one in (trace, forged(trace)):
        assert done(one, 3, forks=forks).finish() == done(one, 1).finish()
    assert done(forged(trace), 1).finish().different > 2


def test_so_do_they_under_another_policy(trace: list[Record]) -> None:
    alone, shared = done(trace, 1, other=TIGHT).finish(), done(trace, 2, other=TIGHT).finish()

    assert alone == shared
    assert alone.all.other.allowed_core_h < alone.all.recorded.allowed_core_h


def test_a_short_trace_begins_no_process(trace: list[Record]) -> None:
    assert len(trace) < jobs.FEW
    assert done(trace, 2, few=jobs.FEW).finish() == done(trace, 1).finish()


def test_a_process_that_is_killed_is_told(trace: list[Record]) -> None:
    shared = done(trace, 2)
    for job in shared._jobs:
        os.kill(job._process.pid or 0, signal.SIGKILL)

    with pytest.raises(ReplayError, match="exit code -9"):
        shared.finish()
