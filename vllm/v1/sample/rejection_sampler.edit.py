# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A step in which no request has a draft left constrains no row of logits."""

from tools.fork.edits import or_condition, until

with until("0.34.0"):

    def apply_sampling_constraints():
        with or_condition(tests="sampling_metadata.all_greedy"):
            logits.shape[0] == 0
