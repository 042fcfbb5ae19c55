"""replay: recorded trajectories, in text and in tokens."""
