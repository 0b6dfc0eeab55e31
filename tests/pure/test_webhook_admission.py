"""A new pod's admission, from the API server's question to its answer."""

import base64
from collections import Counter
from typing import Any, cast

import msgspec
import pytest

from slacktide.agents.cluster.watching import ConfigMapName
from slacktide.agents.cluster.webhook import review
from slacktide.agents.cluster.webhook.answers import Answers
from slacktide.agents.cluster.webhook.cluster_cache import ClusterCache
from slacktide.agents.cluster.webhook.mutation import (
    Admission,
    admission,
    drawn,
    gated_by_gang,
    in_accord,
    marked,
    namespace_of,
    new_pod,
    priority_class_of,
    profile_of,
    with_cores,
)
from slacktide.agents.cluster.webhook.quota import NamespaceQuota, answer
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Resources
from slacktide.schemas.pod_admission import PodAdmission
from slacktide.schemas.text import excess_of
from slacktide.streams.decisions.admission.label_selector import InvalidSelector
from slacktide.streams.decisions.admission.namespace_quota import Held, judged, quotas_of
from slacktide.streams.decisions.admission.webhook_colocation_profile import PriorityClass
from slacktide.streams.decisions.cores.placement import RESOURCE_CORES
from slacktide.streams.decisions.gang.membership import GATE as GANG_GATE
from slacktide.streams.records import Out
from testbed.scenarios import plain, scenarios
from testbed.vectors import each_row

CLASSES = {"koord-batch": PriorityClass(value=5000, preemption_policy="PreemptLowerPriority")}


def profile(**spec: Any) -> dict[str, Any]:
    """The quick start's, as the API server gives it."""
    given = {
        "namespaceSelector": {"matchLabels": {"koordinator.sh/enable-colocation": "true"}},
        "selector": {"matchLabels": {"app-type": "batch"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "schedulerName": "koord-scheduler",
        "labels": {"koordinator.sh/mutated": "true"},
    }
    metadata = {"name": "batch-workload-profile", "uid": "1"}
    return {"apiVersion": "v1", "kind": "ClusterColocationProfile", "metadata": metadata, "spec": given | spec}


def request(of: dict[str, Any], operation: str = "CREATE") -> review.Request:
    return review.Request(uid="7f", operation=operation, namespace="batch-demo", object=of)


def test_draws_are_even_and_a_question_asked_again_is_answered_the_same() -> None:
    draws = Counter(drawn(f"uid-{number}", "p") for number in range(20_000))

    assert set(draws) == set(range(100))
    assert max(draws.values()) < 2 * min(draws.values())
    assert drawn("uid", "p") == drawn("uid", "p") != drawn("uid", "q")


def test_a_selector_that_kubernetes_would_refuse_is_read_as_such() -> None:
    odd = profile_of(profile(selector={"matchExpressions": [{"key": "a", "operator": "In"}]}))

    assert isinstance(odd.selector, InvalidSelector)


@each_row("spec", "place")
def test_a_profile_of_another_shape_is_refused_with_the_place(spec: dict[str, Any], place: str) -> None:
    with pytest.raises(BadMessageError, match=place.replace("$", r"\$")):
        profile_of(profile(**spec))


def test_a_priority_class_is_read() -> None:
    read = priority_class_of({"metadata": {"name": "a"}, "value": 5000, "preemptionPolicy": "Never"})

    assert read == PriorityClass(value=5000, preemption_policy="Never")
    with pytest.raises(BadMessageError, match="value"):
        priority_class_of({"metadata": {"name": "a"}})


def test_a_patch_is_answered_as_json_patch_in_base64() -> None:
    patch = ({"op": "add", "path": "/a", "value": "b"},)
    answer = msgspec.json.decode(review.allowed(request({}), patch))

    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert msgspec.json.decode(base64.b64decode(answer["response"].pop("patch"))) == list(patch)
    assert answer["response"] == {"uid": "7f", "allowed": True, "patchType": "JSONPatch"}


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{}", b'{"apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"1"}}', b'{"request":{}}', b"\xff"],
)
def test_what_is_no_question_is_refused(raw: bytes) -> None:
    with pytest.raises(BadMessageError, match="AdmissionReview"):
        review.asked(raw)


LSR = {"koordinator.sh/qosClass": "LSR"}


@each_row("labels", "priority", "asks", "strict", "why")
def test_classes_and_resources_go_together_once_profiles_were_applied(
    labels: dict[str, str],
    priority: int,
    asks: dict[str, str],
    strict: bool,  # noqa: FBT001
    why: str,
) -> None:
    spec = {"containers": [{"name": "main", "resources": {"requests": asks}}], "priority": priority}
    of = request({"metadata": {"name": "job", "labels": labels}, "spec": spec})
    profiles = [profile_of(profile())]
    admitted = admission(of, profiles, CLASSES, {"koordinator.sh/enable-colocation": "true"})
    done = in_accord(admitted, new_pod(admitted.pod), strict=strict)

    assert done.refused.startswith(why)
    assert (done.result == "contradictory") is bool(why)


@each_row("qos", "cpu", "cores")
def test_lse_and_lsr_pods_request_cpus_of_their_own_in_the_first_container(
    qos: str, cpu: str, cores: str | None
) -> None:
    main = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    pod = {
        "metadata": {"name": "p", "labels": {"koordinator.sh/qosClass": qos}},
        "spec": {"containers": [main, {"name": "side"}], "priority": 9_500},
    }
    of = request(pod)
    done = with_cores(admission(of, [], CLASSES, {}), new_pod(pod), of)

    first, side = done.pod["spec"]["containers"]
    assert first["resources"]["requests"].get(RESOURCE_CORES) == cores
    assert first["resources"].get("limits") == (cores and {RESOURCE_CORES: cores})
    assert (first["resources"]["requests"]["memory"], side) == ("1Gi", {"name": "side"})
    assert (done.result, bool(done.patch)) == (("mutated", True) if cores else ("unchanged", False))


@scenarios("webhook_admission")
def test_admission(case: dict[str, Any]) -> None:
    """A new pod, the profiles, its namespace's labels, and what becomes of it."""
    profiles = [profile_of(one) for one in case["profiles"]]

    assert plain(admission(request(case["pod"]), profiles, CLASSES, case["labels"])) == case["gives"]


BARE = {"name": "c", "resources": {"requests": {"cpu": "1m", "memory": "1Ki"}}}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param({"x": [[]] * 11_000}, "lists and objects", id="lists"),
        pytest.param({"x": [""] * 13_000}, "keys and texts", id="texts"),
        pytest.param({"containers": [BARE] * 201}, "201 containers", id="containers"),
        pytest.param({"x": msgspec.Raw(b"[" * 5_000 + b"]" * 5_000)}, "nested deeper", id="depth"),
    ],
)
async def test_a_pod_beyond_reason_is_refused_before_it_is_read(spec: dict[str, Any], why: str) -> None:
    pod = {"metadata": {"name": "a"}, "spec": spec}
    raw = msgspec.json.encode({"apiVersion": review.API_VERSION, "request": {"uid": "7f", "object": pod}})
    nothing = cast("ApiServer", None), cast("ClusterCache", None)
    answers = Answers(*nothing, (), ConfigMapName(namespace="s", name="c"), lambda _: None, lambda: 0)

    response = msgspec.json.decode(await answers.mutate(raw))["response"]

    assert (response["uid"], response["allowed"], response["status"]["code"]) == ("7f", False, 422)
    assert why in response["status"]["message"]
    texts = msgspec.json.encode({"metadata": {"annotations": {"a": '["{' * 20_000}}, "spec": {"containers": [BARE]}})
    assert excess_of(texts) == "", "what is in a text is one text"


BORROWED, COUNTED = "quota.slacktide.io/borrowed", "quota.slacktide.io/request"
TWO_CPUS = Resources(batch_cpu_milli=2_000)


def asking(requests: dict[str, str], **annotations: str) -> dict[str, Any]:
    metadata = {"name": "a", "annotations": {"note": "kept", **annotations}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}


def answered(pod: dict[str, Any], annotations: dict[str, str], used: Resources) -> Any:
    """What becomes of a pod where others request this much."""
    of = request(pod)
    quotas = quotas_of({f"quota.slacktide.io/{name}": text for name, text in annotations.items()})
    requested = Resources(batch_cpu_milli=2_000) if BATCH_TWO in str(pod) else Resources(cpu_milli=2_000)
    done = marked(admission(of, [], CLASSES, {}), of, {BORROWED: None})
    return answer(of, done, quotas, judged(quotas, requested, [Held(used)]))


BATCH_TWO = "kubernetes.io/batch-cpu"
BATCH_POD, PROD_POD = asking({BATCH_TWO: "2k"}), asking({"cpu": "2"})


def marks(done: Any) -> dict[str, str]:
    return {key: text for key, text in done.pod["metadata"]["annotations"].items() if "koordinator" not in key}


def test_batch_beyond_its_quota_is_admitted_with_a_mark_and_a_warning() -> None:
    within = answered(BATCH_POD, {"batch-cpu": "4000"}, TWO_CPUS)
    beyond = answered(BATCH_POD, {"batch-cpu": "3999"}, TWO_CPUS)

    assert (within.result, within.warnings) == ("mutated", ())
    assert marks(within) == {"note": "kept", COUNTED: "7f"}
    assert beyond.result == "borrowed"
    assert marks(beyond) == {"note": "kept", COUNTED: "7f", BORROWED: "true"}
    [warning] = beyond.warnings
    assert warning == (
        "beyond the quota of namespace batch-demo: requested kubernetes.io/batch-cpu=2000, used 2000, quota 3999; the "
        "pod borrows idle resources, and is evicted first"
    )


def test_who_wants_a_strict_quota_gets_a_refusal_with_the_numbers() -> None:
    refused = answered(BATCH_POD, {"batch-cpu": "3999", "batch-borrowing": "never"}, TWO_CPUS)
    prod = answered(PROD_POD, {"prod-cpu": "3"}, Resources(cpu_milli=1_500))

    assert (refused.result, refused.patch) == ("over_quota", ())
    assert "requested kubernetes.io/batch-cpu=2000, used 2000, limited to 3999" in refused.refused
    assert prod.refused == (
        "exceeded quota of namespace batch-demo: requested cpu=2000m, used 1500m, limited to 3000m by its annotation "
        "quota.slacktide.io/prod-cpu"
    )


async def admitted(pod: dict[str, Any], annotations: dict[str, str] | None, *, dry_run: bool = False) -> Any:
    """What becomes of a pod that no quota counts, and the records: no list of pods is read."""
    records: list[Out] = []
    quota = NamespaceQuota(cast("ApiServer", None), records.append, lambda: 7)
    of = msgspec.structs.replace(request(pod), dry_run=dry_run)
    namespace = None if annotations is None else namespace_of({"metadata": {"annotations": annotations}})
    done = await quota.admit(of, admission(of, [], CLASSES, {}), new_pod(pod).requests, namespace)
    return done, [decode(one.value, PodAdmission) for one in records]


@pytest.mark.parametrize("annotations", [None, {}, {"quota.slacktide.io/prod-cpu": "0"}])
async def test_a_mark_that_a_pod_brings_along_is_taken_off(annotations: dict[str, str] | None) -> None:
    done, records = await admitted(asking({BATCH_TWO: "2k"}, **{BORROWED: "true"}), annotations)

    assert done.pod["metadata"]["annotations"]["note"] == "kept"
    assert {"op": "remove", "path": "/metadata/annotations/quota.slacktide.io~1borrowed"} in done.patch
    assert not records


async def test_a_pod_without_a_mark_stays_as_it_is_where_no_quota_is() -> None:
    done, _ = await admitted(PROD_POD, {})

    assert (done.result, done.patch) == ("unchanged", ())


async def test_free_is_admitted_with_a_warning_where_somebody_set_a_quota_for_it() -> None:
    free = asking({"kubernetes.io/free-cpu": "2k"})
    done, [record] = await admitted(free, {"quota.slacktide.io/free-cpu": "much"})
    planned, [other] = await admitted(free, {"quota.slacktide.io/batch-cpu": "1"})
    _, in_dry_run = await admitted(free, {"quota.slacktide.io/batch-cpu": "1"}, dry_run=True)

    assert (done.result, done.patch) == ("unchanged", ())
    [warning] = done.warnings
    assert warning.startswith("the Namespace's annotation quota.slacktide.io/free-cpu has no effect: free has no quota")
    assert not planned.warnings
    assert (record.band, record.result, record.uses[0].asked, record.uses[0].quota) == ("free", "admitted", 2_000, None)
    assert other == record
    assert not in_dry_run, "nothing is stored"


@pytest.mark.parametrize("name", ["batch-borrowing", "prod-memory"])
async def test_an_annotation_that_cannot_be_read_lets_no_pod_pass(name: str) -> None:
    done, _ = await admitted(asking({}), {f"quota.slacktide.io/{name}": "often"})

    assert done.result == "over_quota"
    assert f"annotation quota.slacktide.io/{name}" in done.refused
    assert done.refused.endswith("correct the annotation")


GANG = {"gang.scheduling.koordinator.sh/name": "g"}


@pytest.mark.parametrize(
    ("pod", "gates"),
    [
        pytest.param({"metadata": {"annotations": GANG}, "spec": {"schedulerName": "koord-scheduler"}}, [GANG_GATE],
                     id="by annotation"),
        pytest.param({"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
                      "spec": {"schedulerName": "koord-scheduler", "schedulingGates": [{"name": "example.com/a"}]}},
                     ["example.com/a", GANG_GATE], id="behind another gate"),
        pytest.param({"metadata": {"annotations": GANG},
                      "spec": {"schedulerName": "koord-scheduler", "schedulingGates": [{"name": GANG_GATE}]}},
                     [GANG_GATE], id="gated already"),
        pytest.param({"metadata": {"annotations": GANG}, "spec": {"schedulerName": "default-scheduler"}}, [],
                     id="of another scheduler"),
        pytest.param({"metadata": {"annotations": GANG},
                      "spec": {"schedulerName": "koord-scheduler", "schedulingGroup": {"podGroupName": "g"}}}, [],
                     id="in Kubernetes' own API"),
        pytest.param({"metadata": {"annotations": GANG}, "spec": {"schedulerName": "koord-scheduler", "nodeName": "n"}},
                     [], id="on a node"),
        pytest.param({"spec": {"schedulerName": "koord-scheduler"}}, [], id="in no gang"),
    ],
)  # fmt: skip
def test_which_pods_wait_for_their_gang(pod: dict[str, Any], gates: list[str]) -> None:
    of = request({"spec": {"containers": []}} | pod)
    done = gated_by_gang(Admission(result="unchanged", pod=of.object or {}), of)

    assert [one["name"] for one in done.pod["spec"].get("schedulingGates", [])] == gates
