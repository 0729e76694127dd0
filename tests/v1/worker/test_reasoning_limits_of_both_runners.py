# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Model runners V1 and V2 close reasoning blocks at the same positions.

Without a GPU the kernel is interpreted (`test_triton_interpreter`).
"""

from random import Random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm.triton_utils import HAS_TRITON

if not HAS_TRITON:
    pytest.skip("run by test_triton_interpreter.py", allow_module_level=True)

from tests.v1.sample.reasoning_limits_strategies import (
    live_rows,
    marker_sets,
    requests,
)
from tests.v1.sample.thinking_budget_driver import HolderBatch
from tests.v1.worker.thinking_budget_v2_driver import StateBatch
from vllm.v1.worker.gpu.sample import thinking_budget


@mock.patch.object(thinking_budget, "_SCAN_BLOCK", 8)
@given(st.data(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_both_model_runners_force_the_same_tokens(
    data, random: Random, num_spec_tokens
):
    markers = data.draw(marker_sets())
    batch = data.draw(st.lists(requests(markers), min_size=1, max_size=3))
    v1 = HolderBatch(markers, num_spec_tokens)
    v2 = StateBatch(markers, num_spec_tokens)
    v1.update(add=batch)
    for request in batch:
        v2.add(request)
    v2.apply_staged_writes()

    for _ in range(data.draw(st.integers(1, 8))):
        drafts = [
            request.draft(random.randint(0, num_spec_tokens), random)
            for request in batch
        ]
        for request, ids, v1_rows, v2_rows in zip(
            batch, drafts, v1.forced(drafts), v2.forced(batch, drafts)
        ):
            for i, forced in live_rows(ids, v1_rows):
                assert v2_rows[i] == forced
            request.accept(ids, random)
        v2.commit()
