"""``slacktide bridge`` whose lease ends after 3 s: who loses the API server for 4 s has lost the lease."""

from slacktide.agents.cluster.bridge.bridge import BridgeSettings
from slacktide.agents.cluster.bridge.election import Timing
from slacktide.deploy.cli.main import main

TIMING = Timing(duration_s=3, renew_deadline_s=2.0, retry_s=0.4)

if __name__ == "__main__":
    BridgeSettings.__init__.__kwdefaults__["timing"] = TIMING  # type: ignore[index]  # it has some
    main()
