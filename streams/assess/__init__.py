"""What a cluster could have sold in recorded days: pure arithmetic over arrays of nodes by time steps."""
