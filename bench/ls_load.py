"""One CPU's part of a service whose demand is steady between steps: ``python -m bench.ls_load PLAN``.

The demo's service is a Poisson process, whose use in one second varies by more than the tenth to which a limit
shall settle. PLAN is JSON: ``start_s`` (monotonic) and ``phases``, pairs of seconds and part of a CPU.
"""

import json
import sys
import time

TICK_S = 0.004
LATE_S_MAX = 0.05
"""What it could not get for longer than this is not made up for."""


def wanted_s(phases: list[list[float]], offset_s: float) -> float:
    """CPU seconds that the plan asks for from its start to an offset."""
    total_s = 0.0
    for seconds, part in phases:
        total_s += part * min(seconds, max(0.0, offset_s))
        offset_s -= seconds
    return total_s


def main() -> None:
    """Use CPU time as planned, then end."""
    plan = json.loads(sys.argv[1])
    phases, start_s = plan["phases"], plan["start_s"]
    end_s = sum(seconds for seconds, _ in phases)
    base_s = time.thread_time()
    while (offset_s := time.monotonic() - start_s) < end_s:
        late_s = wanted_s(phases, offset_s) - (time.thread_time() - base_s)
        if late_s > LATE_S_MAX:
            base_s -= late_s - LATE_S_MAX
        if late_s <= 0:
            time.sleep(TICK_S)
        else:
            sum(range(4_000))


if __name__ == "__main__":
    main()
