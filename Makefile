# SPDX-License-Identifier: Apache-2.0
# The short way in:
#   make install   an environment in .venv with the fork
#   make demo      a reasoning model with and without an answer reserve
#   make test      the whole suite, on the installed fork
#   make test-0.34 the engines, servers and rules on vLLM 0.34.0, for this CPU
#   make bench     does the reserve help? small, with its acceptance criteria
#   make lint      ruff and mypy
#   make wheel     the fork's wheel in dist/
#   make clean     remove what the others made (the cached base stays)
# VLLM_TARGET_DEVICE=cpu|cuda chooses the base (default: as setup.py chooses).

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
DEVICE := $(shell VLLM_TARGET_DEVICE='$(VLLM_TARGET_DEVICE)' $(PYTHON) -c \
    'from tools.fork.base import target_device; print(target_device())' 2>/dev/null)
$(if $(DEVICE),,$(error needs Python 3.11 or newer ($(PYTHON), set PYTHON) and \
    VLLM_TARGET_DEVICE unset, cpu or cuda (it is '$(VLLM_TARGET_DEVICE)')))
export VLLM_TARGET_DEVICE := $(DEVICE)

# An environment is made again when what it was made from is newer, or when it
# was made for another device or another Python.
MADE_FOR := $(DEVICE)-$(shell $(PYTHON) -c \
    'import sys; print("{}.{}".format(*sys.version_info))')
TOOLS := $(VENV)/.tools-$(MADE_FOR)
INSTALLED := $(VENV)/.installed-$(MADE_FOR)
LAID := $(VENV)/.laid-$(MADE_FOR)

BUILD := setup.py pyproject.toml tools/fork/base.py tools/fork/bases.toml \
    tools/fork/build.py
# Folders too: they change when a file goes.
FORK := $(shell find vllm -name __pycache__ -prune -o -print) \
    $(wildcard tools/fork/*.py)

# Files run side by side: most of a test is an engine on one core or a server that
# starts. Engines that bind their thread would all bind it to the same core.
PYTEST_ARGS ?= --numprocesses 2 --dist loadfile
TEST_ENV := OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind

# vLLM 0.34.0 has no wheel for CPU; it runs in an environment of its own.
ENV_034 := build/vllm-0.34.0
BUILT_034 := $(ENV_034)/.built-$(MADE_FOR)
TESTS_034 ?= tests/config tests/entrypoints tests/parser tests/v1 tests/test_*.py

.PHONY: install demo test test-0.34 bench lint wheel clean
.DELETE_ON_ERROR:

install: $(LAID)

$(TOOLS): requirements/test.txt
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet -r requirements/test.txt
	touch $@

$(INSTALLED): $(TOOLS) $(BUILD)
	rm -rf build/wheel
	$(RUN) setup.py --quiet bdist_wheel --dist-dir build/wheel
	$(RUN) -m pip uninstall --quiet --yes vllm
	$(RUN) -m pip install -r requirements/test.txt build/wheel/vllm-*.whl
	rm -rf build/wheel
	touch $@

# A changed module needs no new wheel: the fork is laid again over the installed
# base, whose originals the wheel carries.
$(LAID): $(INSTALLED) $(FORK)
	$(RUN) -m tools.fork apply
	touch $@

demo: install
	$(RUN) -m benchmarks.answer_reserve.demo

test: install
	$(TEST_ENV) $(RUN) -m pytest $(PYTEST_ARGS)

$(BUILT_034): $(INSTALLED) $(wildcard tools/standalone_cpu/*.*)
	$(RUN) -m tools.standalone_cpu 0.34.0 $(ENV_034)
	touch $@

# The platform comes as a plugin, which a device in the environment would forestall.
test-0.34: $(BUILT_034)
	$(RUN) -m tools.fork apply $(ENV_034)/lib/python*/site-packages
	env -u VLLM_TARGET_DEVICE $(TEST_ENV) \
	    $(ENV_034)/bin/python -m pytest $(PYTEST_ARGS) $(TESTS_034)

bench: install
	rm -rf build/bench
	$(RUN) -m benchmarks.answer_reserve.evaluate --limit 100 --reserve 16 32 \
	    --check --out build/bench

lint: $(TOOLS)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

wheel: $(TOOLS)
	$(RUN) setup.py --quiet bdist_wheel --dist-dir dist

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
