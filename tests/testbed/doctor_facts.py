"""What doctor finds of a machine on which nothing is amiss."""

from slacktide.deploy.cli.doctor.facts import CONTROLLERS, CgroupFacts, KnobFacts
from slacktide.schemas.knob_table import CONTROLS

V2 = CgroupFacts(
    mount="/sys/fs/cgroup",
    version=2,
    hybrid=False,
    pods="kubepods.slice",
    driver="systemd",
    trouble="",
    best_effort="/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice",
    controllers={one.name: "usable" for one in CONTROLLERS},
    knobs={knob.name: KnobFacts(files=knob.v2, state="writable", trouble="") for knob in CONTROLS},
    refused_triggers={},
)
"""Its control groups, v2."""
