"""A real kube-scheduler with Slacktide's extender beside it, and what the stream would say of nodes."""

import asyncio
import contextlib
import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from slacktide.agents.cluster.scheduler import scheduler
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.inventory import NodeFacts, NodeInventory, Resources, revision_of
from slacktide.schemas.message import Message
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import ALLOCATABLE, INVENTORY, METRIC, PLACEMENT, SCORE, Topic
from slacktide.streams.decisions.gang.membership import GATE, LEAST, NAME
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from slacktide.streams.records import Out
from testbed.brokers import free_port, running
from testbed.cluster.identity import access_of
from testbed.rungs import built_program

from .api_server import ApiServer, Json
from .manifests import MANIFESTS, SYSTEM
from .programs import Program, answers, unverified
from .streaming_rig import GIB, Replica, StreamingRig

AT_ONCE = 8
SLACKTIDE = str(Path(sys.executable).with_name("slacktide"))
ACCOUNT = "slacktide-scheduler"
COMPONENT = MANIFESTS / "components/scheduler"


class Scheduling:
    """A cluster on which the component was applied, and a kube-scheduler by its ConfigMap and under its account."""

    def __init__(self, cluster: ApiServer) -> None:
        self.cluster = cluster
        self.port = free_port()
        """Where the kube-scheduler looks for its extender."""
        self.account = cluster.account(SYSTEM, ACCOUNT)
        self.program = Program("kube-scheduler", cluster.folder / "kube-scheduler.log")

    def start(self, program: Program | None = None, edit: Callable[[Json], None] = lambda _: None) -> None:
        """Start it, or another replica, its configuration edited; return when one of them leads."""
        program = program or self.program
        path = f"/api/v1/namespaces/{SYSTEM}/configmaps/slacktide-kube-scheduler"
        config = yaml.safe_load(self.cluster.get(path)["data"]["config.yaml"])
        config["clientConnection"] = {"kubeconfig": str(self.account.kubeconfig)}
        # On a machine full of other tests an answer may take its time; a pod placed without one tells nothing of it.
        for extender in config["extenders"]:
            extender |= {"urlPrefix": f"http://127.0.0.1:{self.port}", "httpTimeout": "10s"}
        edit(config)
        file, secure = program.log.with_suffix(".yaml"), free_port()
        file.write_text(yaml.safe_dump(config))
        deployed = self.cluster.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/slacktide-scheduler")
        given = deployed["spec"]["template"]["spec"]["containers"][1]["args"]
        command = [*given, f"--config={file}", "--bind-address=127.0.0.1", f"--secure-port={secure}"]
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/koord-scheduler"
        url = f"https://127.0.0.1:{secure}/readyz"
        whole = [str(built_program("kube-scheduler")), *command]
        program.start(whole, lambda: answers(url, unverified()) and self.cluster.exists(lease))


@contextlib.contextmanager
def scheduling(folder: Path, *more: str, started: bool = True) -> Iterator[Scheduling]:
    """``kubectl apply -k`` with the component and others, and its kube-scheduler; nobody runs the pods."""
    with running(ApiServer) as cluster:
        start = folder.resolve()
        named = {"resources": [MANIFESTS], "components": [COMPONENT, *(COMPONENT.parent / name for name in more)]}
        kustomization = {kind: [os.path.relpath(one, start) for one in some] for kind, some in named.items()}
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        cluster.kubectl("apply", "-k", str(folder))
        # Nobody answers for the webhook: pods here are written as it would make them.
        cluster.kubectl("delete", "mutatingwebhookconfiguration", "slacktide")
        found = Scheduling(cluster)
        if started:
            found.start()
        try:
            yield found
        finally:
            found.program.stop()


class SchedulerRig(StreamingRig):
    topics = (SCORE, METRIC, ALLOCATABLE)

    def __init__(self, at: Scheduling, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.cluster = at.cluster
        self.namespace = at.cluster.namespace("batch")
        self._at = at
        self._said: dict[str, list[Any]] = {}
        self._nodes: list[str] = []

    async def extender(
        self, *, counting: bool = True, gangs: bool = False, reservations: bool = False,
        args: PlacementArgs | None = None, port: int | None = None,
    ) -> Replica:  # fmt: skip
        """Start one that is ready, where the kube-scheduler looks for it, or where another replica does."""
        settings = scheduler.SchedulerSettings(
            bootstrap=Cluster(self.bootstrap),
            access=access_of(self._at.account.kubeconfig),
            replica=f"test-{len(self._replicas)}",
            host="127.0.0.1",
            port=port or self._at.port,
            args=args or PlacementArgs(),
            gangs=gangs,
            reservations=reservations,
            counting=counting,
        )
        extender = Replica(scheduler.run, settings)
        self._replicas.append(extender)
        await extender.ready()
        return extender

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._at.port}"

    @contextlib.contextmanager
    def command(self, folder: Path, *options: str) -> Iterator[tuple[Program, str]]:
        """``slacktide scheduler`` as a process of its own, under the same account; and where its metrics are."""
        program, port = Program("slacktide scheduler", folder / "scheduler.log"), free_port()
        given = {
            "bootstrap": self.bootstrap,
            "kubeconfig": self._at.account.kubeconfig,
            "port": self._at.port,
            "metrics-port": port,
            "log-format": "json",
        }
        url = f"http://127.0.0.1:{port}"
        program.start(
            [SLACKTIDE, "scheduler", *(f"--{name}={value}" for name, value in given.items()), *options],
            lambda: answers(f"{url}/ready"),
        )
        try:
            yield program, url
        finally:
            program.stop()

    def node(self, *, cpu: int = 8, batch: int = 6_000, use: int = 1_000, said: bool = True, **other: Any) -> str:
        """A node that sells ``batch`` millicores, as the bridge would have written it; the log says the same."""
        sold = {"kubernetes.io/batch-cpu": str(batch), "kubernetes.io/batch-memory": "12Gi"}
        size = {"cpu": str(cpu), "memory": "16Gi", "pods": "110", **sold}
        name = self.cluster.node(f"n-{secrets.token_hex(4)}", {"capacity": size, "allocatable": size})
        self._nodes.append(name)
        # A new node is tainted as not ready, and no controller looks whether it is.
        self.cluster.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        if said:
            self.say(name, cpu=cpu, batch=batch, use=use, **other)
        return name

    def say(self, node: str, *, cpu: int = 8, batch: int | None = 6_000, use: int = 1_000, **other: Any) -> None:
        seq = self._said[node][0].seq + 1 if node in self._said else 1
        known = {"node": node, "boot_id": "1-a", "seq": seq, "observed_ms": 1_700_000_000_000, "policy_version": "p",
                 "facts_revision": "f", "pods_revision": "r", **other}  # fmt: skip
        window = {"window_ms": 300_000, "covered_ms": 300_000}
        used = Use(cpu_milli=use, mem_bytes=GIB)
        self._said[node] = [
            NodeScore(**known, allocatable=Use(cpu_milli=cpu * 1_000, mem_bytes=16 * GIB), use=used, prod_use=used,
                      batch_left=Use(cpu_milli=batch or 0, mem_bytes=12 * GIB)),
            NodeMetric(**known, **window, samples=300, node_use=used, system_use=used),
            NodeAllocatable(**known, **window, batch_cpu_milli=batch, batch_mem_bytes=12 * GIB),
        ]  # fmt: skip

    async def describe(self, node: str, annotations: dict[str, str] | None = None, *, cpu: int = 8) -> None:
        whole = Resources(cpu_milli=1_000 * cpu, mem_bytes=16 * GIB)
        facts = NodeFacts(name=node, capacity=whole, allocatable=whole, annotations=annotations or {})
        told = NodeInventory(node=node, revision=revision_of(facts), facts=facts, writer_epoch=1)
        await self.put(Out(topic=INVENTORY.name, key=node.encode(), value=encode(told)))

    def forget(self, node: str) -> None:
        del self._said[node]
        self._nodes.remove(node)

    def said(self) -> Iterable[tuple[Topic, Message]]:
        for figures in self._said.values():
            yield from zip(self.topics, figures, strict=True)

    async def pods(
        self, count: int, *, cpu: str = "300", memory: str = "64Mi", named: str = "",
        labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any,
    ) -> list[str]:  # fmt: skip
        """Make pods at once, as a profile would make them; their names."""
        asks = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
        container = {"name": "main", "image": "none", "resources": {"requests": asks, "limits": asks}}
        parts = {
            "labels": {"koordinator.sh/qosClass": "BE", **(labels or {})},
            "annotations": annotations or {},
            "spec": {
                "schedulerName": "koord-scheduler",
                "priorityClassName": "koord-batch",
                "containers": [container],
                **spec,
            },
        }
        names = [f"{named or 'p'}-{secrets.token_hex(5)}" for _ in range(count)]
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            made = [
                loop.run_in_executor(threads, lambda name=name: self.cluster.pod(self.namespace, name, **parts))
                for name in names
            ]
            await asyncio.gather(*made)
        return names

    async def gang(
        self, name: str, pods: int, *, least: int | None = None, gated: bool = True, **given: Any
    ) -> list[str]:
        """Make the pods of a gang by annotations, as the webhook would gate them; their names."""
        gates = {"schedulingGates": [{"name": GATE}]} if gated else {}
        annotations = {NAME: name, LEAST: str(pods if least is None else least)}
        return await self.pods(pods, named=name, annotations=annotations, **gates, **given)

    async def daemon_pod(self, node: str) -> str:
        """A DaemonSet's pod for a node, as its controller makes them; its name."""
        name = f"d-{secrets.token_hex(5)}"
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "1", "controller": True}
        only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only]}}}
        spec = {
            "schedulerName": "koord-scheduler",
            "affinity": affinity,
            "containers": [{"name": "main", "image": "none"}],
        }
        pod = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
        await asyncio.to_thread(self.cluster.post, f"/api/v1/namespaces/{self.namespace}/pods", pod)
        return name

    def listed(self) -> list[Json]:
        return self.cluster.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]

    def placed(self) -> Counter[str]:
        return Counter(pod["spec"]["nodeName"] for pod in self.listed() if pod["spec"].get("nodeName"))

    async def until_placed(self, count: int) -> Counter[str]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                while (placed := await asyncio.to_thread(self.placed)).total() < count:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
                return placed
        waiting = [pod["status"].get("conditions") for pod in self.listed() if not pod["spec"].get("nodeName")]
        raise AssertionError(f"{len(waiting)} pods wait: {waiting[:1]}\n{self._at.program.log_end()}")

    async def placements(self) -> list[PodPlacement]:
        return [decode(record.value, PodPlacement) for record in await self.records(PLACEMENT.name)]

    async def close(self) -> None:
        for extender in self._replicas:
            await extender.stop()
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        for pod in self.listed():
            self.cluster.delete(f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}")
        for node in self._nodes:
            self.cluster.delete(f"/api/v1/nodes/{node}")
