"""A seeded world over the real protocol code: everything around it is made up, slow, lossy and late."""
