"""trainers: behaviour cloning and reinforcement learning."""
