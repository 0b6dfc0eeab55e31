"""Series of Prometheus as latencies of services: what labels name, and what no hostile answer can do."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.prometheus import Limits, Prometheus, PrometheusError, Sample
from slacktide.agents.sli.exporter import record_of
from slacktide.agents.sli.series import SERIES_MAX, Naming, latencies
from slacktide.schemas.codec import decode
from slacktide.schemas.service import ServiceSli

AT_S = 1_780_099_200.5
WEB = {"namespace": "shop", "deployment": "web"}


def sample(value: str = "0.0125", labels: dict[str, str] | None = None, at_s: float = AT_S) -> Sample:
    return Sample(metric=WEB if labels is None else labels, value=(at_s, value))


def one(*given: Sample, naming: Naming | None = None, target_us: int | None = None) -> ServiceSli:
    [sli] = latencies(given, naming or Naming(), 60_000, target_us).slis
    return sli


def why(*given: Sample) -> list[str]:
    found = latencies(given, Naming(), 60_000)
    assert not found.slis
    assert set(found.examples) == set(found.skipped)
    return sorted(found.skipped)


def test_a_series_is_the_latency_of_the_service_that_its_labels_name() -> None:
    assert one(sample(), target_us=50_000) == ServiceSli(
        service="shop/web", observed_ms=1_780_099_200_500, span_ms=60_000, p99_us=12_500, target_us=50_000
    )
    assert one(sample(labels=WEB | {"node": "node-1", "le": "x"})).node == "node-1"
    assert one(sample(labels={"namespace": "shop", "deployment": "", "statefulset": "db"})).service == "shop/db"
    istio = Naming(namespace="destination_workload_namespace", owners=("destination_workload",), node="zone")
    labels = {"destination_workload": "api", "destination_workload_namespace": "pay", "node": "node-1"}
    assert one(sample(labels=labels), naming=istio) == msgspec.structs.replace(one(sample()), service="pay/api")
    assert one(sample(labels={}), naming=Naming(service="shop/web")) == one(sample())


@pytest.mark.parametrize(
    "value", ["NaN", "+Inf", "-Inf", "-0.1", "0", "0.0000001", "1e300", "1e10", "", "0x1", "1" * 99]
)
def test_what_is_no_number_of_seconds_above_0_is_skipped(value: str) -> None:
    assert why(sample(value)) == ["value"]


def test_what_names_no_service_is_skipped() -> None:
    assert why(sample(labels={})) == why(sample(labels={"namespace": "shop"})) == ["labels"]
    for labels in (
        {"namespace": "Shop", "deployment": "web"},
        {"namespace": "shop.eu", "deployment": "web"},
        {"namespace": "s" * 64, "deployment": "web"},
        {"namespace": "shop", "deployment": "web/../db"},
        {"namespace": "shop", "deployment": "web\n"},
        {"namespace": "shop", "deployment": "w" * 254},
        WEB | {"node": "10.0.0.1:9100"},
    ):
        assert why(sample(labels=labels)) == ["name"], labels


def test_a_histogram_or_an_impossible_time_is_skipped() -> None:
    assert why(Sample(metric=WEB)) == ["value"]
    assert why(sample(at_s=-1.0)) == why(sample(at_s=1e300)) == why(sample(at_s=float("nan"))) == ["time"]


def test_of_a_service_and_node_the_first_series_counts_and_of_all_series_so_many() -> None:
    found = latencies([sample("0.1"), sample("0.2"), sample("0.3", WEB | {"node": "node-1"})], Naming(), 60_000)
    assert [sli.p99_us for sli in found.slis] == [100_000, 300_000]
    assert found.skipped == {"duplicate": 1}

    many = [sample(labels={"namespace": "shop", "owner": f"web-{number}"}) for number in range(SERIES_MAX + 9)]
    found = latencies(many, Naming(), 60_000)
    assert (len(found.slis), found.skipped["many"]) == (SERIES_MAX, 9)


LABELS = st.dictionaries(
    st.sampled_from(["namespace", "deployment", "statefulset", "owner", "node", "le"]),
    st.text(max_size=300) | st.sampled_from(["shop", "web", "node-1"]),
)
VALUES = st.text(max_size=40) | st.floats().map(str) | st.integers().map(str)


@given(st.lists(st.builds(Sample, LABELS, st.none() | st.tuples(st.floats(), VALUES)), max_size=6))
def test_whatever_a_server_answers_each_series_is_a_record_that_readers_accept_or_is_counted(
    given: list[Sample],
) -> None:
    found = latencies(given, Naming(), 60_000, 1)

    assert len(found.slis) + found.skipped.total() == len(given)
    for sli in found.slis:
        record = record_of(sli)
        assert (record.key, decode(record.value or b"", ServiceSli)) == (sli.service.encode(), sli)
    assert len({(sli.service, sli.node) for sli in found.slis}) == len(found.slis)


@pytest.mark.parametrize(
    "url",
    ["", "prometheus:9090", "ftp://prometheus", "http://ann:pw@host", "http://host?x=1", "http://h:99999", "http://["],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(PrometheusError, match="accepted: http://HOST:PORT") as refused:
        Prometheus(url, Limits(timeout_s=1, bytes_max=1, smaller=""))
    assert "pw" not in str(refused.value)
