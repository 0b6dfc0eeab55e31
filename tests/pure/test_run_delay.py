"""How long threads of latency-sensitive pods waited, from a tree of plain files."""

from collections.abc import Mapping
from pathlib import Path

from slacktide.agents.node.cgroup.hierarchy import find
from slacktide.agents.node.run_delay import LISTED_MAX, LISTED_NS, NO_HOST_PID, NO_TIMES, RunDelay, RunDelayReader

MANY = range(1_000, 1_000 + 2 * LISTED_MAX)
MS = 1_000_000


def times(folder: Path, of: Mapping[int, tuple[int, int]]) -> None:
    """What threads have run and waited in all, in ms."""
    for tid, (ran, waited) in of.items():
        (folder / f"proc/{tid}").mkdir(parents=True, exist_ok=True)
        (folder / f"proc/{tid}/schedstat").write_text(f"{ran * MS} {waited * MS} 7\n")


def reader(folder: Path, threads: Mapping[str, list[int]]) -> RunDelayReader:
    """Of these pods' threads."""
    for pod, tids in {"besteffort/podx": [], **threads}.items():
        group = folder / "cgroup/kubepods" / pod
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.threads").write_text("".join(f"{tid}\n" for tid in tids))
    (folder / "cgroup/cgroup.controllers").write_text("cpu\n")
    return RunDelayReader(find(folder / "cgroup", "kubepods"), folder / "proc")


def test_a_look_tells_what_they_ran_and_waited_since_the_one_before(tmp_path: Path) -> None:
    times(tmp_path, {11: (100, 0), 12: (50, 10)})
    its = reader(tmp_path, {"burstable/poda": [11], "podb": [12]})
    assert its.look(0) is None
    times(tmp_path, {11: (140, 20), 12: (60, 40)})
    assert its.look(100 * MS) == RunDelay(ran_us=50_000, waited_us=50_000)
    times(tmp_path, {12: (0, 0)})  # a thread of the same number
    assert its.look(200 * MS) == RunDelay(ran_us=0, waited_us=0)


def test_a_pod_with_many_threads_hides_no_other(tmp_path: Path) -> None:
    times(tmp_path, dict.fromkeys(MANY, (1, 0)) | {12: (50, 0)})
    its = reader(tmp_path, {"burstable/poda": list(MANY), "podguaranteed": [12]})
    its.look(0)
    times(tmp_path, {12: (60, 30)})
    assert its.look(100 * MS) == RunDelay(ran_us=10_000, waited_us=30_000)


def test_without_times_it_says_why(tmp_path: Path) -> None:
    its = reader(tmp_path, {"burstable/poda": [12]})
    assert (its.look(0), its.trouble()) == (None, NO_TIMES), "the kernel has no such file"
    times(tmp_path, {12: (0, 0)})
    assert its.trouble() == NO_TIMES
    times(tmp_path, {12: (5, 0)})
    assert its.trouble() == ""
    reader(tmp_path, {"burstable/poda": [0, 12]})
    assert (its.look(LISTED_NS), its.trouble()) == (None, NO_HOST_PID)
