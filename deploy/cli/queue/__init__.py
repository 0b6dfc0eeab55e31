"""``slacktide queue``: the job queue."""
