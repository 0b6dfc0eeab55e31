"""``slacktide audit``: actions on pods, and a tamper-evident export."""
