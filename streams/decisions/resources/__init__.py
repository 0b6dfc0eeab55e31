"""What batch, mid and free pods may request on a node, and when it is written. Pure."""
