"""Knobs of pods, containers and tiers on fake trees: how they read, what is written, and what is never written."""

from pathlib import Path
from typing import Any

import pytest

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.group_knobs import shares_of, weight_of
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Container, Pod, Resources
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.sample import Limits
from testbed.stories import each_story, story

MIB = 1 << 20
ID = "ab" * 32
BE, LS, PINNED = "1-be", "2-ls", "3-pinned"


def pod(uid, kube_qos, *, qos=None, limit_milli=None, mem=None, cpuset=""):
    """One container, ``main``."""
    asked = Resources(cpu_milli=limit_milli, mem_bytes=mem)
    return Pod(
        uid=uid,
        namespace="n",
        name=uid,
        kube_qos=kube_qos,
        qos_label=qos,
        cpuset=cpuset,
        requests=asked,
        limits=asked,
        containers=[Container(name="main", id=ID, requests=asked, limits=asked)],
    )


PODS = [
    pod(BE, "BestEffort", qos="BE"),
    pod(LS, "Burstable", qos="LS", limit_milli=500, mem=64 * MIB),
    pod(PINNED, "Guaranteed", qos="LSR", limit_milli=2000, mem=64 * MIB, cpuset="2-3"),
]
V1 = {
    "cpu/{}/cpu.cfs_quota_us": "-1",
    "cpu/{}/cpu.cfs_period_us": "100000",
    "cpu/{}/cpu.shares": "2",
    "cpu/{}/cpu.cfs_burst_us": "0",
    "cpu/{}/cpu.idle": "0",
    "memory/{}/memory.limit_in_bytes": "9223372036854771712",
}
V2 = {
    "{}/cpu.max": "max 100000",
    "{}/cpu.weight": "1",
    "{}/cpu.max.burst": "0",
    "{}/cpu.idle": "0",
    "{}/memory.max": "max",
    "{}/memory.min": "0",
    "{}/memory.low": "0",
    "{}/memory.high": "max",
}


class Tree:
    """Groups as a kubelet makes them, by cgroupfs or by systemd."""

    def __init__(self, folder: Path, version: int, driver: str) -> None:
        self.mount, self.version, self.systemd = folder / "cgroup", version, driver == "systemd"
        self.mount.mkdir()
        if version == 2:
            (self.mount / "cgroup.controllers").write_text("cpu memory\n")
        for group in ("tier/besteffort", "tier/burstable", f"pod/{BE}", f"pod/{LS}", f"pod/{PINNED}"):
            for below in ("", "/main") if group.startswith("pod") else ("",):
                for name, text in (V1 if version == 1 else V2).items():
                    file = self.mount / name.format(self.path(group + below))
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(f"{text}\n")

    def path(self, group: str) -> str:
        kind, uid, *container = group.split("/")
        if kind == "tier":
            return f"kubepods.slice/kubepods-{uid}.slice" if self.systemd else f"kubepods/{uid}"
        tier = {BE: "besteffort", LS: "burstable", PINNED: ""}[uid]
        inside = f"cri-containerd-{ID}.scope" if self.systemd else ID
        written = uid.replace("-", "_")
        if self.systemd:
            above = "kubepods.slice" + (f"/kubepods-{tier}.slice" if tier else "")
            found = f"{above}/{'-'.join(filter(None, ('kubepods', tier)))}-pod{written}.slice"
        else:
            found = "/".join(filter(None, ("kubepods", tier, f"pod{uid}")))
        return "/".join([found, *(inside for _ in container)])

    def file(self, group: str, v1: str, v2: str) -> Path:
        return self.mount / (v1 if self.version == 1 else v2).format(self.path(group))

    def texts(self) -> dict[Path, str]:
        return {path: path.read_text() for path in self.mount.rglob("*") if path.is_file()}


@pytest.fixture(params=[(1, "cgroupfs"), (1, "systemd"), (2, "cgroupfs"), (2, "systemd")], ids=str)
def tree(request, tmp_path):
    return Tree(tmp_path, *request.param)


@pytest.fixture
def kernel(tree, tmp_path):
    kernel = CgroupKernel(tree.mount, tmp_path / "proc", None, tmp_path)
    kernel.know(PODS)
    kernel.read(1)
    return kernel


class Knobs:
    """What is put into groups; ``be``, ``ls`` and ``pinned`` in a group's name are the pods' uids."""

    def __init__(self, tree: Tree, kernel: CgroupKernel) -> None:
        self.tree, self.kernel = tree, kernel
        self.before = tree.texts()
        self.found: list[str] = []

    def key(self, group: str, knob: Any) -> KnobKey:
        uids = {"be": BE, "ls": LS, "pinned": PINNED}
        return KnobKey("/".join(uids.get(part, part) for part in group.split("/")), knob)

    def put(self, group: str, knob: str, value: int | str) -> None:
        try:
            self.kernel.put(self.key(group, knob), None if value == "unlimited" else int(value))
        except CgroupError as refused:
            self.found = [str(refused).replace(f"{self.tree.mount}/", "")]
        else:
            self.held(group, knob)

    def held(self, group: str, *knobs: str) -> None:
        keys = [self.key(group, knob) for knob in knobs]
        held = self.kernel.held(keys)
        self.found = [f"{key.knob} {held.values[key]}" for key in keys if key in held.values]
        self.found += [f"{key.knob} is lacking: {held.lacking[key]}" for key in keys if key in held.lacking]

    def limit_all(self, quota_us: int | str) -> None:
        self.kernel.hold(Limits(be_cfs_quota_us=None if quota_us == "unlimited" else quota_us))

    def short_period(self, group: str) -> None:
        """5 ms of each 10 ms."""
        quota = self.tree.file(self.key(group, "").group, "cpu/{}/cpu.cfs_quota_us", "{}/cpu.max")
        quota.write_text("5000\n" if self.tree.version == 1 else "5000 10000\n")
        if self.tree.version == 1:
            quota.with_name("cpu.cfs_period_us").write_text("10000\n")

    def weigh(self, weight: int) -> None:
        """As Linux does with a group that is idle no more."""
        self.tree.file("tier/besteffort", "cpu/{}/cpu.shares", "{}/cpu.weight").write_text(f"{weight}\n")

    def lose_burst(self, group: str) -> None:
        self.tree.file(self.key(group, "").group, "cpu/{}/cpu.cfs_burst_us", "{}/cpu.max.burst").unlink()

    def state(self) -> dict[str, object]:
        changed = {path: text for path, text in self.tree.texts().items() if self.before.get(path) != text}
        files = [f"{path.relative_to(self.tree.mount)} {text.strip()}" for path, text in sorted(changed.items())]
        return {"changed files": files, "found": self.found}


@each_story("group_knobs")
def test_what_becomes_of_a_groups_knob(tree, kernel, given: dict, steps: str, snapshot) -> None:
    assert story(Knobs(tree, kernel), steps) == snapshot


def test_a_pod_counts_as_best_effort_by_where_its_group_lies_whatever_the_list_says(tree, tmp_path) -> None:
    kernel = CgroupKernel(tree.mount, tmp_path / "proc", None, tmp_path)
    kernel.know([pod(LS, "BestEffort", qos="BE")])
    kernel.read(1)

    with pytest.raises(CgroupError, match="not best-effort is never written"):
        kernel.put(KnobKey(f"pod/{LS}", "cpu_shares"), 2)


def test_kubelets_weights() -> None:
    assert [weight_of(shares) for shares in (2, 102, 1024, 262_144)] == [1, 4, 39, 10_000]
    assert [shares_of(weight) for weight in (0, 1, 39, 10_000)] == [2, 2, 998, 262_144]
    assert len({shares_of(weight) for weight in range(1, 10_001)}) == 10_000
