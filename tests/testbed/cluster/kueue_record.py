"""Worlds of queues on the real Kueue, many at once: each makes its next step, then all come to rest."""

import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testbed.kueue_worlds import PRIORITIES, VERSION, Answer, Answers, World, in_order, world

from .api_server import ApiServer, Json
from .jobs import Batch
from .queue_rig import DONE, GROUP
from .real_kueue import Kueue

AT_ONCE = 8
REST_S = 1.6
"""Without a change: set-aside workloads are tried a second after quota is given back, and come to their cycle then."""
CYCLES = 3
"""After that, of which none changes anything."""
LOG_BYTES_MAX = 1 << 25
PLURALS = {"ResourceFlavor": "resourceflavors", "Cohort": "cohorts", "ClusterQueue": "clusterqueues"}
PREEMPTOR = re.compile(r"\(UID: ([0-9a-f-]+),")


class Seen:
    """The objects of one kind as they are, and what was told of them."""

    def __init__(self, server: ApiServer, path: str, told: Callable[[Json], None] = lambda _: None) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.changed_s: dict[str, float] = {}
        """By namespace, when one of its objects changed last."""
        self._server, self._path, self._told = server, path, told
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        for event in self._server.watch(self._path):
            one = event["object"]
            key = one["metadata"].get("namespace", ""), one["metadata"]["name"]
            if event["type"] == "DELETED":
                self.objects.pop(key, None)
            else:
                self.objects[key] = one
            self._told(one)
            self.changed_s[key[0]] = time.monotonic()

    def of(self, namespace: str) -> list[Json]:
        """Those of a namespace."""
        return [one for (where, _), one in list(self.objects.items()) if where == namespace]


def is_true(one: Json, condition: str) -> bool:
    """Whether its status has that condition."""
    found = one.get("status", {}).get("conditions", ())
    return any(each["type"] == condition and each["status"] == "True" for each in found)


def job_of(workload: Json) -> str:
    """The Job's name that a Workload is for."""
    return str(workload["metadata"]["ownerReferences"][0]["name"])


class Cycles:
    """What Kueue logs of its cycles."""

    def __init__(self, log: Path) -> None:
        self.count, self.idle = 0, False
        """Those that are complete, and whether it waits for heads."""
        self._log, self._at, self._rest = log, 0, b""

    def read(self) -> None:
        """Read on. Where heads are tried again and again, the log grows by megabytes: it begins anew."""
        with self._log.open("rb") as file:
            file.seek(self._at)
            *lines, self._rest = (self._rest + file.read()).split(b"\n")
            self._at = file.tell()
        for line in lines:
            if b'"Scheduling cycle complete"' in line:
                self.count += 1
            self.idle = b'"Scheduling cycle starts"' in line or (self.idle and b'"Obtained heads"' not in line)
        if self._at > LOG_BYTES_MAX:
            os.truncate(self._log, 0)
            self._at = 0


class Recording:
    """Worlds on a running Kueue."""

    def __init__(self, server: ApiServer, kueue: Kueue, seeds: Iterable[int], *, fair: bool) -> None:
        self._server, self._cycles = server, Cycles(kueue.program.log)
        self._fair = fair
        self.worlds = {seed: world(seed) for seed in seeds}
        self._evicted: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        """Job, uid of the preemptor and reason, of each namespace since its last step."""
        self._preempted: set[str] = set()
        self._workloads = Seen(server, f"{GROUP}/workloads", self._note)
        self._jobs = Seen(server, "/apis/batch/v1/jobs")
        self._queues = Seen(server, f"{GROUP}/clusterqueues")
        self._batch: dict[tuple[str, str], Batch] = {}
        self._steps: dict[int, list[Answer]] = {seed: [] for seed in self.worlds}
        self.restless: set[int] = set()
        """Worlds that did not come to rest."""

    def _note(self, workload: Json) -> None:
        """An eviction is told once: with the change of its condition."""
        uid = workload["metadata"]["uid"]
        if not is_true(workload, "Preempted"):
            self._preempted.discard(uid)
        elif uid not in self._preempted:
            self._preempted.add(uid)
            [one] = [each for each in workload["status"]["conditions"] if each["type"] == "Preempted"]
            found = PREEMPTOR.search(one["message"])
            by = found[1] if found else ""
            self._evicted[workload["metadata"]["namespace"]].append((job_of(workload), by, one["reason"]))

    def run(self) -> list[Answers]:
        """Make all steps, and return what Kueue made of those worlds that came to rest after each."""
        for name, value in PRIORITIES.items():
            body = {"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
            self._server.post(f"{GROUP}/workloadpriorityclasses", body)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(self._begin, self.worlds.values()))
            names = {one["metadata"]["name"] for each in self.worlds.values() for one in each.objects
                     if one["kind"] == "ClusterQueue"}  # fmt: skip
            self._server.wait(lambda: all(is_true(self._queues.objects.get(("", one), {}), "Active") for one in names),
                              "all ClusterQueues are active")  # fmt: skip
            for at in range(max(len(each.steps) for each in self.worlds.values())):
                turns = {seed: one for seed, one in self.worlds.items() if at < len(one.steps)}
                finished = dict(zip(turns, threads.map(lambda one: self._step(one, at), turns.values()), strict=True))  # noqa: B023
                self._rest()
                for seed, one in turns.items():
                    self._steps[seed].append(self._answer(one, finished[seed]))
                    if not self._settled(one.name) or self._changed_s(one.name) > time.monotonic() - REST_S:
                        self.restless.add(seed)
        return [
            Answers(seed, self._uids(one.name), self._steps[seed], self._fair)
            for seed, one in self.worlds.items()
            if seed not in self.restless
        ]

    def _begin(self, one: World) -> None:
        self._server.post("/api/v1/namespaces", {"metadata": {"name": one.name}})
        for each in one.objects:
            where = PLURALS.get(each["kind"]) or f"namespaces/{one.name}/localqueues"
            self._server.post(f"{GROUP}/{where}", each)

    def _step(self, one: World, at: int) -> str:
        """Let a Job arrive, or one that runs finish, and return the name of that."""
        step = one.steps[at]
        if isinstance(step, dict):
            name, spec = step["metadata"]["name"], dict(step["spec"])
            pod = spec.pop("template")["spec"]
            labels = step["metadata"]["labels"]
            self._batch[one.name, name] = Batch(self._server, name, namespace=one.name, labels=labels, pod=pod, **spec)
            return ""
        running = sorted(map(job_of, self._running(one.name)))
        if not running:
            return ""
        name = running[int(step * len(running))]
        self._batch[one.name, name].run(lambda *_: DONE, lambda _: False)
        return name

    def _running(self, namespace: str) -> list[Json]:
        return [
            one for one in self._workloads.of(namespace) if is_true(one, "Admitted") and not is_true(one, "Finished")
        ]

    def _answer(self, one: World, finished: str) -> Answer:
        names = {uid: name for name, uid in self._uids(one.name).items()}
        evicted = [(job, names.get(by, by), why) for job, by, why in self._evicted.pop(one.name, [])]
        running = {
            job_of(each): each["status"]["admission"]["podSetAssignments"][0]["flavors"]
            for each in self._running(one.name)
        }
        return Answer({name: running[name] for name in sorted(running)}, in_order(evicted), finished)

    def _uids(self, namespace: str) -> dict[str, str]:
        return {job_of(one): one["metadata"]["uid"] for one in self._workloads.of(namespace)}

    def _rest(self, within_s: float = 60.0) -> None:
        """Return when nothing changed for a while, and cycles after that changed nothing either."""
        began_s, waits_since, cycles_since = time.monotonic(), 0.0, 0
        while time.monotonic() < began_s + within_s:
            changed_s = max((began_s, *map(self._changed_s, self._names)))
            if time.monotonic() - changed_s < REST_S or not all(map(self._settled, self._names)):
                waits_since = 0.0
            elif waits_since < changed_s:
                self._cycles.read()
                waits_since, cycles_since = time.monotonic(), self._cycles.count
            else:
                self._cycles.read()
                if self._cycles.idle or self._cycles.count >= cycles_since + CYCLES:
                    return
            time.sleep(0.2)

    def _changed_s(self, namespace: str) -> float:
        return max(each.changed_s.get(namespace, 0.0) for each in (self._workloads, self._jobs))

    @property
    def _names(self) -> list[str]:
        return [one.name for seed, one in self.worlds.items() if seed not in self.restless]

    def _settled(self, namespace: str) -> bool:
        """Whether all its Jobs have a Workload, and those that run and stop have done so."""
        workloads, jobs = self._workloads.of(namespace), self._jobs.of(namespace)
        ended = {job_of(one) for one in workloads if is_true(one, "Finished")}
        for one in workloads:
            if is_true(one, "Evicted") and is_true(one, "QuotaReserved"):
                return False
        for job in jobs:
            complete, active = is_true(job, "Complete"), job.get("status", {}).get("active", 0)
            if complete and job["metadata"]["name"] not in ended:
                return False
            if not complete and bool(job["spec"].get("suspend")) == bool(active):
                return False
        return len(workloads) == len(jobs)
