# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Logits are not copied for a limit that cannot force a token yet.

Else each step of a request with a limit pays for an FP32 copy of its logits.

Goes when upstream's thinking budget says whether it is due.
"""

from tools.fork.edits import and_condition, before_statement


class Sampler:
    def apply_sampling_params():
        with before_statement(tests="self.needs_logits_processing"):
            is_due = self.thinking_budget_state.is_due(
                idx_mapping_np, seq_lens_upper_bound_np
            )
        with and_condition(tests="self.needs_logits_processing"):
            not is_due
