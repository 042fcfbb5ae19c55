"""Pay every visit what it taught a real model about the answer.

    python examples/model_scorer.py runs/demo/checkpoints/final

The folder is any model with tokenizer and chat template that Transformers loads.  An agent
of two rules plays in an invented web; the model only says, after each page, how likely the
gold answer has become.
"""

import argparse

import gymnasium

import drv_env
from agents.scorers import TransformersScorer
from drv_env.protocol import Answer, Search, Visit, render_turn
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import WorldRecipe, questions, url_of


def main(arguments: list[str] | None = None) -> list[float | None]:
    """Play one episode; the information gain of each turn, None where nothing is scored."""
    parser = argparse.ArgumentParser(description="Information gain by a model in a folder.")
    parser.add_argument("folder", help="of a model, as save_pretrained writes it")
    folder = parser.parse_args(arguments).folder
    world = WorldRecipe(seed=0)
    env = gymnasium.make(
        drv_env.ENV_ID,
        tasks=questions(world.build(), hops=(2,)),
        # little is said and shown, for models with a small context
        tools=OfflineTools([world], results=1, fields=("url",), evidence_words=8),
        rules=drv_env.Rules(system_prompt=""),
    )
    with TransformersScorer(folder) as scorer:
        env = drv_env.InformationGainReward(env, scorer)
        question, _ = env.reset(seed=0)
        task = env.unwrapped.episode.task
        print(question)
        turns = [render_turn("I look it up.", Search((task.metadata["start"],)))]
        for entity, relation in zip(task.metadata["entities"], task.metadata["path"], strict=False):
            turns.append(render_turn("I open its page.", Visit((url_of(entity),), relation)))
        turns.append(render_turn("That is it.", Answer(task.answers[0])))
        gains = []
        for turn in turns:
            _, reward, _, _, info = env.step(turn)
            gains.append(info["turn_reward"].information_gain)
            gain = "" if gains[-1] is None else f", information gain {gains[-1]:+.3f}"
            print(f"turn {info['turn']}, {info['tool'] or 'answer'}: reward {reward:.3f}{gain}")
    env.close()
    return gains


if __name__ == "__main__":
    main()
