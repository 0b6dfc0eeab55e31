"""The last release is upgraded to this version, part by part, and rolled back: with best-effort work all the time."""

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from attack.system import System
from testbed import released
from testbed.brokers import KafkaBroker
from testbed.history import checks
from testbed.history.records import History
from testbed.one_machine import eventually
from testbed.parts import SLACKTIDE, Part

pytestmark = [pytest.mark.kafka, pytest.mark.attack, pytest.mark.timeout(480)]

NOW = (SLACKTIDE,)
HELD_S, PARTITIONS = 60.0, 4


def replace(part: Part, program: tuple[str, ...]) -> None:
    """End a part as a rollout does, and start another version in its place."""
    assert part.stop() == 0, part.last_words()
    part.program = program
    part.start()
    part.wait_ready()


def guarded(history: History) -> str:
    """By how many limits the guard decided alone, for the figures of the run."""
    by = Counter(one.origin for outcomes in history.outcomes.values() for one in outcomes if one.about_limit)
    return f"limits by the stream {by['stream']}, by the guard {by['guard']}"


def test_an_upgrade_and_a_rollback_lift_no_limit_and_leave_no_sample_unanswered(
    kafka_broker: KafkaBroker, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    old = released.program(released.LAST, tmp_path)
    told = subprocess.run([*old, "--version"], capture_output=True, text=True, check=True).stdout
    assert released.LAST in told
    kafka_broker.apply_topics(PARTITIONS)  # the first step of an upgrade: the last release has to bear all topics

    system = System(tmp_path, kafka_broker.bootstrap, agent_program=old, worker_program=old)
    with system:
        held = eventually(lambda: all(node.quota_us is not None for node in system.nodes), HELD_S)
        assert held, f"no limit is in force within {HELD_S:g} s\n{system.described()}"
        begun = [len(node.shown) + 1 for node in system.nodes]

        for part in [*system.workers, *system.agents]:
            replace(part, NOW)
            system.wait_quiet()
        for part in [*system.agents, *system.workers]:
            replace(part, old)
            system.wait_quiet()

        looks = [one for node, since in zip(system.nodes, begun, strict=True) for one in node.shown[since:]]
        history = system.history()
    verdicts = checks.judge(history)
    record_property("figures", f"{guarded(history)}; {len(looks)} looks; " + "; ".join(one.line for one in verdicts))

    assert not checks.broken(verdicts), f"{checks.report(verdicts)}\n{system.described()}"
    assert [one for one in looks if one.quota_us is None] == []
