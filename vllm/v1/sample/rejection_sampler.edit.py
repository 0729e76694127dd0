# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A step in which no request has a draft left constrains no row of logits.

On CPU top-k fails on logits without a row.

Goes when 0.33.0 is no longer a base: 0.34.0 has no model runner V1.
"""

from tools.fork.edits import or_condition, until

with until("0.34.0"):

    def apply_sampling_constraints():
        with or_condition(tests="sampling_metadata.all_greedy"):
            logits.shape[0] == 0
