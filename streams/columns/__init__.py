"""What a stream worker does for many records at once, in arrays."""
