"""agents: who plays the game; engines and rollouts."""
