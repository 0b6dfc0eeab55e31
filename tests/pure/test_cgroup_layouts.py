"""Every layout that a kubelet and a container runtime make: which groups are pods, and which are their containers."""

from itertools import product
from pathlib import Path, PurePosixPath

import pytest

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.container_cpu import container_groups
from slacktide.schemas.inventory import Container, Pod

MAIN, SIDECAR, SANDBOX = "a1" * 32, "b2" * 32, "c3" * 32
TIERS = {
    "0f0f-1111": "besteffort",
    "1a1a-2222": "burstable",
    "2b2b-3333": "",
    "9c9c9c9c9c9c9c9c": "burstable",  # a static pod: its uid is a hash
}
PARENTS = {
    ("cgroupfs", "plain"): "kubepods",
    ("systemd", "plain"): "kubepods.slice",
    ("cgroupfs", "kind"): "kubelet/kubepods",
    ("systemd", "kind"): "kubelet.slice/kubelet-kubepods.slice",
    ("cgroupfs", "kind from its host"): f"docker/{'d4' * 32}/kubelet/kubepods",
    ("systemd", "kind from its host"): f"system.slice/docker-{'d4' * 32}.scope/kubelet.slice/kubelet-kubepods.slice",
}
CONTAINER = {
    ("cgroupfs", "containerd"): "{}",
    ("cgroupfs", "CRI-O"): "crio-{}",
    ("cgroupfs", "Docker"): "{}",
    ("systemd", "containerd"): "cri-containerd-{}.scope",
    ("systemd", "CRI-O"): "crio-{}.scope",
    ("systemd", "Docker"): "docker-{}.scope",
}
ODD = {
    "cgroupfs": (f"crio-conmon-{MAIN}", "init.scope"),
    "systemd": (f"crio-conmon-{MAIN}.scope", f"var-lib-containers-{MAIN}.mount", "init.scope"),
}
V1_FILES = ("cpu/{}/cpu.cfs_quota_us", "cpu/{}/cpu.cfs_period_us", "cpuacct/{}/cpuacct.usage", "memory/{}/memory.stat")
V2_FILES = ("{}/cpu.max", "{}/memory.stat")

LAYOUTS = list(
    product((1, 2), ("cgroupfs", "systemd"), ("plain", "kind", "kind from its host"), ("containerd", "CRI-O", "Docker"))
)


class Tree:
    """A machine's groups as one driver, one nesting and one runtime make them: folders and a few files."""

    def __init__(self, mount: Path, version: int, driver: str, nesting: str, runtime: str) -> None:
        self.mount, self.version, self.driver = mount, version, driver
        self.pods = PARENTS[driver, nesting]
        self.container = CONTAINER[driver, runtime]
        if version == 2:
            mount.mkdir()
            (mount / "cgroup.controllers").write_text("cpu memory\n")
        for tier in ("besteffort", "burstable"):
            self.make(self.tier(tier))
        for uid, tier in TIERS.items():
            pod = self.pod(tier, uid)
            for container in (MAIN, SIDECAR, SANDBOX):
                self.make(f"{pod}/{self.container.format(container)}")
            for odd in ODD[driver]:
                self.make(f"{pod}/{odd}")

    def make(self, group: str) -> None:
        for name in V1_FILES if self.version == 1 else V2_FILES:
            file = self.mount / name.format(group)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("100000\n" if "max" not in name else "max 100000\n")

    def tier(self, tier: str) -> str:
        if self.driver == "systemd" and tier:
            return f"{self.pods}/{PurePosixPath(self.pods).stem}-{tier}.slice"
        return f"{self.pods}/{tier}".rstrip("/")

    def pod(self, tier: str, uid: str) -> str:
        if self.driver == "systemd":
            return f"{self.tier(tier)}/{PurePosixPath(self.tier(tier)).stem}-pod{uid.replace('-', '_')}.slice"
        return f"{self.tier(tier)}/pod{uid}"


@pytest.fixture(params=LAYOUTS, ids=lambda layout: "-".join(map(str, layout)).replace(" ", "_"))
def tree(tmp_path, request) -> Tree:
    return Tree(tmp_path / "cgroup", *request.param)


@pytest.fixture
def kernel(tree, tmp_path):
    found = tree.pods.count("/") < 2  # deeper, it is named
    kernel = CgroupKernel(tree.mount, tmp_path / "proc", None if found else tree.pods, tmp_path)
    kernel.read(0)
    yield kernel
    kernel.close()


def test_pods_are_found_with_uid_tier_and_group(tree, kernel) -> None:
    pods = {pod.uid: pod.best_effort_group for pod in kernel.read(1_000_000_000).pod_use}

    assert pods == {uid: tier == "besteffort" for uid, tier in TIERS.items()}
    for uid, tier in TIERS.items():
        assert kernel.pod_group(uid) == PurePosixPath(tree.pod(tier, uid))
    assert kernel.pod_group("3d3d") is None


def test_the_best_effort_group_is_the_one_that_is_held(tree, kernel) -> None:
    root = tree.mount / "cpu" if tree.version == 1 else tree.mount

    assert kernel.hierarchy.best_effort == root / tree.tier("besteffort")


def test_containers_are_told_from_sandboxes_and_from_what_else_lies_there(tree, kernel) -> None:
    """By whole names with the ids of the pod list; one that has no id yet, or no group, is not found."""
    pod = Pod(
        uid="0f0f-1111",
        namespace="batch",
        name="spark",
        containers=[
            Container(name="main", id=MAIN),
            Container(name="log", id=SIDECAR),
            Container(name="waiting"),
            Container(name="gone", id="e5" * 32),
        ],
    )
    group = kernel.pod_group(pod.uid)
    root = kernel.hierarchy.memory

    assert container_groups(kernel.hierarchy, root, group, pod) == {
        "main": group / tree.container.format(MAIN),
        "log": group / tree.container.format(SIDECAR),
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_real_nodes_names_by_the_driver_systemd_are_found(tmp_path: Path, version: int) -> None:
    """As the error of a kubelet 1.18 printed them: https://github.com/koordinator-sh/koordinator/issues/546 ."""
    above = "kubepods.slice/kubepods-besteffort.slice"
    pod = f"{above}/kubepods-besteffort-pod80eeefbd_e18a_4493_a617_c9634dd46bdb.slice"
    container = "aabc281f6798f88cf6b5eb2e35e997121a01386e23396ea466ce0c628c3e313b"
    mount = tmp_path / "cgroup"
    for group in (above, pod, f"{pod}/cri-containerd-{container}.scope"):
        for name in V1_FILES if version == 1 else V2_FILES:
            file = mount / name.format(group)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("max 100000\n" if "max" in name else "100000\n")
    if version == 2:
        (mount / "cgroup.controllers").write_text("cpu memory\n")
    kernel = CgroupKernel(mount, tmp_path / "proc", None, tmp_path)
    kernel.read(0)
    uid = "80eeefbd-e18a-4493-a617-c9634dd46bdb"
    known = Pod(uid=uid, namespace="jobs", name="etl", containers=[Container(name="main", id=container)])

    group = kernel.pod_group(uid)
    assert group == PurePosixPath(pod)
    root = kernel.hierarchy.cpu
    assert container_groups(kernel.hierarchy, root, group, known) == {
        "main": PurePosixPath(f"{pod}/cri-containerd-{container}.scope")
    }
    kernel.close()
