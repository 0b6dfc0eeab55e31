"""The chart on a real node: its hooks run, an upgrade and a rollback lift nothing, and a removal lifts all."""

import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import pytest
import yaml

from slacktide.schemas.access import PARTS
from testbed.brokers import free_port, running
from testbed.cluster import batch, charted, images
from testbed.cluster.api_server import Json
from testbed.cluster.held_pod import HeldPod
from testbed.cluster.helm import RELEASE, HelmError, helm
from testbed.cluster.installed import OWN, Installed
from testbed.guarded import GuardedKafka

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(600)]
BRIDGE = f"/apis/apps/v1/namespaces/{OWN}/deployments/slacktide-bridge"
NEXT = "localhost/slacktide:next"
"""The same image by another tag."""


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

    def images(self) -> set[str]:
        """Of the pods that run."""
        pods = self.node.pods(OWN, "app.kubernetes.io/component")
        running = [one["spec"] for one in pods if one["status"]["phase"] == "Running"]
        return {each["image"] for spec in running for each in spec["containers"]}

    def secrets(self, kafka: GuardedKafka) -> None:
        """A Secret with each part's login, as docs/secured-kafka.md creates them."""
        for part in PARTS:
            login = kafka.as_user(part.principal.removeprefix("User:"))
            lines = login | {"ssl.ca.location": "/etc/slacktide/kafka/ca.crt"}
            given = {
                "kafka.conf": "".join(f"{key}={value}\n" for key, value in lines.items()),
                "ca.crt": kafka.certificates.ca.read_text(),
            }
            body = {"metadata": {"name": f"slacktide-kafka-{part.name}"}, "stringData": given}
            self.node.post(f"/api/v1/namespaces/{OWN}/secrets", body)


@pytest.fixture
def release(slacktide: Installed, tmp_path: Path) -> Iterator[Release]:
    yield Release(slacktide, tmp_path)
    slacktide.start()
    batch.set_policy(slacktide.node)


def test_hooks_run_limits_hold_over_another_image_and_back_kafka_has_logins_and_a_removal_leaves_none(
    slacktide: Installed, release: Release
) -> None:
    node, pod = slacktide.node, HeldPod(slacktide)
    with pod.watched() as seen:
        with pytest.raises(HelmError, match="slacktide-preflight failed"):
            release.upgrade(bootstrap=f"127.0.0.1:{free_port()}")
        assert "log.broker" in release.logs("slacktide-preflight")
        assert "meta.helm.sh/release-name" not in node.get(BRIDGE)["metadata"].get("annotations", {})

        release.upgrade()
        assert node.ctr("images", "tag", "--force", images.SLACKTIDE, NEXT) is not None
        release.upgrade("--set", "image.tag=next")
        assert "cluster.kubelet-certificates" in release.logs("slacktide-preflight")
        assert "nothing to do" in release.logs("slacktide-topics-plan")
        node.wait(lambda: release.images() == {NEXT}, "all pods have the new image")
        helm("test", RELEASE, server=node)
        helm("rollback", RELEASE, "--wait", server=node)
        node.wait(lambda: release.images() == {images.SLACKTIDE}, "all pods have the old image")

    assert set(seen) == {(True, True)}
    with running(GuardedKafka) as kafka:
        acl = [sys.executable, "-m", "slacktide.deploy.cli.main", "topics", "acl", "--bootstrap", kafka.bootstrap]
        kafka.grant(run(acl, capture_output=True, text=True, check=True).stdout)
        release.secrets(kafka)
        release.upgrade("--set", "kafka.secured=true", bootstrap=kafka.login)
        logins = [line for line in release.logs("slacktide-preflight").splitlines() if "log.login-" in line]
        assert len(logins) == 5
        assert all("SASL_SSL, SCRAM-SHA-512 as slacktide-" in line for line in logins), logins
        node.wait(lambda: pod.held and pod.sold, "it is held and sold by records of the new Kafka")
        removed(release, pod)


def removed(release: Release, pod: HeldPod) -> None:
    node = release.node
    helm("uninstall", RELEASE, "--wait", server=node)
    node.wait(lambda: pod.free and not pod.sold, "nothing is held, and nothing sold")
    assert list(Path(node.folder, "agent").iterdir()) == []
    node.kubectl("delete", "namespace", pod.namespace, "--wait=false")
