"""What the agent reads of containers' CPU: on trees of plain files as kernels write them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.kernel import ContainerCpu
from slacktide.schemas.inventory import Container, Pod, Resources
from slacktide.schemas.sample import Missing

SECOND_NS = 1_000_000_000
UID, MAIN, LOG = "6a0e-11aa", "a1" * 32, "b2" * 32
POD = f"kubepods/burstable/pod{UID}"
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


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def tree(tmp_path, request) -> Tree:
    return Tree(tmp_path, request.param)


class Looker:
    """Looks once a second."""

    def __init__(self, kernel: CgroupKernel) -> None:
        self._kernel = kernel
        self._now_ns = 0
        self.spare: set[str] = set()

    def look(self, *pods: Pod) -> list[ContainerCpu]:
        self._now_ns += SECOND_NS
        self._kernel.read(self._now_ns)
        look = self._kernel.containers(pods, self._now_ns, self.spare)
        self.missing = look.missing
        return look.containers


@pytest.fixture
def looker(tree, tmp_path):
    (tmp_path / "proc").mkdir()
    kernel = CgroupKernel(tree.mount, tmp_path / "proc", None, tmp_path)
    yield Looker(kernel)
    kernel.close()


def test_quotas_use_and_throttled_periods_since_the_look_before(tree, looker) -> None:
    tree.quota(POD, 150_000)
    tree.quota(f"{POD}/{MAIN}", 50_000)
    tree.counts(f"{POD}/{MAIN}", 1_000, 20, 5)
    [first] = looker.look(pod())
    tree.counts(f"{POD}/{MAIN}", 1_400, 30, 9)
    [second] = looker.look(pod())

    assert first == ContainerCpu(pod=UID, container="main", quota_us=50_000, pod_quota_us=150_000)
    assert (second.used_milli, second.periods, second.throttled_periods) == (400, 10, 4)
    assert looker.missing == []


def test_a_calm_pod_is_spared_until_it_stirs_and_every_tenth_look_is_whole(tree, looker) -> None:
    """Of it only this is read: whether it was throttled."""
    tree.quota(f"{POD}/{MAIN}", 50_000)
    looker.spare = {UID}
    seen = [looker.look(pod()) for _ in range(13)]
    assert [len(look) for look in seen] == [1, 1, 1] + 9 * [0] + [1]
    looker.look(pod())
    for group in (POD, f"{POD}/{MAIN}"):
        tree.counts(group, 900, 10, 1)
    [stirred] = looker.look(pod())

    assert (stirred.used_milli, stirred.throttled_periods) == (450, 1), "since it was read before, two seconds ago"


def test_a_pod_that_holds_more_than_its_limit_is_read_each_time(tree, looker) -> None:
    looker.spare = {UID}
    tree.quota(f"{POD}/{MAIN}", 60_000)

    assert [len(looker.look(pod())) for _ in range(6)] == 6 * [1]


def test_quotas_are_told_per_100_ms_and_none_as_minus_one(tree, looker) -> None:
    tree.quota(f"{POD}/{MAIN}", 5_000, 10_000)
    [main, log] = looker.look(pod(main=MAIN, log=LOG))

    assert (main.container, main.quota_us, main.pod_quota_us) == ("main", 50_000, -1)
    assert (log.container, log.quota_us) == ("log", -1)


def test_who_has_no_limit_no_id_or_no_group_is_left_out(tree, looker) -> None:
    unlimited = Container(name="log", id=LOG)
    both = Pod(
        uid=UID, namespace="n", name="n", containers=[*pod(main=MAIN, new="", gone="c3" * 32).containers, unlimited]
    )

    assert [one.container for one in looker.look(both, pod("another"))] == ["main"]
    assert looker.missing == []


def test_a_container_that_started_anew_has_done_nothing_yet(tree, looker) -> None:
    tree.counts(f"{POD}/{LOG}", 9_000, 90, 9)
    looker.look(pod(main=MAIN))
    [anew] = looker.look(pod(main=LOG))

    assert (anew.used_milli, anew.periods) == (None, None)


def test_a_container_that_ends_is_no_trouble_and_a_wrong_file_is(tree, looker) -> None:
    both = pod(main=MAIN, log=LOG)
    looker.look(both)
    for root in ("cpu", "cpuacct") if tree.version == 1 else (".",):
        shutil.rmtree(tree.mount / root / POD / MAIN)
    assert [one.container for one in looker.look(both)] == ["log"]
    assert looker.missing == []
    tree.write(tree.quota_file(f"{POD}/{LOG}"), "many\n")

    assert looker.look(both) == []
    [missing] = looker.missing
    assert missing.what == tree.quota_file(f"{POD}/{LOG}")
    assert missing.why.startswith("malformed: ")


def test_without_its_pods_quota_a_container_is_not_told(tree, looker) -> None:
    (tree.mount / tree.quota_file(POD)).unlink()

    assert looker.look(pod()) == []
    assert looker.missing == [Missing(what=tree.quota_file(POD), why="ENOENT (No such file or directory)")]
