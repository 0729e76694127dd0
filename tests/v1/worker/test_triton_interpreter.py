# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Runs the kernel tests where there is no GPU; with one they run by themselves."""

import pytest

from tests.answer_reserve_utils import HAS_RUNNER_V1
from tests.v1.worker.triton_interpreter import ROOT, run_pytest
from vllm.triton_utils import HAS_TRITON


@pytest.mark.skipif(HAS_TRITON, reason="the tests run on the device")
@pytest.mark.parametrize(
    "file",
    [
        "test_gpu_reasoning_limits.py",
        pytest.param(
            "test_reasoning_limits_of_both_runners.py",
            marks=pytest.mark.skipif(
                not HAS_RUNNER_V1, reason="this vLLM has no model runner V1"
            ),
        ),
    ],
)
def test_kernels_pass_their_tests_under_the_interpreter(file: str):
    output = run_pytest(str(ROOT / "tests/v1/worker" / file))
    assert " passed" in output and " skipped" not in output
    print(output)
