"""SparkApplications: the pods that Spark's own defaults make of a driver and executors."""

import re
from collections.abc import Iterator

from slacktide.schemas.errors import CaseError, TextError
from slacktide.schemas.text import integer_of, shown
from slacktide.schemas.units import decimal
from slacktide.streams.decisions.queue.kinds.manifest import Json, Part, Path, dotted
from slacktide.streams.decisions.queue.kinds.placing import Place
from slacktide.streams.decisions.queue.kinds.queued import PodSet, Queued

EXECUTORS = 2
"""Spark's default."""
OVERHEAD_MIB = 384
FACTOR_OF_JVM, FACTOR = 0.1, 0.4
MIB = 2**20
GLOBAL: Path = ("spec", "nodeSelector")
"""A node selector of both, which excludes one of each: a start moves it into each."""
_SIZE = re.compile(r"\s*([0-9]{1,15})([kmgtp]?)(b?)\s*", re.ASCII | re.IGNORECASE)
_SCALE: dict[str, int] = {letter: 1 << 10 * power for power, letter in enumerate("bkmgtp")}


class SparkApplication(Queued):
    """A SparkApplication in cluster mode."""

    def refusal(self) -> str:
        """Return why it is not queued."""
        spec = self.object["spec"]
        if spec["mode"].text() not in {"", "cluster"}:
            return "mode"
        return "dynamic_allocation" if self._is_dynamic(spec) and self._dynamic(spec, "max") is None else ""

    def sets_of(self, spec: Part) -> Iterator[PodSet]:
        """Yield the driver and the executors."""
        spec = spec["spec"]
        count = self._instances(spec)
        if self._is_dynamic(spec):
            count = max(self._dynamic(spec, "max") or 0, count)
        for role, pods in (("driver", 1), ("executor", count)):
            place = Place(*(("spec", role, name) for name in ("labels", "annotations", "nodeSelector", "tolerations")))
            yield PodSet(role, pods, _pod(spec, role), place, moved=GLOBAL)

    @property
    def ready(self) -> bool:
        """Return whether it runs with all executors that it begins with."""
        spec, wanted = self.object["spec"], self._instances(self.object["spec"])
        if self._is_dynamic(spec):
            wanted = max(wanted, *(self._dynamic(spec, which) or 0 for which in ("initial", "min")))
        states = self.object["status.executorState"].texts().values()
        return super().ready and sum(one in {"RUNNING", "COMPLETED"} for one in states) >= wanted

    @staticmethod
    def _is_dynamic(spec: Part) -> bool:
        block = spec["dynamicAllocation"]
        return block["enabled"].flag() if block.there else _conf(spec).get("spark.dynamicAllocation.enabled") == "true"

    @staticmethod
    def _dynamic(spec: Part, which: str) -> int | None:
        found = spec["dynamicAllocation"][f"{which}Executors"]
        text = _conf(spec).get(f"spark.dynamicAllocation.{which}Executors")
        return found.whole(0) if found.there else None if text is None else _number(text, which)

    def _instances(self, spec: Part) -> int:
        """Return how many executors it has. With dynamic allocation Spark has no default."""
        text = _conf(spec).get("spark.executor.instances")
        default = 0 if self._is_dynamic(spec) else EXECUTORS
        return spec["executor.instances"].whole(default if text is None else _number(text, "instances"))


def _number(text: str, name: str) -> int:
    try:
        return integer_of(text, where=name, least=0, most=2**31 - 1)
    except TextError as exc:
        raise CaseError(f"spec.sparkConf: {name}", exc.why) from exc


def _conf(spec: Part) -> dict[str, str]:
    return spec["sparkConf"].texts()


def _pod(spec: Part, role: str) -> Part:
    """Return the pod of a role as a template."""
    given, cores = spec[role], _conf(spec).get(f"spark.{role}.cores")
    asked = given["coreRequest"].value
    requests: Json = {
        "cpu": given["cores"].whole(1 if cores is None else _number(cores, "cores")) if asked is None else asked,
        "memory": str(_memory_mib(spec, role) * MIB),
    }
    if given["gpu"].there:
        requests[given["gpu.name"].text()] = given["gpu.quantity"].whole(0)
    sidecars = [one.value for one in given["sidecars"].parts()]
    made: Json = {
        "containers": [{"name": f"spark-kubernetes-{role}", "resources": {"requests": requests}}, *sidecars],
        "initContainers": given["initContainers"].value,
        "nodeSelector": {**spec["nodeSelector"].texts(), **given["nodeSelector"].texts()},
        "affinity": given["affinity"].value,
        "tolerations": given["tolerations"].value,
        "priorityClassName": given["priorityClassName"].value or given["template.spec.priorityClassName"].value,
    }
    return Part({"spec": {name: value for name, value in made.items() if value}}, given.keys)


def _memory_mib(spec: Part, role: str) -> int:
    """Return the heap, its overhead, and what Spark's settings add to an executor."""
    given, conf, language = spec[role], _conf(spec), spec["type"].text()
    heap = _mib(given["memory"], conf.get(f"spark.{role}.memory", "1g"))
    total = heap + _overhead_mib(spec, given, heap, FACTOR if language in {"Python", "R"} else FACTOR_OF_JVM)
    if role == "executor":
        if language == "Python":
            total += _mib(Part(conf.get("spark.executor.pyspark.memory"), ("spec", "sparkConf")), "0")
        if conf.get("spark.memory.offHeap.enabled") == "true":
            total += _mib(Part(conf.get("spark.memory.offHeap.size"), ("spec", "sparkConf")), "0", unit="b")
    return total


def _overhead_mib(spec: Part, given: Part, heap: int, factor: float) -> int:
    if given["memoryOverhead"].there:
        return _mib(given["memoryOverhead"], "")
    text = spec["memoryOverheadFactor"].text()
    if text:
        found = decimal(text)
        if found is None or not 0 <= found <= 1_000:
            raise CaseError("spec.memoryOverheadFactor", f"{shown(text)}; accepted: a number from 0 to 1000")
        factor = found
    return max(int(heap * factor), OVERHEAD_MIB)


def _mib(part: Part, default: str, *, unit: str = "m") -> int:
    """Return a size in Java's units as whole MiB, rounded down. ``unit``: of a number without one."""
    text = part.text() or default
    found = _SIZE.fullmatch(text)
    if found is None:
        raise CaseError(dotted(part.keys), f"{shown(text)}; accepted: a size such as 512m or 4g")
    number, letter, byte = found.groups()
    return int(number) * _SCALE[letter.lower() or ("b" if byte else unit)] // MIB
