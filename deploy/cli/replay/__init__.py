"""``slacktide replay``: what was recorded decided again, compared, or decided by another policy."""
