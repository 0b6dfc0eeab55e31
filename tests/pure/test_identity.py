"""Boot ids order the starts of an agent, and a state folder has one agent at a time."""

import asyncio
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.state import Identity, InUseError, State, identity_of
from slacktide.schemas.bounds import PODS_MAX
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.policy import DEFAULT
from slacktide.schemas.sample import PressureGate

START_MS = 1_700_000_000_000


def boot(folder: Path, start_ms: int = START_MS) -> str:
    identity = Identity(folder, start_ms=start_ms)
    identity.release()
    return identity.boot_id


def test_each_start_is_above_the_one_before(tmp_path: Path) -> None:
    """The counter decides, whatever the clock says; ids compare as text."""
    boots = [boot(tmp_path, START_MS - 1_000_000 * number) for number in range(12)]

    assert boots == sorted(boots)
    assert len({one.partition("-")[0] for one in boots}) == 12
    assert {len(one) for one in boots} == {12 + 1 + 8}


@pytest.mark.parametrize("content", [b"", b"x", b"-3", b"1 2", b"9" * 13, b"\xff", b"12\n\n"])
def test_lost_counter_is_the_start_time(tmp_path: Path, content: bytes) -> None:
    """A folder that lost its count, or never had one, counts on from the start time in seconds."""
    (tmp_path / "starts").write_bytes(content)

    assert boot(tmp_path).startswith("001700000000-")
    assert boot(tmp_path, 1).startswith("001700000001-")


@given(starts=st.lists(st.booleans(), min_size=2, max_size=8), first_ms=st.integers(START_MS, 2 * START_MS))
def test_order_survives_the_loss_of_the_folder(tmp_path_factory, starts: list[bool], first_ms: int) -> None:
    """With a clock that goes on, and starts not once a second, a lost folder changes no order."""
    folder = tmp_path_factory.mktemp("state")
    boots = []
    for number, lost in enumerate(starts):
        if lost:
            (folder / "starts").unlink(missing_ok=True)
        boots.append(boot(folder, first_ms + 2_000 * number))

    assert [one[:12] for one in boots] == sorted({one[:12] for one in boots})


def test_second_agent_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    """The lock is held for the process' life, and goes with it."""
    folder = tmp_path / "state"
    code = (
        "import sys, pathlib; from slacktide.agents.node.state import Identity;"
        "held = Identity(pathlib.Path(sys.argv[1]), start_ms=0); print(held.boot_id, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline()
        with pytest.raises(SlacktideError, match=f"{folder}: another agent uses this state folder"):
            boot(folder)
        first.kill()
        first.wait()
        assert boot(folder).startswith("000000000001-")


async def test_the_agent_of_another_daemon_set_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As when a node leaves the dry run, and the pod of one DaemonSet starts while the other's stops."""
    caplog.set_level(logging.INFO)
    held = Identity(tmp_path, start_ms=0)
    waiting = asyncio.create_task(identity_of(tmp_path, asyncio.Event(), start_ms=0, wait_s=60))
    while not caplog.messages:  # noqa: ASYNC110 - what is asked is the log
        await asyncio.sleep(0.01)
    held.release()
    its = await waiting
    assert its.boot_id > held.boot_id
    with pytest.raises(InUseError, match="another agent uses this state folder"):
        await identity_of(tmp_path, asyncio.Event(), start_ms=0, wait_s=0.5)
    stopped = asyncio.Event()
    stopped.set()
    with pytest.raises(InUseError):
        await identity_of(tmp_path, stopped, start_ms=0, wait_s=3_600)
    its.release()


def test_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    """A file in the folder's place is named."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SlacktideError, match="not usable as state folder"):
        boot(tmp_path / "file" / "state")


FACTS = NodeFacts(name="n", capacity=Resources(cpu_milli=1), allocatable=Resources())
PODS = [Pod(uid="u", namespace="default", name="p")]


def test_state_is_there_at_the_next_start(tmp_path: Path) -> None:
    """Policy, facts and pods come back as they were."""
    state = State(tmp_path)
    assert (state.policy(), state.inventory(), state.gate()) == (None, None, None)
    state.keep_policy(DEFAULT)
    state.keep_inventory(FACTS, PODS)
    kept = State(tmp_path).inventory()

    assert kept is not None
    assert (kept.facts, kept.pods) == (FACTS, PODS)
    assert State(tmp_path).policy() == DEFAULT


def test_unchanged_state_is_not_written_again(tmp_path: Path) -> None:
    """The same policy each minute costs no write."""
    state = State(tmp_path)
    state.keep_policy(DEFAULT)
    (tmp_path / "policy.json").unlink()
    state.keep_policy(DEFAULT)

    assert not (tmp_path / "policy.json").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b'{"version": 3}'])
def test_state_that_cannot_be_read_is_none(tmp_path: Path, content: bytes) -> None:
    """A broken file is as good as no file."""
    for name in ("policy.json", "inventory.json", "gate.json", "slopes.json"):
        (tmp_path / name).write_bytes(content)
    state = State(tmp_path)

    assert (state.policy(), state.inventory(), state.slopes()) == (None, None, {})


@pytest.mark.parametrize(
    "content", [b'{"slopes":{"shop/web":-1}}', b'{"slopes":{"shop/web":1e9}}', b'{"slopes":{"%s":1}}' % (b"x" * 318)]
)
def test_slopes_that_no_topic_would_have_are_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "slopes.json").write_bytes(content)
    assert State(tmp_path).slopes() == {}


def test_slopes_are_there_at_the_next_start_and_written_only_where_they_changed(tmp_path: Path) -> None:
    state, file = State(tmp_path), tmp_path / "slopes.json"
    state.keep_slopes({})
    assert not file.exists(), "most nodes have none"
    state.keep_slopes({"shop/web": 300, "shop/db": 900})
    assert State(tmp_path).slopes() == {"shop/web": 300, "shop/db": 900}
    following = State(tmp_path)
    assert following.slopes()
    file.unlink()
    following.keep_slopes({"shop/db": 900, "shop/web": 300})
    assert not file.exists()
    state.keep_slopes({"shop/web": 400})
    state.keep_slopes({})
    assert State(tmp_path).slopes() == {}


def test_of_more_slopes_than_pods_the_largest_are_kept(tmp_path: Path) -> None:
    State(tmp_path).keep_slopes({f"shop/{number}": number for number in range(PODS_MAX + 2)})
    kept = State(tmp_path).slopes()
    assert (len(kept), min(kept.values())) == (PODS_MAX, 2)


def test_state_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    """A folder that is gone costs the next start its memory, no more."""
    state = State(tmp_path / "gone")
    state.keep_policy(DEFAULT)

    assert state.policy() is None


def test_what_the_gate_learned_outlives_the_agent(tmp_path: Path) -> None:
    State(tmp_path).keep_gate(PressureGate(base_permille=310, pause_ms=4_000))
    assert State(tmp_path).gate() == PressureGate(base_permille=310, pause_ms=4_000)


def test_what_the_gate_learned_is_written_at_most_each_30_s_and_at_an_orderly_end(tmp_path: Path) -> None:
    """A crash loses half a minute of it; a disk is not written at each look."""
    state, second_ns = State(tmp_path), 1_000_000_000

    def kept() -> int:
        gate = State(tmp_path).gate()
        assert gate is not None
        return gate.base_permille

    state.keep_gate(PressureGate(base_permille=100), 5 * second_ns)
    assert kept() == 100, "the first at once"
    state.keep_gate(PressureGate(base_permille=200), 35 * second_ns - 1)
    assert kept() == 100
    state.keep_gate(PressureGate(base_permille=300), 35 * second_ns)
    assert kept() == 300
    state.keep_gate(PressureGate(base_permille=400))
    assert kept() == 400


def test_what_the_gate_learned_is_written_only_where_it_changed(tmp_path: Path) -> None:
    state, gate = State(tmp_path), PressureGate(base_permille=100)
    state.keep_gate(gate, 0)
    written_ns = (tmp_path / "gate.json").stat().st_mtime_ns
    state.keep_gate(gate, 30_000_000_000)

    assert (tmp_path / "gate.json").stat().st_mtime_ns == written_ns
