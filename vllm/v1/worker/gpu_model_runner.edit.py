# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Async scheduling: a limit that is not due waits for no draft token."""

from tools.fork.edits import and_condition, until

with until("0.34.0"):

    class GPUModelRunner:
        def _sample(self):
            with and_condition(tests="self._draft_token_req_ids"):
                self.input_batch.deferred_sampled_token_ids is None
