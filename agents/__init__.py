"""Touching the world: the node agent and its doors to Kafka, files and the clock."""

assert __name__ == "slacktide.agents", "import slacktide.agents, not agents: a second copy would be loaded"
