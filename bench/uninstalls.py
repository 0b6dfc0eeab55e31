"""Figure: uninstalls in a row by Helm, of a bridge that sells, after which nothing of it is held by its finalizer.

As on a node, the bridge gets SIGTERM once its Deployment is deleted, so that it ends while Helm deletes its rights.
"""

import asyncio
import time

import yaml

from bench.rig import CannotRunError, Rig
from bench.rows import Row, judged, seconds
from testbed.brokers import running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.bridge_rig import BridgeRig, until
from testbed.cluster.helm import CHART, RELEASE, helm
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.streaming_rig import GIB
from testbed.rungs import lacks_api

TIMES, BRIEF_TIMES = 10, 2
GONE_S = 20.0
BRIDGE = "slacktide-bridge"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{BRIDGE}"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RIGHTS = (
    f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{BRIDGE}",
    f"{RBAC}/clusterroles/{BRIDGE}",
    f"{RBAC}/clusterrolebindings/{BRIDGE}",
)
VALUES = {"kafka": {"bootstrap": "kafka:9092", "secured": False}, "preflight": False, "language": {"keep": False}}
NOTHING = {"capacity": {}, "allocatable": {}}


def measure(rig: Rig) -> list[Row]:
    """Install, let a bridge sell, uninstall, and look for what is left; each time on an API server of its own.

    No controller ends the namespace that an uninstall deletes.
    """
    if (lack := lacks_api()) is not None:
        raise CannotRunError(str(lack))
    count = BRIEF_TIMES if rig.brief else TIMES
    took = []
    for _ in range(count):
        with running(ApiServer) as api, rig.embedded() as broker:
            broker.apply_topics(3)
            took.append(asyncio.run(_once(api, broker.bootstrap)))
    clean = [one for one in took if one is not None]
    return [
        judged("removal: uninstalls after which nothing is held", f"{count} of {count}",
               f"{len(clean)} of {count}, at most {seconds(max(clean, default=None))} from the Deployment's deletion",
               met=len(clean) == count, n=count, clean=len(clean), worst_s=max(clean, default=None)),
    ]  # fmt: skip


async def _once(api: ApiServer, bootstrap: str) -> float | None:
    """Seconds from the Deployment's deletion until Nodes and rights are done; None: something is held."""
    await asyncio.to_thread(
        helm, "install", RELEASE, str(CHART), "--create-namespace", "--values", "-",
        server=api, given=yaml.safe_dump(VALUES),
    )  # fmt: skip
    node = api.node()
    async with BridgeRig(api, bootstrap).streaming() as bridge:
        bridge.say(node, cpu=2_000, mem=GIB)
        for name in ("leads", "waits"):
            bridge.replica(name, deployment=f"{SYSTEM}/{BRIDGE}")
        await until(lambda: bridge.resources(node)["allocatable"])
        uninstalling = asyncio.create_task(asyncio.to_thread(helm, "uninstall", RELEASE, server=api))
        await until(lambda: not api.exists(DEPLOYMENT))
        since_s = time.monotonic()
        await bridge.end()
        await uninstalling
        try:
            await until(lambda: not any(api.exists(path) for path in RIGHTS), GONE_S)
            assert bridge.resources(node) == NOTHING
        except AssertionError:
            for path in filter(api.exists, RIGHTS):
                api.patch(path, {"metadata": {"finalizers": None}})
            return None
        return time.monotonic() - since_s
