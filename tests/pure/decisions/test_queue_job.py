"""A Job as a workload of the queue, and as it is started and stopped."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.kubernetes_fields import Container, Needs
from slacktide.streams.decisions.queue.job import (
    COMPLETIONS_EQUAL_PARALLELISM,
    MIN_PARALLELISM,
    Admission,
    Conflict,
    Defaults,
    Flavor,
    JobPriority,
    JobProgress,
    JobTemplate,
    PriorityClass,
    Toleration,
    job_priority,
    min_count,
    pod_request,
    reclaimable_pods,
    started,
    stopped,
    workload_name,
)
from testbed.vectors import each_row

COUNTS = st.integers(0, 12)
PROGRESS = st.builds(JobProgress, COUNTS, st.none() | COUNTS, COUNTS)
INDEXES = st.lists(st.tuples(COUNTS, COUNTS), max_size=4)
KEYS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)
TOLERATIONS = st.lists(
    st.builds(Toleration, st.sampled_from("ab"), st.sampled_from(["", "Equal", "Exists"])), max_size=3
)
JOBS = st.builds(
    JobTemplate,
    st.just(True),
    st.integers(1, 9),
    st.none() | st.integers(1, 9),
    KEYS,
    KEYS,
    KEYS,
    TOLERATIONS.map(tuple),
)
FLAVORS = st.lists(st.builds(Flavor, KEYS, TOLERATIONS.map(tuple)), max_size=2).map(tuple)
ADMISSIONS = st.builds(Admission, st.just("w"), st.sampled_from(["q", "A.b"]), st.just("l"), st.integers(1, 9), FLAVORS)


@given(st.text(max_size=400), st.text(max_size=40))
def test_a_workloads_name_is_short_enough_and_the_same_at_every_try(job: str, uid: str) -> None:
    assert workload_name(job, uid) == workload_name(job, uid)
    assert len(workload_name(job, uid)) <= 253


def test_a_long_name_is_cut_before_its_digest() -> None:
    assert workload_name("x" * 300, "u").rpartition("-")[0] == "job-" + "x" * 243


@given(PROGRESS)
def test_no_more_pods_are_reclaimable_than_run_at_a_time(progress: JobProgress) -> None:
    assert 0 <= reclaimable_pods(progress) <= progress.parallelism


@given(PROGRESS, INDEXES)
def test_an_indexed_job_counts_each_finished_index_once(progress: JobProgress, spans: list[tuple[int, int]]) -> None:
    wanted = progress.parallelism if progress.completions is None else progress.completions
    named = {index for first, last in spans for index in range(first, last + 1) if index < wanted}
    text = ",".join(f"{first}-{last}" for first, last in spans)

    expected = reclaimable_pods(progress._replace(succeeded=len(named)))
    assert reclaimable_pods(progress, [text, "", "x,3-,-", text]) == expected


def test_a_range_of_indexes_without_end_is_counted_at_once() -> None:
    assert reclaimable_pods(JobProgress(4, 10), [f"0-{10**17}"]) == 4


@each_row("text", "count")
def test_an_unreadable_minimum_is_none(text: str, count: int | None) -> None:
    assert min_count({MIN_PARALLELISM: text}) == count


def test_a_named_class_that_is_missing_is_an_error_and_no_class_is_priority_0() -> None:
    classes = [PriorityClass("a", 5), PriorityClass("b", 9, global_default=True)]

    assert job_priority("w", "a", {}, classes) is None
    assert job_priority("", "x", {"x": 1}, classes) is None
    assert job_priority("", "", {}, classes) == JobPriority(9, "PriorityClass", "b")
    assert job_priority("", "", {}, classes[:1]) == JobPriority(0)
    two = [*classes, PriorityClass("c", 7, global_default=True)]
    assert job_priority("", "", {}, two) == JobPriority(7, "PriorityClass", "c", ("b", "c")), "worth a warning"


def amounts(**given_amounts: int) -> dict[str, Decimal]:
    return {resource: Decimal(amount) for resource, amount in given_amounts.items()}


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_request_is_its_own_else_the_default_else_the_limit(own: int, default: int, limit: int) -> None:
    def asked(requests: dict[str, Decimal], defaults: Defaults) -> dict[str, int]:
        one = Container(requests=requests, limits=amounts(cpu=limit))
        return dict(pod_request(Needs(containers=[one], inits=[], overhead={}, pod_level=None), defaults).requests)

    assert asked(amounts(cpu=own), Defaults(requests=amounts(cpu=default))) == {"cpu": own}
    assert asked({}, Defaults(requests=amounts(cpu=default))) == {"cpu": default}
    assert asked({}, Defaults()) == {"cpu": limit}


@given(JOBS, ADMISSIONS, st.booleans(), st.booleans())
def test_a_job_that_is_started_and_stopped_is_as_it_was(job, admission, partial, completions) -> None:
    annotations = {MIN_PARALLELISM: "1"} if partial else {}
    annotations |= {COMPLETIONS_EQUAL_PARALLELISM: "true"} if completions else {}
    running = started(job, annotations, admission)
    if isinstance(running, Conflict):
        assert getattr(job, running.field)[running.key] == running.has != running.wants
        return
    back = stopped(running, job, annotations)

    assert not running.suspend
    assert running.parallelism == (admission.pods if partial else job.parallelism)
    assert back._replace(parallelism=job.parallelism, completions=job.completions) == job
    if not partial:
        assert back == job


@given(JOBS, ADMISSIONS)
def test_a_running_job_keeps_its_own_and_goes_to_nodes_of_its_flavors(job, admission) -> None:
    running = started(job, {}, admission)
    if isinstance(running, Conflict):
        return
    assert running.pod_labels.items() >= job.pod_labels.items()
    assert running.node_selector.items() >= job.node_selector.items()
    assert running.node_selector.keys() >= {key for flavor in admission.flavors for key in flavor.node_labels}
    assert running.tolerations[: len(job.tolerations)] == job.tolerations
