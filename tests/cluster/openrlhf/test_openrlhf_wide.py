"""OpenRLHF on several ranks, with everything on; asynchronous, and gone on with.  Minutes each."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cluster.openrlhf.openrlhf_runs import FLAGS, RAY, Ran, reinforce
from trainers.information_gain import score_with_model
from trainers.loss_settings import LossSettings
from trainers.openrlhf.run import Cluster

pytestmark = pytest.mark.slow


def test_two_ranks_with_split_weights_packed_rows_and_a_reference(agent, tmp_path):
    ran = reinforce(
        agent,
        tmp_path,
        minibatches=1,
        packed=True,
        microbatch_tokens=512,
        loss=LossSettings(kl_weight=0.01, importance_cap=2.0),
        cluster=Cluster(
            gpus=2,
            zero_stage=3,
            check_syncs=2,
            ray={**RAY, "num_cpus": 6, "num_gpus": 3},
            flags=(*FLAGS, "--train.colocate_actor_ref", "--ckpt.save_hf", "--ckpt.disable_ds"),
        ),
    )
    first, second = ran.metrics()
    assert [first["syncs_compared"], second["syncs_compared"]] == [1, 2]
    for each in (first, second):
        assert np.isfinite([each["loss"], each["grad_norm"], each["reference_kl"]]).all()
    # one update a step: at its start the policy is the old one, and in step 1 the reference
    assert abs(first["kl"]) < 1e-3
    assert abs(first["reference_kl"]) < 1e-3
    assert abs(first["rollout_kl"]) < 0.05
    assert second["reference_kl"] > first["reference_kl"]
    theirs, ours = gains(ran, 2)
    np.testing.assert_allclose(theirs, ours, atol=1e-2)


def gains(ran: Ran, step: int) -> tuple[list[float], list[float]]:
    """Of a step's scored turns: the run's, and our packed scorer's by the weights before it."""
    found = ran.trajectories(step)
    own = score_with_model(found, ran.model(step), ran.agent.template).trajectories
    pairs = [
        (theirs.information_gain, ours.information_gain)
        for item, scored in zip(found, own, strict=True)
        for theirs, ours in zip(item.rewards, scored.rewards, strict=True)
        if ours.information_gain is not None
    ]
    assert pairs
    return [theirs for theirs, _ in pairs], [ours for _, ours in pairs]


def test_asynchronous_rollouts_with_gains_by_vllm_and_going_on(agent, tmp_path):
    settings = {
        "gain_by": "engine",
        "rollouts": "async",
        "max_staleness": 1,
        "loss": LossSettings(importance_cap=2.0),
        "cluster": Cluster(ray=RAY, check_syncs=9, flags=FLAGS),
    }
    begun = reinforce(agent, tmp_path, **settings)
    theirs, ours = gains(begun, 1)
    np.testing.assert_allclose(theirs, ours, atol=0.1, rtol=0.02)  # bfloat16, of another kernel
    ran = reinforce(agent, tmp_path, steps=3, resume=True, **settings)
    steps = ran.metrics()
    assert [each["step"] for each in steps] == [1, 2, 3]
    assert all(0 <= each["staleness"] <= 2 for each in steps)
    assert [each["weight_version"] for each in steps] == [1, 2, 2]  # sent once when it went on
    assert all(np.isfinite(each["loss"]) for each in steps)
