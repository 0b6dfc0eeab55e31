"""By which files ``memory.reclaim`` is decided, and what is written, in a folder that looks like a kernel."""

import errno
import os
from pathlib import Path

import pytest

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.best_effort import CgroupBestEffort
from slacktide.agents.node.cgroup.hierarchy import find
from slacktide.agents.node.cgroup.reclaim import PART_BYTES
from slacktide.deploy.cli.doctor.swap import gather_swap, swap_findings
from slacktide.schemas.errors import CgroupError
from slacktide.streams.decisions.evict.mem_reclaim import MemoryLook, PodMemory

UID, MIB = "6a0e-11aa", 1 << 20
STAT = f"anon {90 * MIB}\ninactive_anon {80 * MIB}\nactive_anon 0\ninactive_file {70 * MIB}\nactive_file 5\n"
MEMINFO = "MemTotal: 1000 kB\nMemFree:  200 kB\nSwapTotal: {total} kB\nSwapFree: {free} kB\n"
PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"


class Tree:
    """A node on cgroup v2 with a best-effort pod, a burstable tier and a guaranteed pod."""

    def __init__(self, folder: Path) -> None:
        self.mount, self.proc = folder / "cgroup", folder / "proc"
        self.pod = self.mount / "kubepods/besteffort" / f"pod{UID}"
        (self.proc / "pressure").mkdir(parents=True)
        for group in (self.pod, self.mount / "kubepods/burstable", self.mount / "kubepods/podls"):
            group.mkdir(parents=True)
        (self.mount / "cgroup.controllers").write_text("cpu memory")
        files = {"memory.stat": STAT, "memory.current": f"{200 * MIB}\n", "memory.swap.max": "max\n",
                 "memory.swap.current": "0\n", "memory.reclaim": ""}  # fmt: skip
        for name, text in files.items():
            (self.pod / name).write_text(text)
        (self.mount / "kubepods/besteffort/memory.reclaim").touch()
        self.swap(total=0, free=0)
        self.stalls(0)

    def swap(self, *, total: int, free: int) -> None:
        (self.proc / "meminfo").write_text(MEMINFO.format(total=total, free=free))

    def stalls(self, us: int) -> None:
        for group in ("burstable", "podls"):
            for kind in ("memory", "io"):
                (self.mount / "kubepods" / group / f"{kind}.pressure").write_text(PSI.format(some=us, full=0))
        (self.proc / "pressure/io").write_text(PSI.format(some=0, full=us))

    @property
    def pods(self) -> CgroupBestEffort:
        return CgroupBestEffort(find(self.mount, None), self.proc)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_look_has_stalls_since_the_last_one_and_what_the_pod_could_give(tree: Tree) -> None:
    memory = tree.pods.memory
    assert memory.trouble == ""
    assert memory.look([UID, "ls", "gone"], 10**9) == MemoryLook(
        now_ms=1_000,
        span_ms=0,
        free_bytes=200 * 1024,
        pods=[PodMemory(uid=UID, inactive_file_bytes=70 * MIB)],
    )
    tree.stalls(20_000)
    look = memory.look([UID], 3 * 10**9)
    assert look.span_ms == 2_000
    assert look.stalls_permille == {"ls_mem": 20, "ls_io": 20, "io_full": 10}


@pytest.mark.parametrize(
    ("free_mib", "most", "swappable_mib"), [(500, "max", 80), (30, "max", 30), (500, str(20 * MIB), 20), (500, "0", 0)]
)
def test_only_what_the_pod_may_swap_and_has_room_counts(
    tree: Tree, free_mib: int, most: str, swappable_mib: int
) -> None:
    tree.swap(total=10**6, free=free_mib * 1024)
    (tree.pod / "memory.swap.max").write_text(f"{most}\n")
    (pod,) = tree.pods.memory.look([UID], 0).pods
    assert pod.swappable_bytes == swappable_mib * MIB
    for container, own in (("app", "0"), ("sidecar", str(5 * MIB))):
        (tree.pod / container).mkdir()
        (tree.pod / container / "memory.swap.max").write_text(f"{own}\n")
    (pod,) = tree.pods.memory.look([UID], 0).pods
    assert pod.swappable_bytes == min(5, swappable_mib) * MIB, "as a kubelet sets it, on containers"


def test_it_is_asked_in_parts_and_only_while_there_is_time(tree: Tree) -> None:
    memory = tree.pods.memory
    got = memory.reclaim(UID, 2 * PART_BYTES + 5, in_time=lambda: True)
    assert (got.writes, got.tried_bytes, got.freed_bytes) == (3, 2 * PART_BYTES + 5, 2 * PART_BYTES + 5)
    assert (tree.pod / "memory.reclaim").read_text() == "5\n"
    got = memory.reclaim(UID, 2 * PART_BYTES, in_time=lambda: False)
    assert (got.writes, got.tried_bytes) == (1, PART_BYTES)


def test_a_kernel_that_frees_less_ends_the_ask(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def less(fd: int, text: bytes) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink().name == "memory.reclaim":
            (tree.pod / "memory.current").write_text(f"{197 * MIB}\n")
            raise OSError(errno.EAGAIN, "again")
        return write(fd, text)

    monkeypatch.setattr(os, "write", less)
    got = tree.pods.memory.reclaim(UID, 4 * PART_BYTES, in_time=lambda: True)
    assert (got.writes, got.tried_bytes, got.freed_bytes) == (1, PART_BYTES, 3 * MIB)


@pytest.mark.parametrize("uid", ["ls", "gone"])
def test_no_other_pod_is_ever_asked(tree: Tree, uid: str) -> None:
    with pytest.raises(CgroupError):
        tree.pods.memory.reclaim(uid, MIB, in_time=lambda: True)


def test_cgroup_v1_and_older_kernels_cannot(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "v1/cpu/kubepods/besteffort").mkdir(parents=True)
    assert "cgroup v1 has no memory.reclaim" in CgroupBestEffort(find(tmp_path / "v1", None)).memory.trouble
    (tree.mount / "kubepods/besteffort/memory.reclaim").unlink()
    assert "use Linux 5.19 or newer" in tree.pods.memory.trouble


def test_the_line_full_is_read_or_refused() -> None:
    assert parse.full_stall_us(PSI.format(some=1, full=7).encode()) == 7
    for text in (b"", b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n", b"full total=1\n", b"full a b c total=x\n"):
        with pytest.raises(ValueError, match="malformed"):
            parse.full_stall_us(text)


def test_doctor_counts_swap_where_there_is_some(tree: Tree) -> None:
    assert list(swap_findings(*gather_swap(tree.proc))) == []
    tree.swap(total=2 * 1024 * 1024, free=1024 * 1024)
    (finding,) = swap_findings(*gather_swap(tree.proc))
    assert (finding.check, finding.verdict, finding.found) == ("memory.swap", "ok", "2,048 MiB, 1,024 MiB used")
    assert gather_swap(tree.proc / "nowhere") == (0, 0)
