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
    marker_sets,
    requests,
)
from tests.v1.worker.thinking_budget_v2_driver import StateBatch
from vllm.v1.worker.gpu.sample import thinking_budget


@mock.patch.object(thinking_budget, "_SCAN_BLOCK", 8)
@given(st.data(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_both_model_runners_force_the_same_tokens(
    data, random: Random, num_spec_tokens
):
    markers = data.draw(marker_sets())
    batch = data.draw(st.lists(requests(markers), min_size=1, max_size=3))
    num_steps = data.draw(st.integers(1, 8))
    StateBatch(markers, num_spec_tokens).hold_against_holder(
        batch, num_steps, num_spec_tokens, random
    )
