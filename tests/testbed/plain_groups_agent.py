"""``slacktide agent`` where groups are plain folders, as a virtual node's are: it signals the processes named there."""

from slacktide.agents.node.cgroup import best_effort
from slacktide.deploy.cli.main import main

if __name__ == "__main__":
    best_effort.is_kernels = lambda _: True
    main()
