# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A second engine in one process on CPU, after one that drafted with n-grams.

The scan of all modules meets llvmlite's library object, which has any attribute.

Goes when 0.33.0 is no longer a base: 0.34.0 reads real namespaces only.
"""

from tools.fork.edits import and_condition, until

with until("0.34.0"):

    def _rebind_kernels():
        with and_condition(tests="hasattr"):
            isinstance(value.__dict__, Mapping)
