"""New pods as ClusterColocationProfiles change them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.calc.calculations import Calculation
from slacktide.schemas.policy.selector import Selector
from slacktide.streams.decisions.admission.admitted_pod import AdmittedPod, object_of, pod_of
from slacktide.streams.decisions.admission.pod_resource_translation import ANNOTATION
from slacktide.streams.decisions.admission.webhook_colocation_profile import Cluster, PriorityClass, Profile
from slacktide.streams.decisions.because import Because
from testbed.profile_cases import (
    BATCH_CPU,
    BATCH_MEM,
    BROKEN,
    FREE_CPU,
    GIB,
    SPARK,
    TEAM,
    admitted,
    bounds,
    changed,
    cluster,
    clusters,
    container,
    many,
    pod,
    pods,
    unmatchable,
)

QOS, PRIORITY = "koordinator.sh/qosClass", "koordinator.sh/priority"
WEB = Selector(match_labels={"app": "web"})
BATCH = Profile(name="batch", selector=SPARK, qos_class="BE", priority_class_name="koord-batch")
UNREADABLE = cluster(namespace_labels=None)


@pytest.mark.parametrize(
    ("profile", "around", "bound"),
    [
        pytest.param(Profile(name="p"), cluster(), "applied", id="no selector matches every pod"),
        pytest.param(Profile(name="p", selector=SPARK), cluster(), "applied", id="the pod's labels match"),
        pytest.param(Profile(name="p", selector=WEB), cluster(), "selector", id="the pod's labels do not"),
        pytest.param(Profile(name="p", namespace_selector=TEAM), cluster(), "applied", id="its namespace's labels do"),
        pytest.param(
            Profile(name="p", namespace_selector=TEAM, selector=SPARK), cluster(namespace_labels={}),
            "namespace_selector", id="the namespace's do not",
        ),
        pytest.param(
            Profile(name="p", namespace_selector=WEB, selector=WEB), cluster(), "namespace_selector", id="neither does",
        ),
        pytest.param(Profile(name="p", selector=BROKEN), cluster(), "invalid_selector",
                     id="an invalid selector matches nothing, other than in the reference"),
        pytest.param(Profile(name="p", namespace_selector=BROKEN), cluster(), "invalid_selector",
                     id="for namespaces neither"),
        pytest.param(Profile(name="p", namespace_selector=TEAM), UNREADABLE, "namespace_unreadable",
                     id="a namespace that cannot be read matches nothing, other than in the reference"),
        pytest.param(Profile(name="p", selector=SPARK), UNREADABLE, "applied", id="nor need it be read without cause"),
    ],
)  # fmt: skip
def test_which_pods_a_profile_is_for(profile: Profile, around: Cluster, bound: str) -> None:
    """And which it does not touch."""
    marked = replace(profile, labels={"marked": "yes"})
    mutation = admitted(pod(), marked, around=around)

    assert bounds(mutation)["profiles/p"] == bound
    assert mutation.pod.labels.get("marked") == ("yes" if bound == "applied" else None)
    assert (mutation.pod == pod()) is (bound != "applied")


def test_profiles_are_matched_against_the_labels_that_the_pod_came_with() -> None:
    first = Profile(name="a", labels={"app": "web", "new": "1"})
    then = Profile(name="b", selector=WEB, labels={"marked": "yes"})
    last = Profile(name="c", selector=SPARK, labels={"came": "as spark"})

    assert changed(pod(), first, then, last).labels == {"app": "web", "new": "1", "came": "as spark"}


@pytest.mark.parametrize("operation", ["UPDATE", "CONNECT", ""])
def test_what_is_not_created_is_not_changed(operation: str) -> None:
    batch = pod(priority=5_500, containers=(container(requests={BATCH_CPU: 1}),))

    assert admitted(batch, BATCH, operation=operation).pod == batch
    assert bounds(admitted(batch, BATCH, operation=operation)) == {"pod": "not_created"}


@pytest.mark.parametrize(
    ("probability", "drawn", "applied"),
    [
        pytest.param(100, 99, True, id="always"),
        pytest.param(0, 0, False, id="never"),
        pytest.param("0%", 0, False, id="never, as a percent"),
        pytest.param("30%", 29, True, id="the 30th of 100 draws"),
        pytest.param("30%", 30, False, id="not the 31st, other than in the reference"),
        pytest.param(30, 29, True, id="as a number"),
        pytest.param(30, 30, False, id="as a number, one too far"),
        pytest.param("+30%", 29, True, id="with a sign"),
        pytest.param("-1%", 0, False, id="less than never"),
        pytest.param(150, 99, True, id="more than always"),
    ],
)
def test_a_profile_is_applied_to_a_share_of_pods(probability: int | str, drawn: int, *, applied: bool) -> None:
    profile = Profile(name="p", probability=probability, labels={"marked": "yes"})
    mutation = admitted(pod(), profile, around=cluster(drawn=drawn))

    assert ("marked" in mutation.pod.labels) is applied
    assert mutation.because[0] == Because(
        of="profiles/p",
        bound="applied" if applied else "probability",
        terms={"probability_pct": int(str(probability).rstrip("%")), "drawn_pct": drawn},
    )


def test_without_a_probability_a_profile_is_always_applied() -> None:
    (of_profile, *_) = admitted(pod(), Profile(name="p"), around=cluster(drawn=99)).because

    assert of_profile == Because(of="profiles/p", bound="applied", terms={"probability_pct": 100, "drawn_pct": 99})


@pytest.mark.parametrize("percent", [0, 1, 30, 99, 100])
def test_a_percent_is_of_100_draws(percent: int) -> None:
    profile = Profile(name="p", probability=f"{percent}%", labels={"marked": "yes"})
    draws = [changed(pod(), profile, around=cluster(drawn=drawn)) for drawn in range(100)]

    assert sum("marked" in one.labels for one in draws) == percent


def test_each_profile_has_a_draw_of_its_own() -> None:
    half = [Profile(name=name, probability=50, labels={name: "yes"}) for name in ("a", "b")]
    around = cluster(draw={"a": 49, "b": 50}.__getitem__)

    assert changed(pod(labels={}), *half, around=around).labels == {"a": "yes"}


@pytest.mark.parametrize("text", ["abc", "30", "", "%", "3.5%", "30 %", "1_0%", "٣%", "9" * 30 + "%", "30%\n"])
def test_a_probability_that_is_none_refuses_the_pod(text: str) -> None:
    """Only where the profile matches."""
    profile = Profile(name="p", selector=SPARK, probability=text)
    mutation = admitted(pod(), profile)

    assert mutation.pod is None
    assert mutation.refused == (
        f"ClusterColocationProfile p: probability {text!r} is neither a whole number nor a percent such as 30%"
    )
    assert bounds(mutation) == {"profiles/p": "invalid_probability"}
    assert changed(pod(labels={}), profile) == pod(labels={})


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        pytest.param({"labels": {"app": "web", "b": "1"}}, {"app": "web", "b": "1"}, id="labels are set"),
        pytest.param({"label_keys_mapping": {"app": "copy"}}, {"app": "spark", "copy": "spark"}, id="copied"),
        pytest.param({"label_keys_mapping": {"none": "copy"}}, {"app": "spark", "copy": ""},
                     id="as nothing where there is nothing to copy"),
        pytest.param({"labels": {"app": "web"}, "label_keys_mapping": {"app": "copy"}}, {"app": "web", "copy": "web"},
                     id="after they are set"),
        pytest.param({"label_keys_mapping": {"b": "c", "app": "b"}}, {"app": "spark", "b": "spark", "c": "spark"},
                     id="in the order of the keys copied from"),
        pytest.param({"label_suffixes": {"app": "-x", "none": "-x"}}, {"app": "spark-x"}, id="labels get suffixes"),
        pytest.param({"label_keys_mapping": {"app": "copy"}, "label_suffixes": {"copy": "-x"}},
                     {"app": "spark", "copy": "spark-x"}, id="after they are copied"),
        pytest.param({"qos_class": "BE"}, {"app": "spark", QOS: "BE"}, id="the QoS class"),
        pytest.param({"qos_class": "BE", "labels": {QOS: "LS"}, "label_suffixes": {QOS: "x"}},
                     {"app": "spark", QOS: "BE"}, id="before that of a label"),
        pytest.param({"koordinator_priority": 0, "labels": {PRIORITY: "7"}}, {"app": "spark", PRIORITY: "0"},
                     id="the priority as text, 0 too"),
        pytest.param({"annotations": {"b": "1"}}, {"app": "spark"}, id="annotations are no labels"),
    ],
)  # fmt: skip
def test_labels(profile: dict, expected: dict) -> None:
    assert changed(pod(), Profile(name="p", **profile)).labels == expected


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        pytest.param({}, {"note": "x"}, id="kept"),
        pytest.param({"annotations": {"note": "y", "b": "1"}}, {"note": "y", "b": "1"}, id="set"),
        pytest.param({"annotations": {"note": "y"}, "annotation_keys_mapping": {"note": "copy", "none": "empty"}},
                     {"note": "y", "copy": "y", "empty": ""}, id="then copied"),
        pytest.param({"label_suffixes": {"note": "-x"}, "label_keys_mapping": {"note": "b"}}, {"note": "x"},
                     id="not by the rules for labels"),
    ],
)  # fmt: skip
def test_annotations(profile: dict, expected: dict) -> None:
    assert changed(pod(annotations={"note": "x"}), Profile(name="p", **profile)).annotations == expected


def test_scheduler_and_class() -> None:
    """A class brings its value and whom it preempts, also that it says nothing of that."""
    before = pod(scheduler_name="own", priority_class_name="own", priority=1, preemption_policy="Never")

    assert changed(before, Profile(name="p")) == before
    after = changed(before, Profile(name="p", scheduler_name="koord-scheduler", priority_class_name="koord-mid"))
    assert (after.scheduler_name, after.priority_class_name) == ("koord-scheduler", "koord-mid")
    assert (after.priority, after.preemption_policy) == (7_500, "")
    assert changed(before, BATCH).preemption_policy == "Never"


def test_a_class_that_there_is_not_refuses_the_pod() -> None:
    profile = Profile(name="p", priority_class_name="gone")
    mutation = admitted(pod(), Profile(name="a"), profile, Profile(name="z"))

    assert mutation.pod is None
    assert mutation.refused == "ClusterColocationProfile p: there is no PriorityClass gone"
    assert bounds(mutation) == {"profiles/a": "applied", "profiles/p": "unknown_priority_class"}
    assert changed(pod(), replace(profile, probability=0)) == pod(), "not where it is not applied"


def test_later_names_win() -> None:
    first = Profile(name="a", labels={"x": "a"}, qos_class="BE", priority_class_name="koord-batch", scheduler_name="a")
    last = Profile(name="b", labels={"x": "b"}, qos_class="LS", priority_class_name="koord-prod")
    after = changed(pod(), last, first)

    assert after.labels == {"app": "spark", "x": "b", QOS: "LS"}
    assert (after.priority, after.scheduler_name) == (9_500, "a")


def test_a_patch_sees_what_the_profile_set_and_has_the_last_word() -> None:
    patch = {
        "metadata": {"labels": {QOS: "LS", "app": None}, "annotations": {"note": "y"}},
        "spec": {
            "schedulerName": "mine",
            "priority": 7_700,
            "preemptionPolicy": None,
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1500m", "memory": None}}}],
        },
    }
    after = changed(pod(), replace(BATCH, scheduler_name="koord-scheduler", patch=patch))

    assert after.labels == {QOS: "LS"}
    assert after.annotations == {"note": "y"}
    assert (after.scheduler_name, after.priority, after.preemption_policy) == ("mine", 7_700, "")
    assert after.containers[0].requests == {"kubernetes.io/mid-cpu": 1_500}, "resources are translated afterwards"
    assert object_of(after)["spec"]["terminationGracePeriodSeconds"] == 5, "what is not told here is kept"


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        pytest.param("text", "the patch is not an object", id="no object"),
        pytest.param(False, "the patch is not an object", id="not even a value"),
        pytest.param({"spec": {"containers": [{}]}}, "spec.containers: an item without 'name' cannot be merged",
                     id="lists that cannot be merged"),
        pytest.param({"spec": {"priority": "high"}},
                     "not a Pod: Expected `int | null`, got `str` - at `$.spec.priority`", id="no pod afterwards"),
    ],
)  # fmt: skip
def test_a_patch_that_does_not_fit_refuses_the_pod(patch: object, why: str) -> None:
    mutation = admitted(pod(), Profile(name="p", patch=patch))

    assert mutation.pod is None
    assert mutation.refused == f"ClusterColocationProfile p: {why}"
    assert bounds(mutation) == {"profiles/p": "invalid_patch"}


@pytest.mark.parametrize(
    ("profiles", "bound", "moved"),
    [
        pytest.param([], "no_profile", False, id="without a profile"),
        pytest.param([replace(BATCH, selector=WEB)], "no_profile", False, id="with one for other pods"),
        pytest.param([BATCH], "batch", True, id="with one"),
        pytest.param([replace(BATCH, probability=0)], "batch", True, id="also with one that a draw passed over"),
        pytest.param([replace(BATCH, skip_update_resources=True)], "skip_update_resources", False,
                     id="not with one that says so"),
        pytest.param([BATCH, Profile(name="x", skip_update_resources=True, probability=0)], "skip_update_resources",
                     False, id="even where a draw passed it over"),
        pytest.param([BATCH, Profile(name="x", skip_update_resources=True, selector=WEB)], "batch", True,
                     id="but not where it is for other pods"),
        pytest.param([BATCH, Profile(name="x", priority_class_name="koord-prod")], "native", False,
                     id="the class after all profiles counts"),
    ],
)  # fmt: skip
def test_when_resources_are_translated(profiles: list[Profile], bound: str, *, moved: bool) -> None:
    mutation = admitted(pod(priority=5_500), *profiles)

    assert bounds(mutation)["resources"] == bound
    assert mutation.pod.containers[0].requests == (
        {BATCH_CPU: 1_000, BATCH_MEM: GIB} if moved else {"cpu": 1_000, "memory": GIB}
    )


def test_free_pods_are_translated_where_their_class_is_switched_on() -> None:
    free = replace(BATCH, priority_class_name="koord-free")

    assert changed(pod(), free).containers == pod().containers
    after = changed(pod(), free, around=cluster(free_class_enable=True))
    assert after.containers[0].requests[FREE_CPU] == 1_000
    assert ANNOTATION not in after.annotations


def test_batch_resources_are_recorded_whoever_asked_for_them() -> None:
    by_hand = pod(containers=(container(requests={BATCH_CPU: 1}),))

    assert changed(by_hand).annotations == {
        ANNOTATION: '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"1"}}}}'
    }
    assert bounds(admitted(by_hand)) == {"resources": "no_profile", "extended_resource_spec": "recorded"}


def test_an_annotation_that_cannot_be_read_refuses_the_pod() -> None:
    mutation = admitted(pod(annotations={ANNOTATION: "{"}), BATCH)

    assert mutation.pod is None
    assert mutation.refused.startswith(f"not a readable annotation {ANNOTATION}: ")
    assert mutation.because[-1] == Because(of="extended_resource_spec", bound="invalid_annotation", terms={})
    assert bounds(mutation)["profiles/batch"] == "applied"


def test_a_real_pod_keeps_all_that_no_profile_is_about() -> None:
    """As the admission webhook has it: an object in, an object out."""
    container_object = {
        "name": "main", "image": "python:3.9", "env": [{"name": "A", "value": "b"}],
        "resources": {"requests": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "1.5Gi"}},
    }  # fmt: skip
    real = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "job-", "labels": {"app": "spark"}, "ownerReferences": [{"uid": "u"}]},
        "spec": {"containers": [container_object], "restartPolicy": "Never", "tolerations": [{"key": "x"}]},
    }  # fmt: skip

    after = object_of(changed(pod_of(real), BATCH))
    requests = {BATCH_CPU: "2k", BATCH_MEM: "4Gi", "ephemeral-storage": "1.5Gi"}
    assert after == {
        **real,
        "metadata": {**real["metadata"], "labels": {"app": "spark", QOS: "BE"}, "annotations": {
            ANNOTATION: '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"2k",'
                        '"kubernetes.io/batch-memory":"4Gi"}}}}'}},
        "spec": {**real["spec"], "priorityClassName": "koord-batch", "priority": 5_500, "preemptionPolicy": "Never",
                 "containers": [{**container_object, "resources": {"requests": requests}}]},
    }  # fmt: skip


@given(pods, many(min_size=2), clusters, st.randoms(use_true_random=False))
def test_the_order_in_which_profiles_are_listed_does_not_matter(
    given_pod: AdmittedPod, profiles: list[Profile], around: Cluster, random
) -> None:
    shuffled = random.sample(profiles, len(profiles))

    assert admitted(given_pod, *shuffled, around=around) == admitted(given_pod, *profiles, around=around)


@given(pods, many(), clusters)
def test_a_second_time_changes_nothing_more(given_pod: AdmittedPod, profiles: list[Profile], around: Cluster) -> None:
    """As when the API server calls the webhook again. Suffixes aside: those are appended each time."""
    once = changed(given_pod, *profiles, around=around)

    assert object_of(changed(once, *profiles, around=around)) == object_of(once)


@given(pods, many(), clusters)
def test_profiles_for_other_pods_change_nothing(
    given_pod: AdmittedPod, profiles: list[Profile], around: Cluster
) -> None:
    others = [unmatchable(profile) for profile in profiles]

    after = changed(given_pod, *others, around=around)
    assert after == changed(given_pod, around=around)
    assert replace(after, annotations=given_pod.annotations) == given_pod


@given(pods, many(), clusters)
def test_every_profile_is_accounted_for(given_pod: AdmittedPod, profiles: list[Profile], around: Cluster) -> None:
    told = [because.of for because in admitted(given_pod, *profiles, around=around).because]

    assert told[: len(profiles)] == sorted(f"profiles/{profile.name}" for profile in profiles)
    assert told[-1] == "extended_resource_spec"


# The calculation by hand: the same core on flat pods.

calculation = Calculation("webhook_colocation_profile")


def calculated(**given_input) -> dict:
    answered = json.loads(calculation.answer(json.dumps({"name": "a", "input": given_input})).line)
    return answered.get("output") or {"error": answered["error"]}


def test_nulls_and_absent_fields_are_the_same() -> None:
    nothing = dict.fromkeys(
        ["operation", "namespace_labels", "priority_classes", "random_number_0_to_99", "profiles", "free_class_enable"]
    )
    empty = dict.fromkeys(["namespace", "name", "labels", "annotations", "scheduler_name", "priority_class_name",
                           "priority", "preemption_policy", "init_containers", "containers", "overhead"])  # fmt: skip
    profile = dict.fromkeys(["skip_update_resources", "namespace_selector", "selector", "probability", "qos_class",
                             "priority_class_name", "koordinator_priority", "labels", "annotations", "patch",
                             "label_keys_mapping", "annotation_keys_mapping", "label_suffixes",
                             "scheduler_name"])  # fmt: skip
    bare = {"admission": "allowed", "pod": {}, "extended_resource_spec": None}

    assert calculated(pod={}) == bare
    assert calculated(pod=empty, **nothing) == bare
    assert calculated(pod=empty, profiles=[profile | {"name": "p"}]) == bare
    assert calculated(pod={"containers": [{"name": "a", "requests": None, "limits": {"cpu_milli": None}}]}) == bare | {
        "pod": {"containers": [{"name": "a"}]}
    }


def test_a_null_in_a_selector_is_nothing() -> None:
    def marked(selector: dict) -> bool:
        profiles = [{"name": "p", "selector": selector, "labels": {"marked": "yes"}}]
        return "labels" in calculated(pod={}, profiles=profiles)["pod"]

    assert marked({"match_labels": None, "match_expressions": None})
    assert marked({"match_expressions": [{"key": "a", "operator": "DoesNotExist", "values": None}]})
    assert not marked({"match_expressions": [{"key": "a", "operator": None, "values": []}]})
    assert not marked({"match_expressions": [{"key": None, "operator": "DoesNotExist"}]})


def test_a_namespace_without_labels_can_be_read() -> None:
    profile = {"name": "p", "namespace_selector": {"match_expressions": [{"key": "a", "operator": "DoesNotExist"}]}}

    def marked(**given_input) -> bool:
        profiles = [profile | {"labels": {"marked": "yes"}}]
        return "labels" in calculated(pod={"namespace": "n"}, profiles=profiles, **given_input)["pod"]

    assert marked(namespace_labels={"n": None})
    assert marked(namespace_labels={"n": {}})
    assert not marked(namespace_labels={"other": {}})
    assert not marked()


def test_what_a_pod_has_is_shown() -> None:
    """All resources, free ones and devices too; what a patch adds that has no field is not."""
    tiers, kinds = ("", "batch_", "mid_", "free_"), ("cpu_milli", "memory_bytes")
    amounts = {f"{tier}{kind}": 7 for tier in tiers for kind in kinds} | {"example.com/gpu": 1}
    whole = {
        "namespace": "n", "name": "p", "labels": {"a": "b"}, "annotations": {"c": "d"}, "scheduler_name": "s",
        "priority_class_name": "k", "priority": 0, "preemption_policy": "Never", "overhead": amounts,
        "init_containers": [{"name": "i", "requests": amounts}],
        "containers": [{"name": "c", "requests": amounts, "limits": amounts}],
    }  # fmt: skip

    assert calculated(pod=whole, operation="UPDATE")["pod"] == whole
    patch = {"spec": {"hostNetwork": True, "overhead": {"ephemeral-storage": "1Gi"}}}
    profile = {"name": "p", "skip_update_resources": True, "patch": patch}
    assert calculated(pod=whole, profiles=[profile])["pod"] == whole


def test_the_spec_is_shown_decoded() -> None:
    text = '{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"1k"}},"b":{}}}'
    annotated = {"annotations": {ANNOTATION: text, "note": "x"}}

    assert calculated(pod=annotated, operation="UPDATE") == {
        "admission": "allowed",
        "pod": {"annotations": {"note": "x"}},
        "extended_resource_spec": {"a": {"requests": {"batch_cpu_milli": 1_000}}},
        "extended_resource_spec_annotation_text": text,
    }
    assert calculated(pod={"annotations": {ANNOTATION: "{"}}, operation="UPDATE") == {
        "admission": "allowed", "pod": {}, "extended_resource_spec": None,
        "extended_resource_spec_annotation_text": "{",
    }  # fmt: skip
    assert calculated(pod={"annotations": {ANNOTATION: "{"}}) == {"admission": "error"}


def test_classes_below_6000_preempt_nobody() -> None:
    def policy(value: int) -> str | None:
        profiles = [{"name": "p", "priority_class_name": "k"}]
        return calculated(pod={}, profiles=profiles, priority_classes={"k": value})["pod"].get("preemption_policy")

    assert (policy(5_999), policy(6_000)) == ("Never", None)


def test_the_switch_for_free_pods() -> None:
    free = {"priority": 3_500, "containers": [{"name": "a", "requests": {"cpu_milli": 5, "memory_bytes": 7}}]}

    def requests(**given_input) -> dict:
        return calculated(pod=free, profiles=[{"name": "p"}], **given_input)["pod"]["containers"][0]["requests"]

    assert requests() == {"cpu_milli": 5, "memory_bytes": 7}
    assert requests(free_class_enable=True) == {"free_cpu_milli": 5, "free_memory_bytes": 7}


@pytest.mark.parametrize(
    ("given_input", "error"),
    [
        pytest.param({}, "input: Object missing required field `pod`", id="no pod"),
        pytest.param({"pod": {}, "random_number_0_to_99": 100},
                     "input.random_number_0_to_99: Expected `int` <= 99", id="a draw out of range"),
        pytest.param({"pod": {"containers": [{"name": "a", "requests": {"cpu_milli": -1}}]}},
                     "input.pod.containers[0].requests.cpu_milli: Expected `int` >= 0", id="a negative amount"),
        pytest.param({"pod": {}, "profiles": [{"probability": 0.5}]},
                     "input.profiles[0].probability: Expected `int | str | null`, got `float`", id="half a percent"),
    ],
)  # fmt: skip
def test_a_case_that_cannot_be_computed_says_where(given_input: dict, error: str) -> None:
    assert calculated(**given_input) == {"error": error}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["a", "delete", "replace", "1Gi"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["$patch", "$retainKeys", "name", "a", "cpu", "requests", "env", "resources", "limits"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)
_patches = st.dictionaries(st.sampled_from(["metadata", "spec", "$patch", "$retainKeys"]), st.dictionaries(
    st.sampled_from(["labels", "annotations", "finalizers", "containers", "initContainers", "overhead", "priority",
                     "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers", "schedulerName"]),
    _json, max_size=4,
) | _json)  # fmt: skip


@given(_patches | _json)
def test_whatever_a_patch_holds_there_is_an_answer(patch: object) -> None:
    profile = {"name": "p", "patch": patch, "priority_class_name": "k"}
    given_pod = {"labels": {"a": "b"}, "containers": [{"name": "a", "requests": {"cpu_milli": 1}}]}
    answer = calculated(pod=given_pod, profiles=[profile], priority_classes={"k": 5_500})

    assert answer["admission"] in ("allowed", "error")


def test_a_class_is_what_it_says() -> None:
    around = cluster(priority_classes={"koord-batch": PriorityClass(value=9_000, preemption_policy="Lower")})
    after = changed(pod(), BATCH, around=around)

    assert (after.priority, after.preemption_policy) == (9_000, "Lower")
    assert after.containers == pod().containers, "the number decides, not the name"
