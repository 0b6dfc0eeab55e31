"""This version on a real node is rolled back to the last release and upgraded, while a batch pod wants all CPUs."""

import time
from pathlib import Path

import pytest

from slacktide.schemas.topics import COMMAND, SAMPLE
from testbed import released
from testbed.cluster import batch, images
from testbed.cluster.held_pod import HeldPod
from testbed.cluster.installed import NOW, OWN, Installed, Version
from testbed.history.answers import every_sample_answered
from testbed.history.records import History, read_history
from testbed.rungs import NIGHTLY

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(600)]

ANSWERED_MS = 5_000
"""A younger sample may still be answered."""


@pytest.fixture
def last(slacktide: Installed, tmp_path: Path) -> Version:
    """The last release, its image on the node. In full it is installed there, as nobody had another version before."""
    node, name = slacktide.node, f"localhost/slacktide:{released.LAST}"
    image = images.slacktide(tmp_path, released.wheel(released.LAST, tmp_path), name)
    assert node.ctr("images", "import", "--no-unpack", str(image)) is not None
    version = Version(manifests=tmp_path / released.LAST / "deploy/kubernetes", image=name)
    if NIGHTLY:
        node.kubectl("delete", "-f", "-", "--wait=false", given=node.kubectl("kustomize", str(NOW.manifests / "base")))
        node.wait(lambda: not node.exists(f"/api/v1/namespaces/{OWN}"), "the namespace is gone", 120)
        slacktide.start(version)
    return version


def test_limits_hold_and_samples_are_answered_over_a_rollback_and_an_upgrade(
    slacktide: Installed, last: Version, figures: list[str]
) -> None:
    node = slacktide.node
    pod, begun_ms, begun_s = HeldPod(slacktide), time.time_ns() // 1_000_000, time.monotonic()
    with pod.watched() as seen:
        for version in (*((NOW,) if NIGHTLY else ()), last, NOW):
            slacktide.apply(version)
            slacktide.wait_ready()
            agents = node.pods(OWN, "app.kubernetes.io/component=agent")
            assert {one["spec"]["containers"][0]["image"] for one in agents} == {version.image}
    took_s = time.monotonic() - begun_s
    time.sleep(ANSWERED_MS / 1_000)
    records = read_history(slacktide.kafka.bootstrap, (SAMPLE, COMMAND), begun_ms)
    answered = every_sample_answered(History(records, until_ms=time.time_ns() // 1_000_000 - ANSWERED_MS))
    figures.append(f"roll back and upgrade: {took_s:.0f} s, {len(seen)} looks at limits, {answered.line}")

    assert set(seen) == {(True, True)}
    assert answered.checked > 0
    assert not answered.broken, str(answered)
    node.kubectl("delete", "namespace", pod.namespace, "--wait=false")
    batch.set_policy(node)
