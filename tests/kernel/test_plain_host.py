"""A host without Kubernetes on a real kernel: a busy process in the best-effort slice is held, one beside it is not."""

import time
from pathlib import Path

import pytest

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.hierarchy import PlainHost, find
from slacktide.agents.node.host_pods import HostPods, watch
from slacktide.schemas.sample import Limits, PodUse
from testbed.one_machine import eventually

JOB, WEB = "batch.slice/etl.service", "web.slice"


@pytest.fixture
def host(groups, tmp_path):
    """The kernel and the list of the pods, over groups of the test's own."""
    for group in (JOB, WEB):
        groups.make(f"{group}/c1")
    file = tmp_path / "host.yaml"
    file.write_text(
        f"bestEffort: {groups.kubepods}/batch.slice\nworkloads:\n- {{slice: {groups.kubepods}/{WEB}, qosClass: LS}}\n"
    )
    watched = watch(file)
    layout = PlainHost(watched.value.best_effort)
    mount = Path("/sys/fs/cgroup")
    pods = HostPods(watched, layout, find(mount, None, layout), Path("/proc"))
    kernel = CgroupKernel(mount, Path("/proc"), None, tmp_path, layout)
    yield kernel, pods
    kernel.close()


def use_by_name(kernel) -> dict[str, PodUse]:
    """What happened in the next second."""
    kernel.read(time.monotonic_ns())
    time.sleep(1)
    return {use.uid.rpartition(":")[2]: use for use in kernel.read(time.monotonic_ns()).pod_use}


@pytest.mark.alone
def test_the_best_effort_slice_is_held_and_what_lies_beside_it_is_not(groups, host) -> None:
    kernel, pods = host
    groups.start(JOB)
    groups.start(WEB)
    assert [(pod.name, pod.qos_label) for pod in pods.look().pods] == [("etl.service", "BE"), ("web.slice", "LS")]

    kernel.hold(Limits(be_cfs_quota_us=10_000))

    def is_held():
        """Not while what was handed out before is used up, or what it overran by is paid back."""
        seen.update(use_by_name(kernel))
        return seen["etl.service"].cpu_milli == pytest.approx(100, abs=60)

    seen: dict[str, PodUse] = {}
    assert eventually(is_held, 60)
    held = dict(seen)
    assert held["web.slice"].cpu_milli > held["etl.service"].cpu_milli
    assert groups.throttling("batch.slice").throttled
    assert groups.throttling("web.slice").throttled == 0
    kernel.hold(Limits(be_cfs_quota_us=None))
    assert eventually(lambda: use_by_name(kernel)["etl.service"].cpu_milli > held["etl.service"].cpu_milli, 60)
    assert {name: use.best_effort_group for name, use in held.items()} == {"etl.service": True, "web.slice": False}
    assert kernel.limits().be_cfs_quota_us is None


def test_a_slice_that_comes_and_goes_is_held_when_it_is_there(groups, host) -> None:
    """As when systemd removes a slice that has nothing in it."""
    kernel, pods = host
    groups.remove("batch.slice")
    assert [pod.name for pod in pods.look().pods] == ["web.slice"]
    reading = kernel.read(time.monotonic_ns())
    assert reading.limits is None
    assert any(missing.what.endswith("batch.slice") for missing in reading.missing)

    groups.make(f"{JOB}/c1")
    kernel.hold(Limits(be_cfs_quota_us=20_000))

    assert kernel.read(time.monotonic_ns()).limits.be_cfs_quota_us == 20_000
    assert sorted(pod.name for pod in pods.look().pods) == ["etl.service", "web.slice"]
