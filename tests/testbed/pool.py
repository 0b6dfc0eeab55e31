"""One pool of processes for all tests: files are handed out whole, and what must be alone waits until it is."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from testbed.rungs import COSTLY, LADDER, rung_of

COMPUTING = ("tests/pure/", "tests/sim/", "tests/schemas/", "tests/structure/", "tests/mutation/", "tests/replay/")
"""Where tests stand that wait for nothing: of these a machine of two processors runs two at a time."""
COMPUTERS = 2
CLUSTER = "tests/cluster/test_"
A_NODE = "a node or a stack"
TOGETHER = {
    "this machine's cgroups": ("tests/kernel/", "tests/demo/"),
    # What a node or a stack runs goes on between its tests, and a guest beside it would not come up in time.
    A_NODE: (
        "tests/stack/",
        "tests/cluster/e2e/",
        f"{CLUSTER}real_node",
        f"{CLUSTER}idle_pods",
        "tests/asks/test_armada_4340",
        "tests/cluster/v2/",
        "tests/cluster/numa/",
    ),
    "an API server": tuple(
        f"{CLUSTER}{name}" for name in ("agent", "burst", "doctor", "door", "over", "removal", "susp", "test_bed")
    ),
    "an API server with the manifests": tuple(
        f"{CLUSTER}{name}" for name in ("admission", "manifests", "pod_class", "rights", "webhook_rights")
    ),
    "an API server with a webhook": tuple(
        f"{CLUSTER}{name}" for name in ("evictions", "namespace", "quotas", "webhook")
    ),
}
"""Whose tests run one after the other in one process: they share what there is once, or what takes long to start."""
LONGEST = tuple(
    f"tests/pipeline/test_{name}.py" for name in ("up", "heartbeats", "rebuilding", "large_samples", "explain")
)
"""Files that wait longest: they begin before others of their rung, or all would wait for them in the end."""
LIGHT, NORMAL = 10, 0


class Pool(LoadScopeScheduling):
    """Hands files out in their order, so that waiting tests and computing ones run side by side: ``pytest -n 4``."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # rungs are in order: what is being built is needed last

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forget a unit that has ended: with each test that ends, all that a process still has is counted."""
        scope = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Prefer a unit of the kind of which too few are being run."""
        others = [units for other, units in self.assigned_work.items() if other is not node]
        computing = sum(computes(list(units)[-1]) for units in others if units)
        preferred = (scope for scope in self.workqueue if computes(scope) == (computing < COMPUTERS))
        if (scope := next(preferred, None)) is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def unit(nodeid: str) -> str:
    """With which others a test runs in one process: those of its file, or more."""
    return next((what for what, begins in TOGETHER.items() if nodeid.startswith(begins)), nodeid.partition("::")[0])


UNIT_FIXTURES = ("real_node", "admitting", "applied", "_kafka_cluster")
"""Fixtures of the session of which the tests of another unit have no use, while each costs part of a processor."""


def end_unit_fixtures(item: pytest.Item, following: pytest.Item | None) -> None:
    """After the last test of a unit and rung, end what would otherwise run until all tests have ended."""
    if following is None or (unit(following.nodeid), rung_of(following)) == (unit(item.nodeid), rung_of(item)):
        return
    if not isinstance(item, pytest.Function):
        return  # it runs in a guest, and has no fixtures here
    for name in UNIT_FIXTURES:
        for fixture in item.session._fixturemanager.getfixturedefs(name, item) or ():
            fixture.finish(item._request)  # type: ignore[attr-defined]


def computes(scope: str) -> bool:
    """Whether a file's tests compute all the time."""
    return scope.startswith(COMPUTING)


def weigh(*, light: bool) -> None:
    """Beside other processes, let what only computes wait for them. Only root can put a weight back once it is off."""
    if "PYTEST_XDIST_WORKER" in os.environ and os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, LIGHT if light else NORMAL)


DOOR, ROOM = Path(__file__), Path(__file__).with_name("rungs.py")
"""Files of this checkout that are locked, since they are there."""
HAS_TURN = "SLACKTIDE_HAS_TURN"
_kept = contextlib.ExitStack()
"""The turn of a test that is alone, where the next one of its process is, too."""


def is_alone(item: pytest.Item) -> bool:
    """Whether a test runs while no other does."""
    return item.get_closest_marker("alone") is not None


API = next(at for at, rung in enumerate(LADDER) if rung.marker == "cluster")


def place(item: pytest.Item) -> tuple[int, int, bool, int, bool]:
    """By what tests are ordered: their rung, those that are alone, those that take longest.

    All of a node and of a stack runs in one process, for minutes. It begins before what needs an API server only, or
    all processes would wait for it in the end. What is alone comes last there.
    """
    rung, alone = LADDER.index(rung_of(item)), is_alone(item)
    if unit(item.nodeid) == A_NODE:
        return min(rung, API), 1, alone, rung, False
    return rung, 0 if alone else 2, False, rung, not item.nodeid.startswith(LONGEST)


def is_lost(item: pytest.Item) -> bool:
    """Whether no run has it: `make test` does not import its folder, or CI does not, and it stands on such a rung.

    A file without the usual name is not found by any: a test of its own runs it.
    """
    return item.path.name.startswith("test_") and item.nodeid.startswith(COSTLY if rung_of(item).here else COMPUTING)


@contextlib.contextmanager
def turn(item: pytest.Item, following: pytest.Item | None) -> Iterator[None]:
    """Run a test beside others, or alone once those that run have ended: no other begins before it has.

    Tests that are alone one after the other share a turn: each would wait anew for all processes. Tests that a test
    runs have its turn: one that waits to be alone would wait for it, and it for them.
    """
    if HAS_TURN not in os.environ:
        _kept.enter_context(_locked(alone=is_alone(item)))
    elif os.environ[HAS_TURN] != str(os.getpid()):
        yield
        return
    try:
        yield
    finally:
        if following is None or not (is_alone(item) and is_alone(following) and rung_of(item) is rung_of(following)):
            _kept.close()  # another rung may wait for what is being built


@contextlib.contextmanager
def _locked(*, alone: bool) -> Iterator[None]:
    with DOOR.open() as door, ROOM.open() as room:
        fcntl.flock(door, fcntl.LOCK_EX)  # nobody comes in while one waits to be alone
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.flock(door, fcntl.LOCK_UN)
        os.environ[HAS_TURN] = str(os.getpid())
        try:
            yield
        finally:
            del os.environ[HAS_TURN]
