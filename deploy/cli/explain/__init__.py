"""``slacktide explain``: why a node or a pod is as it is, from Kafka's records."""
