"""``slacktide savings``: best-effort use beyond native requests, from Kafka or export files."""
