"""Tries a grid of policies on recorded days: gain for best-effort pods against risk. Pure."""
