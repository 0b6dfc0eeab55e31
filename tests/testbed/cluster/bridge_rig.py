"""A bridge between a real API server and a broker, and what the stream would say."""

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from slacktide.agents.cluster.bridge import bridge
from slacktide.agents.cluster.bridge.election import Timing
from slacktide.agents.cluster.watching import ConfigMapName
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.connection import Cluster
from slacktide.schemas.message import Message
from slacktide.schemas.metric import NodeMetric, PodMetric, Use
from slacktide.schemas.topics import ALLOCATABLE, METRIC, Topic
from testbed.cluster.api_server import ApiServer
from testbed.cluster.identity import access_of
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.streaming_rig import Replica, StreamingRig
from testbed.policies import config_map

QUICK = Timing(duration_s=2, renew_deadline_s=1.5, retry_s=0.2)
OPERATORS = "koordinator-system"


_READS = re.compile(r'verb="(GET|LIST|WATCH)"')


class BridgeRig(StreamingRig):
    """Bridges under their own account, and a stream that says what it is told to, again and again."""

    topics = (ALLOCATABLE, METRIC)

    def __init__(self, cluster: ApiServer, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.cluster = cluster
        self._account = cluster.account(SYSTEM, "slacktide-bridge")
        self.allocatable: dict[str, NodeAllocatable] = {}
        self.metric: dict[str, NodeMetric] = {}
        self._seq = 0
        self.withdraw_policy()  # that of the manifests

    def replica(self, name: str = "one", timing: Timing = QUICK, deployment: str | None = None, **more: Any) -> Replica:
        settings = bridge.BridgeSettings(
            bootstrap=Cluster(self.bootstrap),
            access=access_of(self._account.kubeconfig),
            replica=name,
            namespace=SYSTEM,
            config_map=ConfigMapName(namespace=OPERATORS, name="slo-controller-config"),
            timing=timing,
            deployment=deployment,
            **more,
        )
        self._replicas.append(Replica(bridge.run, settings))
        return self._replicas[-1]

    @contextlib.contextmanager
    def command(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """``slacktide bridge`` as a process of its own, under the same account."""
        where = ["--bootstrap", self.bootstrap, "--kubeconfig", str(self._account.kubeconfig), "--namespace", SYSTEM]
        process = subprocess.Popen([sys.executable, "-m", "slacktide.deploy.cli.main", "bridge", *where, *arguments])
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def say_policy(self, **configs: Any) -> None:
        self.cluster.apply(msgspec.json.encode(config_map(**configs)).decode(), OPERATORS)

    def withdraw_policy(self) -> None:
        self.cluster.kubectl("delete", "configmap", "-n", OPERATORS, "--ignore-not-found", "slo-controller-config")

    def say(self, node: str, *, cpu: int | None, mem: int | None, mid: int | None = None, **other: Any) -> None:
        """From now on the stream says this of the node."""
        self._seq += 1
        known = {"node": node, "boot_id": "1-a", "seq": self._seq, "observed_ms": 1_700_000_000_000 + self._seq * 1_000}
        known |= {"policy_version": "p", "facts_revision": "f", "window_ms": 300_000, "covered_ms": 300_000}
        self.allocatable[node] = NodeAllocatable(
            **known, pods_revision="r", batch_cpu_milli=cpu, batch_mem_bytes=mem,
            mid_cpu_milli=mid, mid_mem_bytes=mid, **other,
        )  # fmt: skip
        use = Use(cpu_milli=138, mem_bytes=1_815_637_738)
        pod = PodMetric(uid="u", namespace="shop", name="web", priority_class="koord-prod", qos="LS",
                        use=Use(cpu_milli=300, mem_bytes=17_828 * 1024))  # fmt: skip
        self.metric[node] = NodeMetric(
            **known, samples=300, pods_revision="r", node_use=use, system_use=use, pods=[pod]
        )

    def said(self) -> Iterable[tuple[Topic, Message]]:
        for topic, figures in ((ALLOCATABLE, self.allocatable), (METRIC, self.metric)):
            yield from ((topic, one) for one in figures.values())

    def resources(self, node: str) -> dict[str, dict[str, str]]:
        status = self.cluster.get(f"/api/v1/nodes/{node}")["status"]
        return {
            part: {name: value for name, value in status[part].items() if name.startswith("kubernetes.io/")}
            for part in ("capacity", "allocatable")
        }

    def writes(self, resource: str) -> int:
        """How many writes to a resource the API server has counted, done or refused, whoever's they were."""
        counted = self.cluster.text("/metrics")
        lines = [line for line in counted.splitlines() if line.startswith("apiserver_request_total{")]
        mine = [line for line in lines if f'resource="{resource}"' in line and not _READS.search(line)]
        return sum(round(float(line.rpartition(" ")[2])) for line in mine)

    async def end(self) -> None:
        for replica in self._replicas:
            await replica.stop()
        self._replicas.clear()

    async def close(self) -> None:
        for replica in self._replicas:
            await replica.kill()
        await asyncio.to_thread(self.withdraw_policy)


async def until(holds: Callable[[], Any], within_s: float = 60.0) -> None:
    last = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while not (last := await asyncio.to_thread(holds)):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
            return
    raise AssertionError(f"in vain: {holds.__name__}, last {last!r}")
