"""``slacktide savings``: best-effort use beyond native requests, from a log or export files."""
