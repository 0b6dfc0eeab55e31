"""What the real koord-manager makes of pods and of NodeMetrics."""

import json
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from slacktide.agents.clock import SystemClock
from slacktide.schemas.units import whole
from testbed.brokers import running
from testbed.koordinator_nodes import NAMESPACE, cases, node_object, pod_object, status_of
from testbed.koordinator_pods import GROUP, Answer, World, answer_of, pods, review_of, world

from .api_server import ApiServer, Json
from .programs import unverified
from .real_koordinator import Manager, install

PROFILES = f"/apis/{GROUP}/clustercolocationprofiles"
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
FIGURES = {"batch_cpu_milli": "kubernetes.io/batch-cpu", "batch_memory_bytes": "kubernetes.io/batch-memory"}
EXACT = {"colocation-config": {"enable": True, "resourceDiffThreshold": 1e-9, "updateTimeThresholdSeconds": 1}}
"""Each figure is written, however little it changed."""
ACCEPTED = {"qosClass": "LS", "priorityClassName": "koord-prod"}
"""Whatever the profiles before it made of the probe, it is not refused."""
AT_ONCE = 8
STILL_S = 4.0


class Reviewer:
    """Webhooks that are asked about pods as the API server asks them: ``paths`` one after the other."""

    def __init__(self, url: str, *paths: str) -> None:
        self._urls = [url + path for path in paths]
        self._tls = unverified()

    def answer(self, namespace: str, pod: Json) -> Answer:
        """The answer to the creation of a pod."""
        answer = Answer(pod=pod)
        for url in self._urls:
            review = review_of(namespace, answer.pod)
            answer = answer_of(review, self._ask(url, review))
            if answer.refused:
                break
        return answer

    def _ask(self, url: str, review: Json) -> Any:
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(url, json.dumps(review).encode(), headers)
        with urllib.request.urlopen(asked, timeout=30, context=self._tls) as answer:
            return json.load(answer)


def koordinators(manager: Manager) -> Reviewer:
    """koord-manager's webhooks: one changes pods, the other judges them."""
    return Reviewer(manager.url, "/mutate-pod", "/validate-pod")


class PodsRecording:
    """Asks webhooks about generated pods."""

    def __init__(self, server: ApiServer, *reviewers: Reviewer) -> None:
        self._server, self._reviewers = server, reviewers

    def run(self, seed: int) -> Iterator[tuple[str, Json, list[Answer]]]:
        """Each pod of a world with its namespace, and the answers in the order of those who are asked."""
        of, given = world(seed), pods(seed)
        made = self._begin(seed, of)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            answers = [threads.map(lambda one: each.answer(*one), given) for each in self._reviewers]  # noqa: B023
            for (namespace, pod), *found in zip(given, *answers, strict=True):
                yield namespace, pod, found
        for name in made:
            self._server.delete(f"{PROFILES}/{name}")

    def _begin(self, seed: int, of: World) -> list[str]:
        """Make its objects, and wait until the webhooks know them; the names of all profiles."""
        for name, labels in of.namespaces.items():
            self._server.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        app = {"matchLabels": {"app": f"probe-{seed}"}}
        unlabelled = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}]}
        # koord-manager takes a namespace that it does not know for one that matches.
        probes = {
            "known": {"selector": app, "labels": {"known": "true"}, **ACCEPTED},
            "unknown": {"selector": app, "namespaceSelector": unlabelled, "labels": {"unknown": "true"}},
        }
        kind = {"apiVersion": GROUP, "kind": "ClusterColocationProfile"}
        named = {f"z-probe-{seed}-{name}": spec for name, spec in probes.items()}
        made = [*of.profiles, *({**kind, "metadata": {"name": one}, "spec": spec} for one, spec in named.items())]
        for each in made:
            self._server.post(PROFILES, each)
        metadata = {"name": "probe", "labels": {"app": f"probe-{seed}"}}
        probe = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "i", "resources": {}}]}}

        def known() -> bool:
            answers = [each.answer(name, probe) for each in self._reviewers for name in of.namespaces]
            found = [one.pod.get("metadata", {}).get("labels", {}) for one in answers]
            return all("known" in one and "unknown" not in one for one in found)

        self._server.wait(known, "the webhooks know the profiles")
        return [one["metadata"]["name"] for one in made]


@contextmanager
def koordinator(*, webhooks: bool) -> Iterator[tuple[ApiServer, Manager]]:
    """Run koord-manager, which writes each change, beside an API server."""
    with running(ApiServer) as server:
        install(server, EXACT)
        manager = Manager(server, webhooks=webhooks, qps=300)
        manager.start()
        try:
            yield server, manager
        finally:
            manager.stop()


class NodesRecording:
    """Gives koord-manager NodeMetrics as koordlet would, and reads what it writes."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def run(self, seeds: Sequence[int]) -> list[Json]:
        """Cases with their results."""
        given = {f"load-{seed}": cases(seed) for seed in seeds}
        if not self._server.exists(f"/api/v1/namespaces/{NAMESPACE}"):
            self._server.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        found = []
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(lambda each: self._begin(each[0]), given.values()))
            self._rest(given)
            for at in range(len(next(iter(given.values())))):
                now_s = SystemClock().wall_ms() // 1000
                turns = {name: each[at] for name, each in given.items()}
                list(threads.map(lambda one: self._report(*one, now_s), turns.items()))  # noqa: B023
                figures = self._rest(given)
                for name, case in turns.items():
                    case["node_metric"]["update_time_seconds"] = now_s
                    case["now_seconds"] = now_s
                    result = figures[name] | {"degraded": False}
                    found.append({"name": f"{name}/{at}", "input": case, "expected": result})
        return found

    def _begin(self, case: Json) -> None:
        node = node_object(case)
        name = node.pop("name")
        self._server.node(name, node.pop("status"), **node)
        for pod in case["pods"]:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods"
            self._server.post(path, pod_object(pod, name))
            self._server.patch(f"{path}/{pod['name']}/status", {"status": {"phase": pod["phase"]}})

    def _report(self, name: str, case: Json, now_s: int) -> None:
        metric = f"{METRICS}/{name}"
        self._server.wait(lambda: self._server.exists(metric), f"koord-manager made the NodeMetric of {name}")
        self._server.patch(f"{metric}/status", {"status": status_of(case["node_metric"], now_s)})

    def _rest(self, names: Iterable[str]) -> dict[str, Json]:
        """The figures of all Nodes when none changed for a while."""
        figures, since_s = self._figures(names), time.monotonic()
        while time.monotonic() < since_s + STILL_S:
            time.sleep(0.5)
            if (now := self._figures(names)) != figures:
                figures, since_s = now, time.monotonic()
        return figures

    def _figures(self, names: Iterable[str]) -> dict[str, Json]:
        found = self._server.get("/api/v1/nodes")["items"]
        nodes = {one["metadata"]["name"]: one["status"]["allocatable"] for one in found}
        return {
            name: {key: whole(nodes[name][of]) if of in nodes[name] else None for key, of in FIGURES.items()}
            for name in names
        }
