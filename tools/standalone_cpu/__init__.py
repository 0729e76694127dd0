# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""An environment that runs vLLM 0.34.0 on this CPU.

``python -m tools.standalone_cpu FROM TO`` makes it. There is no wheel of it for CPUs.
Its Python and data files, from the source
distribution, run on the compiled parts of the CPU wheel that the fork is built on,
with what these lack compiled here: the operators of the model runner for CPUs
without Triton.
"""
