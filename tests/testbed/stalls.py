"""Gates of ``cpu_pressure`` and looks at stalls, as tests draw them."""

from hypothesis import strategies as st

from slacktide.schemas.sample import PAUSE_MS_MAX, PAUSE_MS_MIN, PressureGate, PressureLook

GATES = st.builds(
    PressureGate,
    base_permille=st.integers(0, 5_000),
    closed=st.booleans(),
    closed_ms=st.integers(0, PAUSE_MS_MAX),
    proof_looks=st.integers(0, 1),
    cut_permille=st.integers(0, 5_000),
    be_permille=st.integers(20, 1_000),
    pause_ms=st.integers(PAUSE_MS_MIN, PAUSE_MS_MAX),
    wait_ms=st.integers(0, PAUSE_MS_MAX),
)
LOOKS = st.builds(
    PressureLook,
    span_us=st.integers(0, 300_000),
    ls_cpu_us=st.integers(0, 600_000),
    be_cpu_us=st.integers(0, 600_000),
    idle_us=st.integers(0, 600_000),
    cpu_stall_us=st.integers(0, 600_000),
    mem_stall_us=st.integers(0, 600_000),
    throttled_us=st.integers(0, 600_000),
)
