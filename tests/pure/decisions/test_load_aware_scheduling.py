"""One pod and one node, filtered and scored by load: its arithmetic, its laws, and what its cases must not hold."""

from hypothesis import given

from slacktide.streams.decisions.load.load_aware_estimator import (
    Amounts,
    LoadAwareArgs,
    LoadAwarePod,
    Percents,
    Thresholds,
    Weights,
)
from slacktide.streams.decisions.load.load_aware_existing import NodeReport
from slacktide.streams.decisions.load.load_aware_scheduling import NodeState, candidate, place
from testbed.load_aware_cases import (
    GIB,
    T,
    all_args,
    answered,
    asked,
    load,
    pairs,
    pods,
    pods_there,
    report,
    reports,
    thresholds,
)
from testbed.vectors import each_row

BY_PRODUCTION = LoadAwareArgs(
    thresholds=Thresholds(usage=Percents(50, 50), prod=Percents(50, 50)), score_prod=True, weights=Weights(1, 1)
)


def test_production_and_others_meet_the_same_node_whoever_comes_first_and_it_stays_as_it_is() -> None:
    full = load(report((90_000, 60 * GIB)))
    prod, batch = (
        candidate(asked((1000, GIB), of_class=name), BY_PRODUCTION) for name in ("koord-prod", "koord-batch")
    )
    one, other, untouched = (
        NodeState(allocatable=Amounts(96_000, 64 * GIB), custom=Thresholds(), load=full, args=BY_PRODUCTION)
        for _ in range(3)
    )

    assert [one.met_by(prod), one.met_by(batch)] == [*reversed([other.met_by(batch), other.met_by(prod)])]
    assert one == untouched


@given(
    pod=pods("new"), there=pods_there, reported=reports, custom=thresholds, more=pairs, args=all_args, allocatable=pairs
)
def test_a_busier_node_is_never_better(
    pod: LoadAwarePod,
    there: tuple[LoadAwarePod, ...],
    reported: NodeReport,
    custom: Thresholds,
    more: Amounts,
    args: LoadAwareArgs,
    allocatable: Amounts,
) -> None:
    """More use, in every statistic, lets no pod in that had to stay out, and raises no score."""
    before, after = (
        place(
            candidate(pod, args),
            NodeState(allocatable=allocatable, custom=custom, load=load(told, *there, args=args), args=args),
            args,
            now_s=T + 10,
        )
        for told in (reported, busier(reported, more))
    )

    assert before.filtered.schedulable or not after.filtered.schedulable
    assert 100 >= before.scored.score >= after.scored.score >= 0


def busier(reported: NodeReport, more: Amounts) -> NodeReport:
    def plus(used: Amounts) -> Amounts:
        return Amounts(used.cpu_milli + more.cpu_milli, used.mem_bytes + more.mem_bytes)

    node = reported.node
    if node is None:
        return reported
    aggregated = {wanted: plus(used) for wanted, used in node.aggregated.items()}
    node = node._replace(use=plus(node.use), system=plus(node.system), aggregated=aggregated)
    return reported._replace(node=node)


@given(pod=pods("new"), reported=reports, args=all_args, allocatable=pairs)
def test_terms_end_in_what_was_decided(
    pod: LoadAwarePod, reported: NodeReport, args: LoadAwareArgs, allocatable: Amounts
) -> None:
    node = NodeState(allocatable=allocatable, custom=Thresholds(), load=load(reported, args=args), args=args)
    found = place(candidate(pod, args), node, args, now_s=T + 10)
    for because in found.filtered.because:
        if because.terms:
            exceeds = because.terms["used_pct"] > because.terms["threshold_pct"]
            assert (because.bound == "pass") is not exceeds
    *_, total = found.scored.because

    assert total.terms.get("score", 0) == found.scored.score
    assert found.filtered.schedulable is (found.filtered.reject_reason is None)


@each_row("rule", "case", "error")
def test_what_cannot_be_computed_names_the_field(rule: str, case: dict, error: str) -> None:
    assert answered(f"load_aware_{rule}", case) == {"error": f"input{error}"}
