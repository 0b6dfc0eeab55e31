"""The page on Spark, on a real node: its commands as they are written, with Spark itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import batch, spark
from testbed.cluster.follow import follow
from testbed.cluster.installed import Installed
from testbed.cluster.told import commands
from testbed.rungs import spark_home

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


@pytest.fixture
def environment(slacktide: Installed, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What the page's reader has: Spark, and the address of the API server."""
    node = slacktide.node
    assert node.ctr("images", "import", "--no-unpack", str(spark.image(tmp_path))) is not None, "containerd refused it"
    batch.set_policy(node, cpuSuppressThresholdPercent=100)
    node.wait(lambda: node.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"].keys() >= set(BATCH), "an offer")
    try:
        with spark.api_door(node) as door:
            yield {
                "SPARK_HOME": str(spark_home()),
                "SPARK_CONF_DIR": str(spark.settings(tmp_path, door)),
                "API": node.url,
            }
    finally:
        for each in ("namespace", "clustercolocationprofile"):
            node.kubectl("delete", each, "spark", "--ignore-not-found")
        batch.set_policy(node)


def test_spark_computes_pi_on_batch_resources_and_replaces_an_evicted_executor(
    slacktide: Installed, environment: dict[str, str], tmp_path: Path
) -> None:
    node = slacktide.node
    try:
        follow(node, tmp_path, commands("spark.md"), **environment)
    except AssertionError as failed:
        told = [
            node.kubectl("describe", "pods", "-n", "spark"),
            node.kubectl("logs", "-n", "spark", "spark-pi", "--tail=60"),
        ]
        raise AssertionError("\n".join([str(failed), *told])) from failed
