"""Text that users and servers write: what cannot be read is one declared error, and costs its field alone."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.cluster.bridge.job_facts import Job as BridgeJob
from slacktide.agents.cluster.bridge.job_facts import pod_facts, spec_of
from slacktide.agents.cluster.bridge.sources import place_of
from slacktide.agents.cluster.descheduler import pod as descheduler
from slacktide.agents.cluster.queue.job import Job
from slacktide.agents.cluster.queue.work import mark_of
from slacktide.agents.cluster.watching import ConfigMapName
from slacktide.agents.cluster.webhook import review
from slacktide.agents.cluster.webhook.answers import Answers
from slacktide.agents.cluster.webhook.cluster_cache import ClusterCache
from slacktide.agents.cluster.webhook.mutation import namespace_of, new_pod
from slacktide.agents.event import event_body
from slacktide.agents.kubernetes import objects
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import read_line, refused
from slacktide.agents.node.zones.kubelet import cpu_state, memory_state
from slacktide.agents.node.zones.record import held_devices
from slacktide.agents.workload import standing
from slacktide.schemas import text
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.inventory import IGNORED_MAX, NodeFacts, Pod, Resources
from slacktide.schemas.job_pod import JobSpec
from slacktide.schemas.kubernetes import listed, node_of
from slacktide.schemas.policy import parse
from slacktide.schemas.policy.effective import overlaid
from slacktide.schemas.policy.keys import seconds_of
from slacktide.schemas.policy.strategies import Colocation, CpuBurst
from slacktide.schemas.units import decimal, quantity
from slacktide.streams.decisions.admission import admitted_pod
from slacktide.streams.decisions.admission.namespace_quota import quotas_of
from slacktide.streams.decisions.burst.node_burst import pod_burst_config
from slacktide.streams.decisions.cpu_list import cpu_list
from slacktide.streams.decisions.ignored_marks import ignored_marks
from slacktide.streams.decisions.load import load_aware_estimator as thresholds
from slacktide.streams.decisions.queue import flavor_match
from slacktide.streams.decisions.queue.job import min_count
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import node_cpus
from testbed.scheduler_pods import parsed as scheduler_parsed

ROOT = Path(__file__).parents[2]
DEEP, DIGITS, LONG = "[" * 1_000, "1" * 4_301, "9" * 20_000
KEYS = """scheduling.koordinator.sh/resource-status koordinator.sh/eviction-policy koordinator.sh/eviction-priority
koordinator.sh/cpuBurst node.koordinator.sh/reservation node.koordinator.sh/raw-allocatable
node.koordinator.sh/colocation-strategy node.koordinator.sh/system-qos-resource scheduling.koordinator.sh/eviction-cost
controller.kubernetes.io/pod-deletion-cost scheduling.koordinator.sh/usage-thresholds
batch.kubernetes.io/job-completion-index batch.kubernetes.io/job-index-failure-count slacktide.io/queue-original
slacktide.io/queue node.koordinator.sh/extended-resource-spec kueue.x-k8s.io/job-min-parallelism
quota.slacktide.io/batch-cpu slacktide.io/quota-of slacktide.io/quota-percent""".split()  # noqa: SIM905 - many


def pod(written: str, amount: str = "1", time: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    """A pod whose user chose every text."""
    marks = dict.fromkeys(KEYS, written)
    metadata = {"name": "a", "namespace": "b", "uid": "u", "annotations": marks, "labels": marks}
    resources = {"requests": {"cpu": amount, "kubernetes.io/batch-cpu": amount}, "limits": {"memory": amount}}
    spec = {"containers": [{"name": "c", "resources": resources}], "nodeName": "n"}
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": time}
    status = {"conditions": [condition], "startTime": time, "phase": "Running"}
    return {"metadata": metadata | {"creationTimestamp": time}, "spec": spec, "status": status}


def node(written: str, amount: str = "4") -> dict[str, Any]:
    sold = {"cpu": amount, "memory": "8Gi", "pods": amount}
    return {"metadata": pod(written)["metadata"], "status": {"capacity": sold, "allocatable": sold}}


def whole(written: str) -> str:
    """Without half surrogate pairs, which no JSON carries."""
    return written.encode(errors="replace").decode()


def of_job(written: str) -> object:
    spec = {"template": {"spec": {"containers": []}}}
    metadata = pod(whole(written))["metadata"]
    job = Job(msgspec.Raw(msgspec.json.encode({"metadata": metadata, "spec": spec})))
    return job.pod_sets, job.done


TEXTS: dict[str, Callable[[str], object]] = {
    "JSON": lambda given: text.json_of(given, object, where=""),
    "whole number": lambda given: text.integer_of(given, where=""),
    "time": lambda given: text.time_ms_of(given, where=""),
    "quantity": quantity,
    "decimal": decimal,
    "duration": seconds_of,
    "CPU list": cpu_list,
    "pod": lambda given: listed(pod(given, given, given), "here"),
    "descheduler": lambda given: descheduler.parsed(msgspec.convert(pod(given, given, given), objects.Pod)),
    "scheduler": lambda given: scheduler_parsed(pod(given, given, given)),
    "thresholds": lambda given: thresholds.own_thresholds(dict.fromkeys(KEYS, given)),
    "duration of thresholds": lambda given: thresholds.own_thresholds({thresholds.ANNOTATION: msgspec.json.encode(
        {"aggregatedUsage": {"usageAggregationType": "p95", "usageAggregatedDuration": whole(given)}}).decode()}),
    "quota": lambda given: new_pod(pod(given, given)).requests,
    "bounds": lambda given: quotas_of({"quota.slacktide.io/batch-cpu": given}),
    "Node": lambda given: node_of(node(given, given), "here"),
    "places": lambda given: place_of(msgspec.convert(node(given, given), objects.Node), NodeFacts(
        name="n", capacity=Resources(), allocatable=Resources(), reserved=Resources())),
    "overlay": lambda given: overlaid(Colocation(), dict.fromkeys(KEYS, given), dict.fromkeys(KEYS, given)),
    "system CPUs": lambda given: node_cpus(node_of(node(given), "here").facts, []),
    "Namespace": lambda given: namespace_of({"metadata": {"managedFields": [{"time": given}]}}),
    "pod of a Job": lambda given: pod_facts(msgspec.convert(pod(given, given, given), objects.Pod), frozenset(), None),
    "Job": of_job,
    "mark": lambda given: mark_of(dict.fromkeys(KEYS, given)),
    "partial admission": lambda given: min_count(dict.fromkeys(KEYS, given)),
    "quota of nodes": lambda given: flavor_match.quota_percent(
        {"slacktide.io/quota-of": "batch", "slacktide.io/quota-percent": given}, "q"),
    "extended resources": admitted_pod.read,
    "burst": lambda given: pod_burst_config(CpuBurst(), given),
    "ConfigMap": lambda given: parse({"kind": "ConfigMap", "data": {"colocation-config": given}}, "here"),
}  # fmt: skip
BODIES: dict[str, Callable[[bytes], object]] = {
    "answer": lambda body: text.answer_of(body, object, where=""),
    "question": review.asked,
    "watch": lambda body: read_line(body, "here", dict),
    "refusal": lambda body: refused("here", 500, body, body.decode(errors="replace")),
    "workload": lambda body: standing(200, body),
    "CPU state": cpu_state,
    "memory state": memory_state,
    "devices": held_devices,
}
HOSTILE = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=40),
    st.sampled_from([
        DEEP, '{"a":' * 1_000, DEEP + "]" * 1_000, DIGITS, LONG, f"{LONG}m", f"-{DIGITS}", f"1e{DIGITS}", f"{LONG}s",
        "1e99Ei", "9E", "\u0661\u0662", "\ud800", '"\\ud800"', "1_000", " 1", "nan", "-inf", "null", "3", '"x"', "[]",
        '{"cpuset": [1]}', '{"resources": {"cpu": [[[1]]]}}', f'{{"cpuset": {DIGITS}}}', "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
    ]),
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                 lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
                     ["cpuset", "resources", "reservedCPUs", "cpu", "policy", "template"]), inner, max_size=3),
                 max_leaves=8).map(lambda made: msgspec.json.encode(made).decode()),
)  # fmt: skip


@pytest.mark.parametrize("parser", TEXTS)
@given(HOSTILE)
def test_a_parser_of_text_raises_what_it_declares(parser: str, written: str) -> None:
    declared = (SlacktideError, ValueError) if parser == "duration" else SlacktideError
    raised = ""
    try:
        TEXTS[parser](written)
    except declared as exc:
        raised = str(exc)
    assert len(raised) < 8_000


@pytest.mark.parametrize("parser", BODIES)
@given(HOSTILE)
def test_a_parser_of_a_body_raises_what_it_declares(parser: str, written: str) -> None:
    raised = ""
    try:
        BODIES[parser](written.encode(errors="surrogatepass"))
    except SlacktideError as exc:
        raised = str(exc)
    assert len(raised) < 8_000


@pytest.mark.parametrize("written", [DEEP, DIGITS, LONG])
def test_what_a_user_writes_hides_no_pod_and_is_reported(written: str) -> None:
    item, notes = pod(written, "9E"), []

    assert [one.uid for one in listed(item, "here").pods] == ["u"]
    typed = msgspec.convert(item, objects.Pod)
    assert descheduler.parsed(typed, notes.append).pod.cpuset == scheduler_parsed(item).asked.pod.cpuset == ""
    assert any("resource-status" in note for note in notes)
    assert any("counts as" in note for note in notes)
    assert pod_facts(typed, frozenset(), None).index is None
    facts = node_of(node(written), "here").facts
    assert facts.reserved == Resources()
    named = " ".join(ignored_marks(facts))
    assert [key for key in KEYS if key.startswith("node.") and key not in named] == [
        "node.koordinator.sh/extended-resource-spec"
    ]
    assert "usage-thresholds" in named
    job = {"metadata": item["metadata"], "spec": {"template": {"metadata": item["metadata"]}}}
    spec = spec_of(msgspec.convert(job, BridgeJob))
    assert {part.partition(".annotations")[0] for part in spec.ignored} == {"metadata", "spec.template.metadata"}
    [listed_pod] = listed(item, "here").pods
    assert decode(encode(spec), JobSpec) == spec
    assert decode(encode(listed_pod), Pod) == listed_pod
    assert len(listed_pod.ignored) == IGNORED_MAX


@pytest.mark.parametrize("priority", [-(2**31), 2**31 - 1])
def test_any_priority_that_a_class_may_have_hides_no_pod(priority: int) -> None:
    item = pod("")
    item["spec"]["priority"] = priority
    [found] = listed(item, "here").pods
    assert found.priority == priority
    assert decode(encode(found), Pod) == found


def test_a_pod_that_is_annotated_as_if_it_were_static_has_a_uid_that_a_record_holds() -> None:
    item = pod("")
    item["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": LONG}
    [found] = listed(item, "here").pods
    assert decode(encode(found), Pod) == found


def test_the_text_of_an_event_has_as_many_bytes_as_the_api_server_accepts() -> None:
    body = event_body({"name": "a"}, end=".x", by=("c", "i"), reason="R", action="A", note="\u2192" * 2_000, at_ms=0)
    assert body["message"] == "\u2192" * 341


def test_a_list_keeps_every_object_whatever_is_nested_in_one() -> None:
    deep = b'{"f": ' * 5_000 + b'"]}"' + b"}" * 5_000
    body = b'{"items": [{"name": "a", "managedFields": ' + deep + b'}, {"name": "b"}]}'

    assert [one["name"] for one in text.answer_of(body, dict, where="")["items"]] == ["a", "b"]


PARSES = {"json.decode", "json.loads", "json.Decoder", "datetime.fromisoformat", "orjson.loads"}
EXCEPTED = {
    "schemas/text.py": "the one parser",
    "schemas/codec.py": "records: every failure is a BadMessageError",
    "schemas/sample_columns_codec.py": "records: every failure is a BadMessageError",
    "agents/node/cgroup/apply.py": "a file of the agent",
    "agents/node/knobs.py": "a file of the agent",
    "agents/node/spool.py": "a file of the agent",
}
NUMBERS = EXCEPTED | {
    "schemas/headers.py": "a sequence number",
    "schemas/policy/keys.py": "after a pattern, in at most 40 characters",
    "schemas/sample.py": "after a pattern of fixed length",
    "schemas/units.py": "after a pattern, in at most 64 characters",
    "agents/cluster/bridge/job_facts.py": "a quantity that was read",
    "agents/cluster/descheduler/passes.py": "percents of the policy",
    "agents/cluster/scheduler/words.py": "terms of its own reasons",
    "agents/cluster/scheduler/waiting.py": "a constant",
    "agents/node/pressure.py": "an option, after a pattern of five digits",
    "agents/node/cgroup/kernel.py": "the kernel's text",
    "agents/node/cgroup/group_knobs.py": "the kernel's text",
    "agents/node/cgroup/parse.py": "the kernel's text, after its length",
    "agents/node/evict/victims.py": "terms of the worker's reasons",
    "agents/node/state.py": "a file of the agent, after a pattern",
    "agents/node/zones/reading.py": "the kernel's text, after its length",
}
ARITHMETIC = ("to_integral_value", "timestamp", "sum", "min", "max", "get")


def _parses(path: Path) -> set[str]:
    """The names of the calls in a file that would parse text by themselves."""
    found = set()
    for one in ast.walk(ast.parse(path.read_text())):
        if isinstance(one, ast.Attribute) and any(ast.unparse(one).endswith(name) for name in PARSES):
            found.add("parse")
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in {"int", "float"}:
            of = one.args[0] if one.args else ast.Constant(0)
            counted = isinstance(of, ast.Call) and ast.unparse(of.func).split(".")[-1] in ARITHMETIC
            if not (counted or isinstance(of, ast.Constant | ast.BinOp)):
                found.add("number")
    return found


@pytest.mark.parametrize(("what", "excepted"), [("parse", EXCEPTED), ("number", NUMBERS)])
def test_text_is_parsed_in_one_place(what: str, excepted: dict[str, str]) -> None:
    """Use slacktide.schemas.text and units instead: a text's length is checked there, and its errors are declared."""
    files = [path for folder in ("schemas", "agents") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if what in _parses(path)}

    assert found - excepted.keys() == set()


@pytest.mark.parametrize("amount", ["9" * 400_000, "x", "-1", DEEP])
async def test_a_pod_that_the_webhook_cannot_read_is_refused_rather_than_let_pass(amount: str) -> None:
    """As an error of the webhook it would pass by the failure policy, over its namespace's quota."""
    cache = ClusterCache(cast("ApiServer", None), ConfigMapName(namespace="s", name="c"))
    for one in (cache.profiles, cache.namespaces, cache.priority_classes):
        one.whole = True
    cache.namespaces.take({"metadata": {"name": "b", "annotations": {"quota.slacktide.io/batch-cpu": "1"}}})
    answers = Answers(
        cast("ApiServer", None), cache, (), ConfigMapName(namespace="s", name="c"), lambda _: None, lambda: 0
    )
    request = {"uid": "7f", "operation": "CREATE", "namespace": "b", "object": pod("", amount)}

    raw = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "request": request})
    response = msgspec.json.decode(await answers.mutate(raw))["response"]

    assert (response["allowed"], response["status"]["code"]) == (False, 422)
    assert len(response["status"]["message"]) < 1_000
