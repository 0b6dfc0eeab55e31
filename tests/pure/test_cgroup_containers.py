"""What the agent reads of containers' CPU: on trees of plain files as kernels write them."""

import shutil
from pathlib import Path

import msgspec
import pytest

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.schemas.inventory import Container, Pod, Resources
from testbed.stories import each_story, story

SECOND_NS = 1_000_000_000
UID, MAIN, LOG = "6a0e-11aa", "a1" * 32, "b2" * 32
POD = f"kubepods/burstable/pod{UID}"
GROUPS = {"pod": POD, "main": f"{POD}/{MAIN}", "log": f"{POD}/{LOG}"}
LIMITED = Resources(cpu_milli=500)


def pod(uid: str = UID, **ids: str) -> Pod:
    containers = [Container(name=name, id=id_, limits=LIMITED) for name, id_ in (ids or {"main": MAIN}).items()]
    return Pod(uid=uid, namespace="shop", name="web", kube_qos="Burstable", containers=containers)


class Tree:
    """A node's groups: one pod with two containers."""

    def __init__(self, folder: Path, version: int) -> None:
        self.mount, self.version = folder / "cgroup", version
        if version == 2:
            self.write("cgroup.controllers", "cpu memory\n")
        for group in ("kubepods/besteffort", "kubepods/burstable", POD, f"{POD}/{MAIN}", f"{POD}/{LOG}"):
            self.quota(group, -1)
            self.counts(group, 0, 0, 0)

    def quota(self, group: str, quota_us: int, period_us: int = 100_000) -> None:
        if self.version == 2:
            self.write(f"{group}/cpu.max", f"{'max' if quota_us < 0 else quota_us} {period_us}\n")
        else:
            self.write(f"cpu/{group}/cpu.cfs_quota_us", f"{quota_us}\n")
            self.write(f"cpu/{group}/cpu.cfs_period_us", f"{period_us}\n")

    def counts(self, group: str, used_ms: int, periods: int, throttled: int) -> None:
        counted = f"nr_periods {periods}\nnr_throttled {throttled}\n"
        if self.version == 2:
            self.write(f"{group}/cpu.stat", f"usage_usec {used_ms * 1_000}\n{counted}")
        else:
            self.write(f"cpu/{group}/cpu.stat", counted)
            self.write(f"cpuacct/{group}/cpuacct.usage", f"{used_ms * 1_000_000}\n")

    def write(self, name: str, text: str) -> None:
        (self.mount / name).parent.mkdir(parents=True, exist_ok=True)
        (self.mount / name).write_text(text)

    def quota_file(self, group: str) -> str:
        return f"{group}/cpu.max" if self.version == 2 else f"cpu/{group}/cpu.cfs_quota_us"


class Looker:
    """Looks once a second; groups are ``pod``, ``main`` and ``log``."""

    def __init__(self, folder: Path, version: int) -> None:
        self.tree = Tree(folder, version)
        (folder / "proc").mkdir()
        self.kernel = CgroupKernel(self.tree.mount, folder / "proc", None, folder)
        self.now_ns = 0
        self.spared: set[str] = set()
        self.found: list[object] = []

    def quota(self, group: str, quota_us: int, period_us: int = 100_000) -> None:
        self.tree.quota(GROUPS[group], quota_us, period_us)

    def counts(self, group: str, used_ms: int, periods: int, throttled: int) -> None:
        self.tree.counts(GROUPS[group], used_ms, periods, throttled)

    def look(self, *names: str) -> None:
        """At containers such as ``main``, ``main:log`` (with the id of another), or of no limit: ``log!``."""
        ids = {"main": MAIN, "log": LOG, "gone": "c3" * 32, "": ""}
        limited = {name.partition(":")[0]: ids[name.rpartition(":")[2]] for name in names if name[-1] != "!"}
        unlimited = [Container(name=name[:-1], id=ids[name[:-1]]) for name in names if name[-1] == "!"]
        seen = msgspec.structs.replace(pod(**limited), containers=[*pod(**limited).containers, *unlimited])
        self.now_ns += SECOND_NS
        self.kernel.read(self.now_ns)
        look = self.kernel.containers([seen, pod("another")], self.now_ns, self.spared)
        self.found = [
            f"{one.container}: {one.quota_us} of {one.pod_quota_us} us, "
            f"used {one.used_milli} m, {one.throttled_periods} of {one.periods} periods throttled"
            for one in look.containers
        ] + [f"missing {one.what}: {one.why}" for one in look.missing]

    def looks(self, count: int) -> None:
        """How many containers each of these looks found."""
        found = []
        for _ in range(count):
            self.look("main")
            found.append(len(self.found))
        self.found = [found]

    def spare(self) -> None:
        self.spared = {UID}

    def end(self, group: str) -> None:
        for root in ("cpu", "cpuacct") if self.tree.version == 1 else (".",):
            shutil.rmtree(self.tree.mount / root / GROUPS[group])

    def many(self, group: str) -> None:
        """Its quota is no number."""
        self.tree.write(self.tree.quota_file(GROUPS[group]), "many\n")

    def lose_quota(self, group: str) -> None:
        (self.tree.mount / self.tree.quota_file(GROUPS[group])).unlink()

    def state(self) -> dict[str, object]:
        return {"found": self.found}


@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
@each_story("cgroup_containers")
def test_what_is_read_of_containers(version: int, given: dict, steps: str, tmp_path: Path, snapshot) -> None:
    looker = Looker(tmp_path, version)

    assert story(looker, steps) == snapshot
    looker.kernel.close()
