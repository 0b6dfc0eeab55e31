"""What figures are made of beside averages: made of the node's last, it is as if it was made anew."""

from dataclasses import fields

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Pod, Resources
from slacktide.streams.columns.offered import OfferInputs, offer_inputs
from slacktide.streams.columns.publish import pod_line
from slacktide.streams.decisions.known_pods import KnownPods, PodName
from slacktide.streams.decisions.prediction.mid_forecast import NO_FORECAST
from testbed.samples import FACTS, SUPPRESS

CLASSES = "koord-prod", "koord-mid", "koord-batch"


@st.composite
def _pod(draw: st.DrawFn) -> Pod:
    name = draw(st.sampled_from(['a"', 'a","uid":"b', ',{"uid":"b"', "%d", "b", "bb", "c", "ü", "z"]))
    return Pod(
        uid=name,
        namespace="shop",
        name=name,
        priority_class_label=draw(st.sampled_from(CLASSES)),
        phase=draw(st.sampled_from(["Running", "Succeeded"])),
        requests=Resources(cpu_milli=draw(st.integers(0, 3)), mem_bytes=1 << 30),
    )


_lists = st.lists(st.lists(_pod(), unique_by=lambda pod: pod.uid), min_size=1, max_size=6)


def _inputs(names: list[PodName], pods: KnownPods, before: OfferInputs | None) -> OfferInputs:
    return offer_inputs(names, pods, FACTS, SUPPRESS, NO_FORECAST, pod_line, before)


@given(_lists, st.data())
def test_a_market_made_of_the_last_one_is_as_if_made_anew(lists: list[list[Pod]], data: st.DataObject) -> None:
    before, last, names = None, None, dict[str, PodName]()
    for pods in lists:
        last = KnownPods.packed(msgspec.json.encode(pods), last)
        kept = data.draw(st.sets(st.sampled_from(sorted(names))) if names else st.just(set()))
        names = {uid: names[uid] for uid in kept} | {uid: pod.name for uid, pod in last.by_uid.items()}
        its = [names[uid] for uid in sorted(names)]
        anew, before = _inputs(its, last, None), _inputs(its, last, before)
        for field in fields(OfferInputs):
            assert np.array_equal(getattr(anew, field.name), getattr(before, field.name)), field.name
