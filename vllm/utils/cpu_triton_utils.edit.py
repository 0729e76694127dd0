# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Sampled drafts on CPU: each draft position gets its request's temperature.

The compiled kernel expands int64 only. What it wrote for another dtype went into a
copy, so that temperature, top-k and top-p of draft positions were unset memory.

Goes when 0.33.0 is no longer a base: 0.34.0 has no model runner V1.
"""

from tools.fork.edits import replace_statement, until

with until("0.34.0"):

    def _expand_kernel_impl():
        with replace_statement(calls="torch.ops._C.expand_kernel_impl"):
            values = torch.where(input_val == replace_from, replace_to, input_val)
            counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1))
            output.copy_(values.repeat_interleave(counts))
