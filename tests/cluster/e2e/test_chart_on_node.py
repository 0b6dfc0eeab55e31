"""The chart on a real node: its hooks run, an upgrade and a rollback lift nothing, and a removal lifts all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.brokers import free_port
from testbed.cluster import batch, charted
from testbed.cluster.api_server import Json
from testbed.cluster.held_pod import HeldPod
from testbed.cluster.helm import RELEASE, HelmError, helm
from testbed.cluster.installed import OWN, Installed

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]
BRIDGE = f"/apis/apps/v1/namespaces/{OWN}/deployments/slacktide-bridge"


class Release:
    """Helm, on an installation that was applied by kubectl."""

    def __init__(self, slacktide: Installed, folder: Path) -> None:
        self.slacktide, self.node = slacktide, slacktide.node
        self.chart = str(charted.copied(folder))
        self.through = f"--post-renderer={charted.renderer(self.node, folder)}"

    def upgrade(self, *args: str, bootstrap: str = "") -> None:
        given: Json = charted.values(bootstrap or self.slacktide.kafka.bootstrap)
        how = ["--install", "--take-ownership", self.through, "--values", "-", *args]
        helm("upgrade", RELEASE, self.chart, *how, server=self.node, given=yaml.safe_dump(given))
        self.slacktide.wait_ready()

    def logs(self, job: str) -> str:
        return self.node.kubectl("logs", "-n", OWN, f"job/{job}")

    @property
    def bridge_cpu(self) -> str:
        [container] = self.node.get(BRIDGE)["spec"]["template"]["spec"]["containers"]
        return str(container["resources"]["requests"]["cpu"])


@pytest.fixture
def release(slacktide: Installed, tmp_path: Path) -> Iterator[Release]:
    yield Release(slacktide, tmp_path)
    slacktide.start()
    batch.set_policy(slacktide.node)


def test_hooks_run_limits_hold_over_an_upgrade_and_a_rollback_and_a_removal_leaves_none(
    slacktide: Installed, release: Release
) -> None:
    node, pod = slacktide.node, HeldPod(slacktide)
    with pod.watched() as seen:
        with pytest.raises(HelmError, match="slacktide-preflight failed"):
            release.upgrade(bootstrap=f"127.0.0.1:{free_port()}")
        assert "log.broker" in release.logs("slacktide-preflight")
        assert "meta.helm.sh/release-name" not in node.get(BRIDGE)["metadata"].get("annotations", {})

        release.upgrade()
        release.upgrade("--set", "bridge.resources.requests.cpu=90m")
        assert "cluster.kubelet-certificates" in release.logs("slacktide-preflight")
        assert "nothing to do" in release.logs("slacktide-topics-plan")
        assert release.bridge_cpu == "90m"
        helm("test", RELEASE, server=node)
        helm("rollback", RELEASE, "--wait", server=node)
        assert release.bridge_cpu == "100m"

    assert set(seen) == {(True, True)}
    helm("uninstall", RELEASE, "--wait", server=node)
    node.wait(lambda: pod.free and not pod.sold, "nothing is held, and nothing sold")
    assert list(Path(node.folder, "agent").iterdir()) == []
    node.kubectl("delete", "namespace", pod.namespace, "--wait=false")
