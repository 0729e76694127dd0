# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Lays the fork over a released vLLM, and exports it (``python -m tools.fork``)."""
