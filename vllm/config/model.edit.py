# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The reserve is one of the sampling defaults that a generation config can set."""

from tools.fork.edits import after_statement


class ModelConfig:
    def get_diff_sampling_param(self):
        with after_statement(assigns="available_params"):
            available_params.append("reasoning_answer_reserve")
