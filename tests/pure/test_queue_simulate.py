"""``slacktide queue simulate``: Kubernetes objects in, what would happen out."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slacktide.deploy.cli.main import cli

QUEUE = {"kueue.x-k8s.io/queue-name": "q"}
START = "2026-03-01T12:00:00Z"


def simulate(folder: Path, items: list, *options: str, more: list | None = None) -> Result:
    (folder / "cluster.yaml").write_text(json.dumps({"kind": "List", "items": items}))
    arguments = ["queue", "simulate", str(folder / "cluster.yaml"), *options]
    if more is not None:
        (folder / "more.yaml").write_text(json.dumps(more[0] if len(more) == 1 else {"kind": "List", "items": more}))
        arguments += ["--with", str(folder / "more.yaml")]
    return CliRunner().invoke(cli, arguments)


def objects(done: Result) -> tuple[list, dict]:
    """Events, and workloads by their name."""
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    events = [(one["event"], one["workload"]) for one in lines if "event" in one]
    return events, {one["workload"]: one for one in lines if "event" not in one}


def cluster_queue(name="cq", cpu="4", memory="8Gi", **spec) -> dict:
    resources = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": memory}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "f", "resources": resources}]}
    spec = {"resourceGroups": [group], "namespaceSelector": {}, **spec}
    return {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def local_queue(queue="cq", namespace="ns") -> dict:
    return {"kind": "LocalQueue", "metadata": {"namespace": namespace, "name": "q"}, "spec": {"clusterQueue": queue}}


def template(cpu="1", **spec) -> dict:
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **spec}}


def job(name, cpu="1", parallelism=1, *, namespace="ns", run="60", created=START, labels=QUEUE, **spec) -> dict:
    metadata = {
        "namespace": namespace,
        "name": name,
        "uid": f"uid-{name}",
        "creationTimestamp": created,
        "labels": labels,
        "annotations": {"slacktide.io/run-seconds": run} if run else {},
    }
    return {
        "kind": "Job",
        "metadata": metadata,
        "spec": {"parallelism": parallelism, "template": template(cpu), **spec},
    }


def workload(name, cpu="1", *, admitted=None, **status) -> dict:
    if admitted:
        condition = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": START}
        usage = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": admitted}, "count": 1}
        admission = {"clusterQueue": "cq", "podSetAssignments": [usage]}
        status = {"admission": admission, "conditions": [condition]} | status
    return {
        "kind": "Workload",
        "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}", "creationTimestamp": START},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": template(cpu)}]},
        "status": status,
    }


BASE = [cluster_queue(), local_queue()]


def test_jobs_are_admitted_by_quota_and_what_waits_states_what_it_lacks(tmp_path) -> None:
    events, found = objects(simulate(tmp_path, [*BASE, job("a", "3", run=""), job("b", "2")], "--json"))

    assert events == [("arrived", "ns/a"), ("arrived", "ns/b"), ("admitted", "ns/a")]
    assert (found["ns/a"]["state"], found["ns/b"]["state"]) == ("running", "waiting")
    assert (found["ns/b"]["mode"], found["ns/b"]["missing"], found["ns/b"]["position"]) == (
        "Preempt",
        {"f/cpu": 1000},
        1,
    )


def test_the_report_shows_events_states_and_what_is_lost(tmp_path) -> None:
    classes = [
        {"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 10},
        {"kind": "PriorityClass", "metadata": {"name": "low"}, "value": -1, "globalDefault": True},
    ]
    queue = cluster_queue(preemption={"withinClusterQueue": "LowerPriority"})
    labels = {**QUEUE, "kueue.x-k8s.io/priority-class": "high"}
    late = job("b", "4", created="2026-03-01T12:00:30Z", labels=labels)
    done = simulate(tmp_path, [queue, local_queue(), *classes, job("a", "3"), late])

    assert (
        done.stdout
        == """\
TIME                  EVENT     WORKLOAD  QUEUE  DETAIL
2026-03-01T12:00:00Z  arrived   ns/a      cq
2026-03-01T12:00:00Z  admitted  ns/a      cq     3 cpu of f
2026-03-01T12:00:30Z  arrived   ns/b      cq
2026-03-01T12:00:30Z  evicted   ns/a      cq     InClusterQueue for ns/b (priority 10)
2026-03-01T12:00:30Z  admitted  ns/b      cq     4 cpu of f
2026-03-01T12:01:30Z  finished  ns/b      cq
2026-03-01T12:01:30Z  admitted  ns/a      cq     3 cpu of f
2026-03-01T12:02:30Z  finished  ns/a      cq

WORKLOAD  QUEUE  STATE     POSITION  WAIT  MODE  REASON  LACKS
ns/a      cq     finished
ns/b      cq     finished

at 2026-03-01T12:02:30Z: 1 eviction, 90 core-seconds lost
"""
    )


def test_a_change_is_compared_with_what_happens_without_it(tmp_path) -> None:
    items = [*BASE, job("a", "4", run=""), job("b", "4")]
    _, found = objects(simulate(tmp_path, items, "--json", more=[cluster_queue(cpu="8")]))
    assert (found["ns/b"]["state"], found["ns/b"]["state_without_the_change"]) == ("finished", "waiting")

    done = simulate(tmp_path, items, more=[job("c", "5")])
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith("ns/")}
    assert rows["ns/b"].endswith("waiting")
    assert rows["ns/c"].endswith("absent")


def test_more_than_there_ever_is_can_never_be_admitted(tmp_path) -> None:
    _, found = objects(simulate(tmp_path, [*BASE, job("a", "5")], "--json", "--corrected"))
    assert (found["ns/a"]["reason"], found["ns/a"]["wait"]["state"]) == ("ExceedsMaxQuota", "never")


def test_workloads_are_the_state_at_the_beginning(tmp_path) -> None:
    """One holds quota, one waits in backoff, one is done, one is idle; a Job of a Workload does not come twice."""
    owned = workload("first", admitted="4")
    owned["metadata"]["ownerReferences"] = [{"kind": "Job", "uid": "uid-j"}]
    owned["metadata"]["annotations"] = {"slacktide.io/run-seconds": "30"}
    requeued = {"type": "Requeued", "status": "False", "reason": "PodsReadyTimeout", "lastTransitionTime": START}
    backoff = workload("backoff", requeueState={"requeueAt": "2026-03-01T12:01:00Z"}, conditions=[requeued])
    finished = workload("done", conditions=[{"type": "Finished", "status": "True"}])
    idle = workload("idle")
    idle["spec"]["active"] = False
    items = [*BASE, owned, workload("next"), backoff, finished, idle, job("j")]
    done = simulate(tmp_path, items, "--json")

    events, found = objects(done)
    assert events == [("finished", "ns/first"), ("admitted", "ns/next"), ("admitted", "ns/backoff")]
    assert set(found) == {"ns/first", "ns/next", "ns/backoff"}


def test_pods_that_are_done_free_their_quota(tmp_path) -> None:
    held = workload("h", admitted="4", reclaimablePods=[{"name": "main", "count": 1}])
    _, found = objects(simulate(tmp_path, [*BASE, held, job("a", "4")], "--json"))
    assert found["ns/a"]["state"] == "finished"


def test_by_shares_the_queue_that_borrows_less_goes_first(tmp_path) -> None:
    queues = [cluster_queue(name, "1", cohort="all") for name in ("x", "y")]
    cohort = {
        "kind": "Cohort",
        "metadata": {"name": "all"},
        "spec": {"resourceGroups": cluster_queue(cpu="2")["spec"]["resourceGroups"]},
    }
    queues[0]["spec"]["fairSharing"] = {"weight": "100m"}
    items = [*queues, cohort, local_queue("x", "nx"), local_queue("y", "ny")]
    jobs = [
        job("a", "3", namespace="nx", run=""),
        job("b", "3", namespace="ny", run="", created="2026-03-01T12:00:00.4Z"),
    ]
    for options, first in (([], "nx/a"), (["--fair-sharing"], "ny/b")):
        events, _ = objects(simulate(tmp_path, [*items, *jobs], "--json", *options))
        assert ("admitted", first) in events


def test_what_cannot_be_queued_is_left_out_by_name(tmp_path) -> None:
    missing_class = job("c", labels={**QUEUE, "kueue.x-k8s.io/priority-class": "none"})
    items = [*BASE, local_queue("gone", "other"), job("a", labels={}), job("b", namespace="other"), missing_class]
    out = simulate(tmp_path, items).stdout
    assert "Job ns/a: left out: it has no label kueue.x-k8s.io/queue-name" in out
    assert "Job other/b: left out: ClusterQueue gone is not in the files" in out
    assert "Job ns/c: left out: its priority class is not in the files" in out


@pytest.mark.parametrize(
    ("selector", "labels", "reason"),
    [
        (None, {}, "NamespaceMismatch"),
        ({"matchLabels": {"team": "x"}}, {}, "NamespaceMismatch"),
        ({"matchLabels": {"team": "x"}}, {"team": "x"}, "assumed"),
        ({"matchLabels": {"kubernetes.io/metadata.name": "ns"}}, {}, "assumed"),
    ],
)
def test_a_cluster_queue_takes_the_namespaces_that_it_selects(tmp_path, selector, labels, reason) -> None:
    namespace = {"kind": "Namespace", "metadata": {"name": "ns", "labels": labels}}
    items = [cluster_queue(namespaceSelector=selector), local_queue(), namespace, job("a")]
    assert objects(simulate(tmp_path, items, "--json"))[1]["ns/a"]["reason"] == reason


def test_a_recorded_job_runs_for_as_long_as_it_took(tmp_path) -> None:
    one = job("a", run="")
    one["status"] = {"startTime": "2026-03-01T13:00:00Z", "completionTime": "2026-03-01T13:00:07Z"}
    done = simulate(tmp_path, [*BASE, one])
    assert "2026-03-01T12:00:07Z  finished  ns/a" in done.stdout


def test_an_object_without_a_namespace_is_in_the_default_one_and_needs_no_uid(tmp_path) -> None:
    one = job("a")
    del one["metadata"]["namespace"], one["metadata"]["uid"]
    _, found = objects(simulate(tmp_path, [cluster_queue(), local_queue(namespace="default"), one], "--json"))
    assert found["default/a"]["state"] == "finished"


def test_the_time_may_be_limited(tmp_path) -> None:
    assert "finished" not in simulate(tmp_path, [*BASE, job("a", run="60")], "--for", "59s").stdout
    assert "finished" in simulate(tmp_path, [*BASE, job("a", run="60")], "--for", "60s").stdout


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (cluster_queue(cpu="four"), "ClusterQueue cq: cpu"),
        (cluster_queue(queueingStrategy="Sometimes"), "items[0].spec.queueingStrategy"),
        (job("a", run="soon"), "ns/a: metadata.annotations[slacktide.io/run-seconds]: 'soon'; accepted: whole seconds"),
        (job("a", created="yesterday"), "'yesterday' is not a time such as 2026-03-01T12:00:00Z"),
        (
            {"kind": "Cohort", "metadata": {"name": "c"}, "spec": {"parentName": "c"}},
            "Cohort c: it is its own ancestor",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(tmp_path, item, said) -> None:
    done = simulate(tmp_path, [item, *BASE[1:], *([cluster_queue()] if item["kind"] != "ClusterQueue" else [])])
    assert done.exit_code == 1
    assert said in done.output


def test_the_page_shows_what_its_example_comes_to() -> None:
    docs = Path(__file__).parents[2] / "docs"
    done = CliRunner().invoke(cli, ["queue", "simulate", str(docs / "queue-example.yaml")])
    shown = "".join(f"    {line}".rstrip() + "\n" for line in done.stdout.splitlines())
    assert shown in (docs / "queue-simulate.md").read_text()
