"""Which pods leave a node when CPU or memory runs short. Pure."""
