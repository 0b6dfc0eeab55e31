"""The CPU that best-effort pods may use."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.suppress.cpu_suppress_quota import CpuUse, be_allowed_cpu


def use(cores: float | None, *, best_effort: bool = False) -> CpuUse:
    return CpuUse(used_cores=cores, best_effort=best_effort)


cores = st.floats(0, 64, allow_subnormal=False)
uses = st.lists(st.builds(CpuUse, used_cores=st.none() | cores, best_effort=st.booleans()), max_size=6)
nodes = st.fixed_dictionaries(
    {
        "capacity_milli": st.integers(0, 128_000),
        "reserved_milli": st.integers(0, 10_000),
        "node_used_cores": cores,
        "pods": uses,
        "hosts": uses,
        "threshold_pct": st.integers(0, 100),
        "min_pct": st.none() | st.integers(0, 100),
    }
)


@given(nodes, cores)
def test_more_use_by_others_never_raises_what_is_allowed(node: dict, more: float) -> None:
    """On the node, too, what the new pod uses is used; rounding may be off by a millicore twice."""
    busy = node | {"pods": [*node["pods"], use(more)], "node_used_cores": node["node_used_cores"] + more}

    assert be_allowed_cpu(**busy).allowed_milli <= be_allowed_cpu(**node).allowed_milli + 2


@given(nodes, st.integers(0, 100))
def test_a_higher_threshold_never_lowers_what_is_allowed(node: dict, more_pct: int) -> None:
    raised = node | {"threshold_pct": node["threshold_pct"] + more_pct}

    assert be_allowed_cpu(**raised).allowed_milli >= be_allowed_cpu(**node).allowed_milli


@given(nodes, st.randoms(use_true_random=False))
def test_the_order_of_pods_and_host_applications_does_not_matter(node: dict, random) -> None:
    shuffled = node | {name: random.sample(node[name], len(node[name])) for name in ("pods", "hosts")}

    assert be_allowed_cpu(**shuffled) == be_allowed_cpu(**node)


@given(nodes)
def test_the_result_is_its_terms(node: dict) -> None:
    result = be_allowed_cpu(**node)
    terms = result.terms

    assert terms["formula_milli"] == (
        terms["ceiling_milli"] - terms["nonbe_pods_milli"] - terms["nonbe_hosts_milli"] - terms["system_milli"]
    )
    assert result.allowed_milli == terms["minimum_milli" if result.bound == "minimum" else "formula_milli"]
    assert result.allowed_milli <= max(node["capacity_milli"], 0)
