"""Offline worlds: pages, links and questions made from a seed, and a scripted expert."""

from drv_env.worlds.expert import COMPACT, LINES, NO_NOISE, Expert, Noise, TurnStyle
from drv_env.worlds.questions import part_of, questions, split
from drv_env.worlds.recipe import WorldRecipe
from drv_env.worlds.world import RELATIONS, Page, World, url_of

__all__ = [
    "COMPACT",
    "LINES",
    "NO_NOISE",
    "RELATIONS",
    "Expert",
    "Noise",
    "Page",
    "TurnStyle",
    "World",
    "WorldRecipe",
    "part_of",
    "questions",
    "split",
    "url_of",
]
