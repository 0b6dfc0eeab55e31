"""``slacktide calc``: the decision functions by hand, one JSON case a line."""
