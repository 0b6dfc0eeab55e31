"""The kill switch of one node: who suspends it, and how the agent sees it without Kafka."""
