# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A pytest plugin: vLLM's GPU tests run on the CPU, under the Triton interpreter.

The modules ask for a GPU while they are imported; only then is there one.
"""

from unittest import mock

import pytest
import torch

# Imported before the gate is lifted: what these modules set up is for the CPU.
import vllm.v1.worker.gpu.sample.sampler  # noqa: F401
from vllm.platforms import current_platform


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    with (
        mock.patch.object(torch.cuda, "is_available", return_value=True),
        mock.patch.object(type(current_platform), "is_cuda_alike", return_value=True),
    ):
        report = yield
    if isinstance(collector, pytest.Module) and hasattr(collector.obj, "DEVICE"):
        collector.obj.DEVICE = torch.device("cpu")
    return report
