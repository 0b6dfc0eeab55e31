"""``slacktide queue``: the job queue by hand."""
