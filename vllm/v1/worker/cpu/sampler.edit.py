# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""CPU: limits on reasoning have a module of their own; logits are not copied for
one that cannot force a token yet.

The class of upstream works in every step, and what it forces is cut short where a
forced end begins with the natural end (as in vllm-project/vllm#54467).

Goes when upstream's is as exact, knows exits (#44676) and waits until a limit is due.
"""

from tools.fork.edits import and_condition, before_statement, move_def, since

with since("0.34.0"):
    with move_def("CPUThinkingBudgetState", after_import="vllm.v1.worker.cpu.states"):
        from vllm.v1.worker.cpu.thinking_budget import CPUThinkingBudgetState

    class CPUSampler:
        def apply_sampling_params():
            with before_statement(tests="self.needs_logits_processing"):
                is_due = self.thinking_budget_state.is_due(
                    idx_mapping_np, seq_lens_upper_bound_np
                )
            with and_condition(tests="self.needs_logits_processing"):
                not is_due
