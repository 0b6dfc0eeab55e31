"""``slacktide replay``: decides a trace again, by the recorded or another policy."""
