"""Each attack against a standing system: honest nodes are answered in time, no process ends or grows without bounds.

``SLACKTIDE_SEED=123 make test ARGS=tests/attack/test_attacks.py`` makes the same choices again.
"""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator

import pytest

from attack.attacks import ATTACKS
from attack.faults import seed_of_this_run
from attack.poison import PARTITIONS
from attack.system import System
from attack.target import DEADLINE_MS, Target
from testbed.brokers import KafkaBroker, running
from testbed.history import checks
from testbed.history.published import place_of

pytestmark = [pytest.mark.kafka, pytest.mark.attack, pytest.mark.kcat]
STORIES = {"samples_of_another_node", "a_clock_that_is_wrong"}
OPTIONS = {"agent_options": ["--guard-deadline", str(DEADLINE_MS / 1_000), "--sample-interval", "0.5"]}


class Standing:
    """One system for all attacks: what one leaves behind, the next one finds. After a failure there is a new one."""

    def __init__(self, kafka: KafkaBroker, folders: pytest.TempPathFactory) -> None:
        self._kafka, self._folders = kafka, folders
        self._dice = random.Random(seed_of_this_run())
        self._running = contextlib.ExitStack()
        self._target: Target | None = None

    def target(self) -> Target:
        """The system, started where it does not stand."""
        if self._target is None:
            self._kafka.forget()
            self._kafka.apply_topics(PARTITIONS)
            system = System(self._folders.mktemp("system"), self._kafka.bootstrap, **OPTIONS)
            self._target = Target(self._running.enter_context(system), self._dice)
        return self._target

    def end(self) -> None:
        """It is no more."""
        self._target = None
        self._running.close()


@pytest.fixture(scope="module")
def roomy_kafka() -> Iterator[KafkaBroker]:
    """One with heap for a bomb of 400 MB, which it compresses anew: whether it fits must not depend on what else is."""
    with running(lambda folder: KafkaBroker(folder, java=["-Xmx2g"])) as broker:
        yield broker


@pytest.fixture(scope="module")
def standing(roomy_kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    standing = Standing(roomy_kafka, tmp_path_factory)
    yield standing
    standing.end()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.story] if name in STORIES else []) for name in ATTACKS]
)
def test_nobody_else_notices(standing: Standing, name: str) -> None:
    target = standing.target()
    target.begin()
    try:
        holds = ATTACKS[name](target)
        target.assert_unharmed()
        if holds is not None:
            holds()
    except BaseException:
        standing.end()
        raise


@pytest.mark.story
def test_afterwards_no_invariant_of_honest_nodes_is_broken(
    standing: Standing, record_property: Callable[[str, str], None]
) -> None:
    """Last: all agents end."""
    target = standing.target()
    whole = target.system.history()
    boots = [boot.encode() for boot in target.forged_boots]
    own = [
        record
        for record in whole.records
        if place_of(record) not in target.forged and not any(boot in (record.value or b"") for boot in boots)
    ]
    nodes = frozenset(node.name for node in target.system.nodes)
    history = dataclasses.replace(whole, records=own, nodes=nodes)
    verdicts = checks.judge(history)
    record_property("figures", "; ".join(each.line for each in verdicts))

    assert not checks.broken(verdicts), checks.report(verdicts)
