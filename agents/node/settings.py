"""Settings of one node agent's loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slacktide.agents.http import Access
from slacktide.agents.node.agent import AgentSettings
from slacktide.agents.node.ahead import AheadSettings
from slacktide.agents.node.apiserver import NodeWatch, Removal
from slacktide.agents.node.cgroup.pod_pressure import PodPressureReader
from slacktide.agents.node.evict.eviction_client import EvictionClient
from slacktide.agents.node.inventory import Lister
from slacktide.agents.node.services import Metered
from slacktide.agents.node.zones.publisher import ZonesFolders
from slacktide.agents.node.zones.reading import ExclusiveCpus
from slacktide.schemas.connection import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """Connections and intervals of one node agent."""

    node: str
    bootstrap: Cluster
    inventory: Path
    state_folder: Path
    """This agent's own folder: start counter, spool, last inventory and policy."""
    machine: Callable[[], Mapping[str, Any]] | None = None
    """Describes the Node if the inventory holds only pods; None: the inventory must hold a Node."""
    from_kafka: bool = False
    """Use the facts that the bridge publishes, once Kafka has them, instead of the file."""
    lister: Lister | None = None
    """Lists the pods; None: the inventory does."""
    enrol: Access | None = None
    """Where the agent enrols for the key that signs its records; None: records are unsigned."""
    eviction_client: EvictionClient | None = None
    """Client of the Eviction API; None: no API server, pods are ended through their cgroups."""
    removal: Removal | None = None
    """Checks at exit whether the agent is uninstalled; None: never, and limits stay in force."""
    node_watch: NodeWatch | None = None
    """Watches this Node's annotations; None: the inventory's annotations are used."""
    exclusive: ExclusiveCpus | None = None
    """Finds exclusive CPUs of pods; None: not looked for."""
    zones: ZonesFolders | None = None
    """Where NUMA zones are read; None: zones are not published."""
    pod_pressure: PodPressureReader | None = None
    """Reads PSI of each pod; None: not read."""
    services: Metered | None = None
    """Measures services while the policy learns of them; None: never."""
    sample_interval_ms: int = 1_000
    fetch_wait_ms: int = 500
    """``fetch.max.wait.ms``. The embedded broker always waits that long, which delays a command by half of it."""
    agent: AgentSettings = field(default_factory=AgentSettings)
    ahead: AheadSettings = field(default_factory=AheadSettings)
