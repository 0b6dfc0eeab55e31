"""``slacktide explain``: why a node or a pod is as it is, told from the log."""
