"""Rewards: what a turn and an episode earn."""

from drv_env.rewards.records import TurnReward

__all__ = ["TurnReward"]
