"""``slacktide calc``: applies decision rules to JSON cases, one per line."""
