"""The suspend switch of one node, which works without Kafka."""
