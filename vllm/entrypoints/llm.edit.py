# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The generation config's reserve is one of the default sampling params."""

from tools.fork.edits import replace_statement


class LLM:
    def get_default_sampling_params(self):
        with replace_statement(returns="SamplingParams.from_optional"):
            defaults = dict(self.default_sampling_params)
            answer_reserve = defaults.pop("reasoning_answer_reserve", None)
            params = SamplingParams.from_optional(**defaults)
            # Not held against a default of max_tokens that the caller can raise.
            params.reasoning_answer_reserve = answer_reserve
            return params
