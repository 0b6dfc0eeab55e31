"""Which annotations and labels of a Node are ignored, whichever rule reads them."""

from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.kubernetes import ANNOTATION_RESERVATION, ignored_annotations
from slacktide.schemas.policy.idle import not_taken
from slacktide.schemas.text import shown
from slacktide.schemas.third_party import third_party
from slacktide.streams.decisions.cpu_list import cpu_list
from slacktide.streams.decisions.load.load_aware_estimator import own_thresholds
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import ANNOTATION_SYSTEM_QOS, system_qos


def ignored_marks(facts: NodeFacts) -> list[str]:
    """Return each with its value and what is accepted."""
    found = [*ignored_annotations(facts.annotations)]
    # Others are taken, as the reference does.
    found += [f"{name}: {why}" for name, why in not_taken(facts) if "ignored" in why]
    for read in (own_thresholds, third_party):
        try:
            read(facts.annotations)
        except BadMessageError as exc:
            found.append(f"annotation {exc}: ignored")
    lists = [(ANNOTATION_RESERVATION, "reservedCPUs", facts.reserved_cpus)]
    try:
        lists.insert(0, (ANNOTATION_SYSTEM_QOS, "cpuset", system_qos(facts.annotations).cpuset))
    except TextError as exc:
        found.append(f"annotation {exc}: ignored")
    for annotation, field, text in lists:
        if cpu_list(text) is None:
            found.append(f"annotation {annotation}.{field}: {shown(text)}: ignored; accepted: a CPU list such as 0-3,6")
    return found
