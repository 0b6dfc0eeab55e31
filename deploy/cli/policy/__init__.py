"""``slacktide policy``: checks and explains a policy."""
