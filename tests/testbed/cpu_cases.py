"""Machines, for the tests of CPU suppress and CPU burst."""

from hypothesis import strategies as st

from slacktide.schemas.inventory import Processor

labels = st.sampled_from([None, "", "LSE", "LSR", "LS", "BE", "SYSTEM", "lse", "weird"])
"""QoS labels as written: absent, known and unknown."""


def machine(*, sockets: int = 1, numa_nodes: int = 1, cores: int = 4, threads: int = 2) -> list[Processor]:
    """CPUs numbered core by core: 0 and 1 are the first core's; ``numa_nodes`` a socket, ``cores`` a node."""
    return [
        Processor(
            cpu=cpu,
            core=cpu // threads,
            socket=cpu // (threads * cores * numa_nodes),
            numa_node=cpu // (threads * cores),
        )
        for cpu in range(sockets * numa_nodes * cores * threads)
    ]


machines = st.builds(
    machine,
    sockets=st.integers(1, 2),
    numa_nodes=st.integers(1, 2),
    cores=st.integers(1, 4),
    threads=st.sampled_from([1, 2, 2, 3, 4]),
)


@st.composite
def processors(draw: st.DrawFn) -> list[Processor]:
    """Some CPUs of a machine, in any order, under any numbers."""
    whole = draw(machines)
    some = draw(st.lists(st.sampled_from(whole), unique=True, max_size=len(whole)))
    ids = draw(st.permutations(range(len(whole))))
    return [Processor(cpu=ids[one.cpu], core=one.core, socket=one.socket, numa_node=one.numa_node) for one in some]
