"""Knobs of pods, containers and tiers on fake trees: how they read, what is written, and what is never written."""

from __future__ import annotations

from pathlib import Path

import pytest

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.knob_files import shares_of, weight_of
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Container, Pod, Resources
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.sample import Limits

MIB = 1 << 20
ID = "ab" * 32
BE, LS, PINNED = "1-be", "2-ls", "3-pinned"


def pod(uid, kube_qos, *, qos=None, limit_milli=None, mem=None):
    """One container, ``main``."""
    asked = Resources(cpu_milli=limit_milli, mem_bytes=mem)
    return Pod(
        uid=uid,
        namespace="n",
        name=uid,
        kube_qos=kube_qos,
        qos_label=qos,
        requests=asked,
        limits=asked,
        containers=[Container(name="main", id=ID, requests=asked, limits=asked)],
    )


PODS = [
    pod(BE, "BestEffort", qos="BE"),
    pod(LS, "Burstable", qos="LS", limit_milli=500, mem=64 * MIB),
    pod(PINNED, "Guaranteed", qos="LSR", limit_milli=2000, mem=64 * MIB),
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


SETTABLE = [
    ("tier/besteffort", "cpu_shares", 2, "cpu/{}/cpu.shares", "2", "{}/cpu.weight", "1"),
    ("tier/besteffort", "cpu_idle", 1, "cpu/{}/cpu.idle", "1", "{}/cpu.idle", "1"),
    (f"pod/{BE}", "cpu_shares", 1024, "cpu/{}/cpu.shares", "1024", "{}/cpu.weight", "39"),
    (f"pod/{BE}/main", "cfs_quota_us", 150_000, "cpu/{}/cpu.cfs_quota_us", "150000", "{}/cpu.max", "150000 100000"),
    (f"pod/{BE}", "mem_limit_bytes", 64 * MIB, "memory/{}/memory.limit_in_bytes", "67108864", "{}/memory.max",
     "67108864"),
    (f"pod/{BE}", "mem_limit_bytes", None, "memory/{}/memory.limit_in_bytes", "-1", "{}/memory.max", "max"),
    (f"pod/{LS}", "cfs_burst_us", 40_000, "cpu/{}/cpu.cfs_burst_us", "40000", "{}/cpu.max.burst", "40000"),
    (f"pod/{LS}/main", "cfs_burst_us", 0, "cpu/{}/cpu.cfs_burst_us", "0", "{}/cpu.max.burst", "0"),
    (f"pod/{LS}/main", "cfs_quota_us", 60_000, "cpu/{}/cpu.cfs_quota_us", "60000", "{}/cpu.max", "60000 100000"),
]  # fmt: skip


@pytest.mark.parametrize("case", SETTABLE, ids=lambda case: f"{case[0]} {case[1]} {case[2]}")
def test_a_knob_is_written_into_its_one_file_and_no_other_changes(case, tree, kernel) -> None:
    group, knob, value, v1_file, v1_text, v2_file, v2_text = case
    before = tree.texts()
    kernel.put(KnobKey(group, knob), value)

    file = tree.file(group, v1_file, v2_file)
    assert tree.texts() == before | {file: f"{v1_text if tree.version == 1 else v2_text}\n"}


def test_what_was_put_is_held_as_told(tree, kernel) -> None:
    for group, knob, value, *_ in SETTABLE:
        key = KnobKey(group, knob)
        kernel.put(key, value)
        if value is not None or tree.version == 2:  # a plain file keeps -1, a kernel of v1 tells a large number
            assert kernel.held([key]).values == {key: kernel.as_reads_back(knob, value)}


def test_protections_are_a_matter_of_v2_and_v1_says_so(tree, kernel) -> None:
    keys = [KnobKey(f"pod/{LS}", knob) for knob in ("mem_min_bytes", "mem_low_bytes", "mem_high_bytes")]
    held = kernel.held(keys)

    if tree.version == 1:
        assert set(held.lacking.values()) == {"cgroup v1 does not have it"}
        with pytest.raises(CgroupError, match="cgroup v1 does not have it"):
            kernel.put(keys[0], MIB)
    else:
        assert held.values == dict(zip(keys, (0, 0, None), strict=True))
        kernel.put(keys[2], 64 * MIB)
        assert kernel.held(keys).values[keys[2]] == 64 * MIB


def test_a_group_that_is_not_there_holds_nothing_and_lacks_nothing(kernel) -> None:
    gone = [
        KnobKey("pod/nobody", "cpu_shares"),
        KnobKey(f"pod/{BE}/nobody", "cpu_shares"),
        KnobKey("tier/x", "cpu_idle"),
    ]
    held = kernel.held(gone)

    assert (held.values, held.lacking) == ({}, {})


def test_a_knob_whose_file_is_absent_is_lacking(tree, kernel) -> None:
    tree.file(f"pod/{LS}", "cpu/{}/cpu.cfs_burst_us", "{}/cpu.max.burst").unlink()
    key = KnobKey(f"pod/{LS}", "cfs_burst_us")

    assert kernel.held([key]).lacking[key].startswith("no file cpu.")


NEVER = [
    (f"pod/{LS}", "cfs_quota_us", None, "removed"),
    (f"pod/{LS}", "cfs_quota_us", -1, "accepted"),
    (f"pod/{LS}", "cfs_quota_us", 0, "accepted"),
    (f"pod/{LS}", "cfs_quota_us", 49_999, "below its own limit, 50000"),
    (f"pod/{LS}/main", "cfs_quota_us", 49_999, "below its own limit, 50000"),
    (f"pod/{LS}", "cfs_burst_us", None, "removed"),
    (f"pod/{LS}", "cfs_burst_us", -1, "accepted"),
    (f"pod/{LS}", "cpu_shares", 2, "never written"),
    (f"pod/{LS}", "mem_limit_bytes", 64 * MIB, "never written"),
    (f"pod/{LS}", "mem_limit_bytes", None, "never written"),
    (f"pod/{LS}", "mem_high_bytes", 63 * MIB, "below its request"),
    (f"pod/{LS}", "cpu_idle", 1, "never written"),
    (f"pod/{PINNED}", "cfs_burst_us", 1_000, "not latency-sensitive"),
    (f"pod/{PINNED}", "cfs_quota_us", 300_000, "not latency-sensitive"),
    (f"pod/{BE}", "cfs_burst_us", 1_000, "never written"),
    (f"pod/{BE}", "cfs_quota_us", 999, "accepted"),
    (f"pod/{BE}", "mem_limit_bytes", -1, "accepted"),
    (f"pod/{BE}", "cpu_shares", 1, "accepted"),
    (f"pod/{BE}", "cpu_shares", None, "removed"),
    ("tier/besteffort", "cfs_quota_us", 50_000, "never written"),
    ("tier/besteffort", "mem_limit_bytes", MIB, "never written"),
    ("tier/besteffort", "cpu_idle", 2, "accepted"),
    ("tier/burstable", "cpu_idle", 1, "never written"),
    ("tier/burstable", "cpu_shares", 2, "never written"),
    ("tier/guaranteed", "cfs_quota_us", 50_000, "never written"),
]


@pytest.mark.parametrize(("group", "knob", "value", "why"), NEVER)
def test_what_must_not_be_set_is_refused_and_nothing_is_written(tree, kernel, group, knob, value, why) -> None:
    before = tree.texts()
    with pytest.raises(CgroupError, match=why):
        kernel.put(KnobKey(group, knob), value)

    assert tree.texts() == before


def test_a_pod_counts_as_best_effort_by_where_its_group_lies_whatever_the_list_says(tree, tmp_path) -> None:
    kernel = CgroupKernel(tree.mount, tmp_path / "proc", None, tmp_path)
    kernel.know([pod(LS, "BestEffort", qos="BE")])
    kernel.read(1)

    with pytest.raises(CgroupError, match="not best-effort is never written"):
        kernel.put(KnobKey(f"pod/{LS}", "cpu_shares"), 2)


def test_a_quota_keeps_the_period_that_the_group_has(tree, kernel) -> None:
    quota = tree.file(f"pod/{LS}", "cpu/{}/cpu.cfs_quota_us", "{}/cpu.max")
    if tree.version == 1:
        quota.write_text("5000\n")
        quota.with_name("cpu.cfs_period_us").write_text("10000\n")
    else:
        quota.write_text("5000 10000\n")
    key = KnobKey(f"pod/{LS}", "cfs_quota_us")

    assert kernel.held([key]).values == {key: 50_000}
    kernel.put(key, 70_000)
    assert quota.read_text().split()[0] == "7000"
    assert kernel.held([key]).values == {key: 70_000}


def test_idle_given_back_brings_the_kubelets_weight_back_too(tree, kernel) -> None:
    """Linux gives its own default, 1024, to a group that is idle no more."""
    weight = tree.file("tier/besteffort", "cpu/{}/cpu.shares", "{}/cpu.weight")
    weight.write_text("1024\n")
    kernel.put(KnobKey("tier/besteffort", "cpu_idle"), 0)

    assert weight.read_text() == ("2\n" if tree.version == 1 else "1\n")


def test_a_pods_own_quota_is_remembered_while_the_limit_of_all_leaves_it_less(tree, kernel) -> None:
    """On v1 the kernel refuses a pod that holds more than the best-effort group; on v2 it may hold what it likes."""
    key, container = KnobKey(f"pod/{BE}", "cfs_quota_us"), KnobKey(f"pod/{BE}/main", "cfs_quota_us")
    quota = tree.file(f"pod/{BE}", "cpu/{}/cpu.cfs_quota_us", "{}/cpu.max")
    inner = tree.file(f"pod/{BE}/main", "cpu/{}/cpu.cfs_quota_us", "{}/cpu.max")
    kernel.hold(Limits(be_cfs_quota_us=50_000))
    kernel.put(key, 200_000)
    kernel.put(container, 150_000)
    suppressed = [file.read_text().split()[0] for file in (quota, inner)]

    assert kernel.held([key, container]).values == {key: 200_000, container: 150_000}
    assert suppressed == (["50000", "50000"] if tree.version == 1 else ["200000", "150000"])
    kernel.hold(Limits(be_cfs_quota_us=None))
    assert [file.read_text().split()[0] for file in (quota, inner)] == ["200000", "150000"]


def test_kubelets_weights() -> None:
    assert [weight_of(shares) for shares in (2, 102, 1024, 262_144)] == [1, 4, 39, 10_000]
    assert [shares_of(weight) for weight in (0, 1, 39, 10_000)] == [2, 2, 998, 262_144]
    assert len({shares_of(weight) for weight in range(1, 10_001)}) == 10_000
