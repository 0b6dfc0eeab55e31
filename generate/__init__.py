"""Writes what is derived from the code: schemas, reference pages, the chart. For a checkout, not in releases."""
