"""New pods as ClusterColocationProfiles change them."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slacktide.streams.decisions.admission.admitted_pod import ANNOTATION, AdmittedPod, object_of, pod_of
from slacktide.streams.decisions.admission.webhook_colocation_profile import Cluster, PriorityClass, Profile
from testbed.load_aware_cases import answered
from testbed.profile_cases import (
    BATCH_CPU,
    BATCH_MEM,
    SPARK,
    admitted,
    changed,
    cluster,
    clusters,
    many,
    pod,
    pods,
    unmatchable,
)
from testbed.vectors import each_row

BATCH = Profile(name="batch", selector=SPARK, qos_class="BE", priority_class_name="koord-batch")


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
    assert [because.bound for because in mutation.because] == ["invalid_probability"]
    assert changed(pod(labels={}), profile) == pod(labels={})


@each_row("profile", "why")
def test_a_refusal_names_the_profile_and_says_why(profile: dict, why: str) -> None:
    mutation = admitted(pod(), Profile(name="a"), Profile(name="p", **profile), Profile(name="z"))

    assert (mutation.pod, mutation.refused) == (None, f"ClusterColocationProfile p: {why}")


def test_an_annotation_that_cannot_be_read_is_named() -> None:
    mutation = admitted(pod(annotations={ANNOTATION: "{"}), BATCH)

    assert mutation.refused.startswith(f"not a readable annotation {ANNOTATION}: ")


def test_an_unknown_operation_changes_nothing() -> None:
    assert admitted(pod(priority=5_500), BATCH, operation="").pod == pod(priority=5_500)


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

    longer = replace(BATCH, patch={"spec": {"terminationGracePeriodSeconds": 5}})
    after = object_of(changed(pod_of(real), longer))
    requests = {BATCH_CPU: "2k", BATCH_MEM: "4Gi", "ephemeral-storage": "1.5Gi"}
    assert after == {
        **real,
        "metadata": {**real["metadata"], "labels": {"app": "spark", "koordinator.sh/qosClass": "BE"}, "annotations": {
            ANNOTATION: '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"2k",'
                        '"kubernetes.io/batch-memory":"4Gi"}}}}'}},
        "spec": {**real["spec"], "priorityClassName": "koord-batch", "priority": 5_500, "preemptionPolicy": "Never",
                 "terminationGracePeriodSeconds": 5,
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


@each_row("given_input", "error")
def test_a_case_that_cannot_be_computed_says_where(given_input: dict, error: str) -> None:
    assert answered("webhook_colocation_profile", given_input) == {"error": error}


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
@example({"spec": {"resources": True}})
@example({"spec": {"resources": {"limits": True}}})
def test_whatever_a_patch_holds_there_is_an_answer(patch: object) -> None:
    profile = {"name": "p", "patch": patch, "priority_class_name": "k"}
    given_pod = {"labels": {"a": "b"}, "containers": [{"name": "a", "requests": {"cpu_milli": 1}}]}
    case = {"pod": given_pod, "profiles": [profile], "priority_classes": {"k": 5_500}}

    assert answered("webhook_colocation_profile", case)["output"]["admission"] in ("allowed", "error")


def test_a_class_is_what_it_says() -> None:
    around = cluster(priority_classes={"koord-batch": PriorityClass(value=9_000, preemption_policy="Lower")})
    after = changed(pod(), BATCH, around=around)

    assert (after.priority, after.preemption_policy) == (9_000, "Lower")
    assert after.containers == pod().containers, "the number decides, not the name"
