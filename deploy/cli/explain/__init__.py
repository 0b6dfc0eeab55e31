"""``slacktide explain``: explains a node, pod or Job from Kafka's records."""
