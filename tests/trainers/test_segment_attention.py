"""Attention of segments: both kernels give what a softmax over the seen keys gives."""

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from trainers.segment_attention import BLOCK, KeptKeys, Placed, SegmentPass, block_mask

CPU = torch.device("cpu")


def random_segments(rng, rows: list[int], count: int) -> list[Placed]:
    """Branches of random rows and places, so many; ``rows`` are lengths of what is kept."""
    starts = np.cumsum([0, *rows])
    found, at = [], 0
    for _ in range(count):
        row = int(rng.integers(len(rows)))
        size = int(rng.integers(1, 40))
        found.append(Placed(at, size, int(starts[row]), int(rng.integers(0, rows[row] + 1)), False))
        at += size
    return found


def seen(segments: list[Placed], tokens: int) -> torch.Tensor:
    """Bool (queries, tokens + queries): which keys each query sees, pair by pair."""
    queries = sum(part.count for part in segments)
    found = torch.zeros(queries, tokens + queries, dtype=torch.bool)
    for part in segments:
        for index in range(part.count):
            at = part.at + index
            found[at, part.row : part.row + part.start] = True
            found[at, tokens + part.at : tokens + at + 1] = True
    return found


@pytest.mark.parametrize("flex", [False, "eager"])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_each_segment_sees_its_past_and_itself(flex):
    rng = np.random.default_rng(0)
    rows = [130, 40, 200]
    tokens = sum(rows)
    segments = random_segments(rng, rows, 25)
    queries = sum(part.count for part in segments)
    torch.manual_seed(0)
    query = torch.randn(1, 6, queries, 8)
    key, value = torch.randn(2, 1, 2, queries, 8)
    kept = KeptKeys(tokens, queries if flex else 0)
    for held in kept.layer(0, key, value):
        held[:, :, :tokens].normal_()
    past_key, past_value = (held[:, :, :tokens].clone() for held in kept.layer(0, key, value))
    found = SegmentPass(kept, segments, CPU, flex)(query, key, value, 0.3)

    keys = torch.cat([past_key, key], 2).repeat_interleave(3, 1)
    values = torch.cat([past_value, value], 2).repeat_interleave(3, 1)
    scores = (query @ keys.transpose(2, 3) * 0.3).masked_fill(~seen(segments, tokens), -torch.inf)
    torch.testing.assert_close(found, scores.softmax(-1) @ values, atol=1e-5, rtol=0)


def test_kept_segments_are_the_past_of_later_ones():
    torch.manual_seed(1)
    query, key, value = torch.randn(3, 1, 2, 50, 8)
    kept = KeptKeys(50)
    parts = [(0, 20), (20, 21), (21, 50)]
    found = []
    for start, stop in parts:
        one = SegmentPass(kept, [Placed(0, stop - start, 0, start, True)], CPU, False)
        found.append(one(*(given[:, :, start:stop] for given in (query, key, value)), None))
    whole = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(torch.cat(found, 2), whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_the_block_mask_lists_the_blocks_that_are_seen(seed):
    """Against the one that PyTorch makes by looking at every pair."""
    rng = np.random.default_rng(seed)
    rows = [int(length) for length in rng.integers(1, 500, 4)]
    segments = random_segments(rng, rows, 30)
    tokens, queries = sum(rows), sum(part.count for part in segments)
    scratch = queries + int(rng.integers(0, 200))
    ours = block_mask(segments, tokens, scratch, CPU)
    pairs = torch.zeros(-(-queries // BLOCK) * BLOCK, tokens + scratch, dtype=torch.bool)
    pairs[:queries, : tokens + queries] = seen(segments, tokens)
    theirs = create_block_mask(
        lambda batch, head, query, key: pairs[query, key],
        None,
        None,
        *pairs.shape,
        device="cpu",
        BLOCK_SIZE=BLOCK,
    )
    assert ours.seq_lengths == theirs.seq_lengths
    for side in ("kv", "full_kv"):
        counts, wanted = (getattr(mask, f"{side}_num_blocks")[0, 0] for mask in (ours, theirs))
        if side == "kv":
            # a block that lies half behind the last query is listed as partly seen by one of us
            any_full = ours.full_kv_num_blocks[0, 0] + counts
            assert torch.equal(any_full, theirs.full_kv_num_blocks[0, 0] + wanted)
        else:
            assert torch.equal(counts[:-1], wanted[:-1])
    for row in range(ours.kv_num_blocks.shape[-1]):
        listed = [
            {
                int(index)
                for side in ("kv", "full_kv")
                for index in getattr(mask, f"{side}_indices")[0, 0, row][
                    : int(getattr(mask, f"{side}_num_blocks")[0, 0, row])
                ]
            }
            for mask in (ours, theirs)
        ]
        assert listed[0] == listed[1]
