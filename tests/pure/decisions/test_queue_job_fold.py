"""Where a Job stands, by its pods' events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.job_fold import FailureRule, JobFold, JobPod, JobSpec, indexes_text, rule_holds

INDEXED = JobSpec(parallelism=3, completions=3, indexed=True)


def folded(spec: JobSpec, *pods: JobPod) -> JobFold:
    fold = JobFold(spec)
    for pod in pods:
        fold.seen(pod)
    return fold


def ended(uid, phase="Failed", index=None, **changed) -> JobPod:
    return JobPod(uid, phase, index, **changed)


def code(number, container="main") -> dict:
    return {"exit_codes": ((container, number),)}


def test_pods_count_as_active_ready_and_terminating_while_they_run() -> None:
    waits = JobSpec(replaces_failed_only=True)
    fold = folded(
        waits, JobPod("a"), JobPod("b", "Running", ready=True), JobPod("c", "Running", deleting=True, ready=True)
    )
    status = fold.status()
    assert (status.active, status.ready, status.terminating, status.failed) == (2, 1, 1, 0)
    fold.seen(ended("b", "Succeeded"))
    fold.gone("a")
    status = fold.status()
    assert (status.active, status.ready, status.succeeded, status.failed) == (0, 0, 1, 1)


def test_a_pod_counts_once_however_often_its_end_is_told() -> None:
    fold = folded(JobSpec(completions=5), *[ended("a", "Succeeded")] * 3, *[ended("b")] * 2)
    fold.gone("a")
    fold.gone("b")
    fold.gone("b")
    assert (fold.status().succeeded, fold.status().failed) == (1, 1)


def test_without_completions_one_success_is_enough_once_all_have_ended() -> None:
    fold = folded(JobSpec(parallelism=2), JobPod("a", "Running"), ended("b", "Succeeded"))
    assert fold.status().finished == ""
    fold.seen(ended("a"))
    assert (fold.status().finished, fold.status().reason) == ("Complete", "CompletionsReached")


def test_a_job_is_complete_once_each_index_succeeded() -> None:
    fold = folded(INDEXED, ended("a", "Succeeded", 0), ended("b", "Succeeded", 0), ended("c", "Succeeded", 2))
    assert (fold.status().succeeded, fold.status().completed_indexes, fold.status().finished) == (2, "0,2", "")
    fold.seen(ended("d", "Succeeded", 1))
    assert (fold.status().completed_indexes, fold.status().finished) == ("0-2", "Complete")


@pytest.mark.parametrize(
    ("limit", "failures", "finished"), [(None, 6, ""), (None, 7, "Failed"), (0, 1, "Failed"), (2, 2, "")]
)
def test_more_failures_than_the_limit_end_the_job(limit, failures, finished) -> None:
    fold = folded(JobSpec(completions=1, backoff_limit=limit), *(ended(f"u{at}") for at in range(failures)))
    assert (fold.status().finished, fold.status().failed) == (finished, failures)
    assert fold.status().reason == ("BackoffLimitExceeded" if finished else "")


def test_without_a_success_a_job_is_not_complete_and_an_unknown_pod_is_none() -> None:
    assert folded(JobSpec(), ended("a"), ended("b", "Unknown")).status().finished == ""
    fold = folded(JobSpec(completions=3), ended("a", "Succeeded"), ended("b", "Succeeded"))
    fold.changed(JobSpec(completions=1))
    assert fold.status().finished == "Complete", "it was scaled below what has succeeded"


def test_the_first_reason_stays() -> None:
    fold = folded(JobSpec(completions=1, backoff_limit=0), ended("a"), ended("b", "Succeeded"))
    assert (fold.status().finished, fold.status().succeeded) == ("Failed", 1)


@pytest.mark.parametrize(
    ("limit", "restarts", "finished"), [(2, 1, ""), (2, 2, "Failed"), (2, 3, "Failed"), (0, 0, ""), (0, 1, "Failed")]
)
def test_restarts_in_place_count_against_the_limit(limit, restarts, finished) -> None:
    spec = JobSpec(completions=1, backoff_limit=limit, restarts_in_place=True)
    assert folded(spec, JobPod("a", "Running", restarts=restarts)).status().finished == finished
    assert folded(spec._replace(restarts_in_place=False), JobPod("a", "Running", restarts=9)).status().finished == ""


RULES = (
    FailureRule("Ignore", conditions=(("DisruptionTarget", "True"),)),
    FailureRule("FailJob", exit_codes=frozenset({42}), container="main"),
    FailureRule("FailIndex", exit_codes=frozenset({7})),
    FailureRule("Count", exit_codes=frozenset({1, 2}), exit_codes_in=False),
)


def test_the_first_rule_that_holds_decides_how_a_failure_counts() -> None:
    spec = INDEXED._replace(backoff_limit_per_index=3, failure_rules=RULES)
    disrupted = {"conditions": {"DisruptionTarget": "True"}}
    fold = folded(
        spec,
        ended("a", index=0, **disrupted, **code(42)),
        ended("b", index=1, **code(7)),
        ended("c", index=0, **code(3)),
        ended("d", index=0, **code(1)),
    )
    status = fold.status()
    assert status.failures_by_rule == {"0 Ignore": 1, "2 FailIndex": 1, "3 Count": 1, "none": 1}
    assert (status.failed, status.ignored, status.evicted, status.failed_indexes) == (3, 1, 1, "1")
    assert status.finished == ""
    fold.seen(ended("e", index=2, **code(42)))
    assert (fold.status().finished, fold.status().reason) == ("Failed", "PodFailurePolicy")


def test_exit_codes_are_those_of_a_container_and_success_is_none() -> None:
    rule = RULES[1]
    assert rule_holds(rule, ended("a", **code(42)))
    assert not rule_holds(rule, ended("a", **code(42, "side")))
    assert rule_holds(rule._replace(container=None), ended("a", **code(42, "side")))
    others = FailureRule("Count", exit_codes=frozenset({5}), exit_codes_in=False)
    assert rule_holds(others, ended("a", **code(4)))
    assert not rule_holds(others, ended("a", **code(0)))
    assert not rule_holds(others, ended("a"))
    assert not rule_holds(RULES[0], ended("a", conditions={"DisruptionTarget": "False"}))


def test_an_index_fails_after_its_own_limit_and_the_job_once_none_is_left() -> None:
    spec = INDEXED._replace(backoff_limit_per_index=1)
    fold = folded(spec, *(ended(f"u{at}", index=0, index_failures=0) for at in range(9)))
    assert (fold.status().failed, fold.status().failed_indexes, fold.status().finished) == (9, "", "")
    fold.seen(ended("x", index=0, index_failures=1))
    assert fold.status().failed_indexes == "0"
    fold.seen(ended("y", "Succeeded", 1))
    assert fold.status().finished == ""
    fold.seen(ended("z", "Succeeded", 2))
    assert (fold.status().finished, fold.status().reason) == ("Failed", "FailedIndexes")


def test_an_index_has_its_limit_from_what_failed_before() -> None:
    spec = INDEXED._replace(backoff_limit_per_index=1)
    assert folded(spec, ended("a", index=0)).status().failed_indexes == ""
    assert folded(spec, ended("a", index=0, index_failures=5)).status().failed_indexes == "0"


def test_too_many_failed_indexes_end_the_job() -> None:
    spec = INDEXED._replace(backoff_limit_per_index=0, max_failed_indexes=1)
    fold = folded(spec, JobPod("r", "Running", 2))
    assert fold.status().finished == "", "none has failed"
    fold.seen(ended("a", index=0))
    assert fold.status().finished == ""
    fold.seen(ended("b", index=1))
    assert fold.status().reason == "MaxFailedIndexesExceeded"


def test_a_pod_that_is_deleted_counts_at_once_unless_its_end_matters() -> None:
    deleted = JobPod("a", "Running", 0, deleting=True)
    assert folded(INDEXED, deleted).status().failed == 1
    for spec in (INDEXED._replace(replaces_failed_only=True), INDEXED._replace(failure_rules=())):
        fold = folded(spec, deleted)
        assert (fold.status().failed, fold.status().terminating) == (0, 1)
        fold.seen(ended("a", "Succeeded", 0, deleting=True))
        assert (fold.status().failed, fold.status().succeeded) == (0, 1)


def test_an_elastic_job_forgets_the_indexes_that_it_gives_up() -> None:
    fold = folded(INDEXED, ended("a", "Succeeded", 0), ended("b", "Succeeded", 2))
    fold.changed(INDEXED._replace(parallelism=2, completions=2))
    assert (fold.status().completed_indexes, fold.status().finished) == ("0", "")
    fold.seen(ended("c", index=2))
    fold.seen(ended("d", "Succeeded", 2))
    assert (fold.status().failed, fold.status().succeeded) == (0, 1)
    fold.changed(INDEXED._replace(parallelism=1, completions=1))
    assert fold.status().finished == "Complete"


def test_an_elastic_job_forgets_failed_indexes_too_and_may_end_by_it() -> None:
    spec = INDEXED._replace(completions=9, backoff_limit_per_index=0)
    fold = folded(spec, *(ended(f"u{index}", index=index) for index in (0, 2, 3)), ended("d", "Succeeded", 3))
    fold.changed(spec._replace(completions=2))
    assert (fold.status().failed_indexes, fold.status().completed_indexes, fold.status().finished) == ("0", "", "")
    fold = folded(spec, ended("a", "Succeeded", 0), ended("b", index=0))
    fold.changed(spec._replace(completions=1))
    assert fold.status().reason == "FailedIndexes"


def test_an_index_outside_the_completions_does_not_count() -> None:
    fold = folded(INDEXED, ended("a", "Succeeded", 4), ended("b", index=-1), ended("c", index=None))
    assert (fold.status().succeeded, fold.status().failed) == (0, 0)
    assert folded(INDEXED._replace(completions=None), ended("a", index=0)).status().failed == 0


def test_cpu_time_of_pods_that_failed_is_lost() -> None:
    spent = {"cpu_milli": 500, "started_s": 100, "ended_s": 160}
    fold = folded(
        JobSpec(completions=2), ended("a", **spent), ended("b", "Succeeded", **spent), ended("c", cpu_milli=500)
    )
    assert fold.status().lost_core_s == 30.0
    fold.seen(ended("d", cpu_milli=500, started_s=160, ended_s=100))
    fold.seen(ended("e", started_s=100, ended_s=160))
    assert fold.status().lost_core_s == 30.0, "it ended before it started, or asked for nothing"


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([], ""), ([3], "3"), ([1, 0], "0,1"), ([0, 1, 2, 5, 7, 8], "0-2,5,7,8"), ([4, 5, 6, 7], "4-7")],
)
def test_indexes_are_written_as_in_the_jobs_status(indexes, text) -> None:
    assert indexes_text(indexes) == text


PHASES = ["Pending", "Running", "Succeeded", "Failed"]
EVENTS = st.lists(
    st.builds(
        JobPod,
        st.sampled_from("abcdef"),
        st.sampled_from(PHASES),
        st.integers(0, 3),
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
    ),
    max_size=20,
)


@given(EVENTS, st.sampled_from([None, 0, 1]), st.randoms())
def test_an_event_that_comes_again_changes_nothing(events, per_index, random) -> None:
    spec = INDEXED._replace(completions=4, backoff_limit_per_index=per_index)
    twice = [pod for pod in events for _ in range(random.randint(1, 3))]
    assert folded(spec, *twice).status() == folded(spec, *events).status()


@given(EVENTS)
def test_what_ended_counts_and_adds_up(events) -> None:
    fold = folded(INDEXED._replace(completions=4), *events)
    status = fold.status()
    assert status.failed + status.ignored == sum(status.failures_by_rule.values())
    assert 0 <= status.ready <= status.active <= 6
    assert (status.finished == "") == (status.reason == "")
