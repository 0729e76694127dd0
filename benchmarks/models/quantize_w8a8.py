# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Quantize a model to W8A8: int8 weights a channel, int8 activations a token.

    python -m benchmarks.models.quantize_w8a8 MODEL TARGET

Weights of the projections are rounded to nearest and activations are quantized
as they come, so no calibration data is needed. The result is a compressed-tensors
checkpoint that vLLM runs on any processor with int8 kernels (AVX2 on).
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from compressed_tensors.quantization import (
    QuantizationConfig,
    QuantizationStatus,
    preset_name_to_scheme,
)
from safetensors.torch import load_file, save_file

INT8_MAX = 127


def quantize_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round a weight to int8 with one scale for each output channel.

    Args:
        weight: [out_features, in_features].

    Returns:
        The int8 weight, [out_features, in_features], and its scale as float32,
        [out_features, 1].

    """
    weight = weight.float()
    largest = weight.abs().amax(dim=1, keepdim=True)
    # A channel of zeros stays one with any scale.
    scale = torch.where(largest > 0, largest, torch.ones_like(largest)) / INT8_MAX
    return (weight / scale).round().to(torch.int8), scale


def quantize_model(model: Path, target: Path) -> None:
    """Write a quantized copy of a model folder.

    Raises:
        ValueError: If the folder holds no projection weights, or quantized ones.

    """
    config = json.loads((model / "config.json").read_text())
    if "quantization_config" in config:
        raise ValueError(f"{model} is quantized already; give the original.")
    target.mkdir(parents=True, exist_ok=True)
    num_quantized = 0
    for file in sorted(model.glob("*.safetensors")):
        tensors = load_file(file)
        for name in [name for name in tensors if name.endswith("_proj.weight")]:
            scale_name = name + "_scale"
            tensors[name], tensors[scale_name] = quantize_weight(tensors[name])
            num_quantized += 1
        save_file(tensors, target / file.name, metadata={"format": "pt"})
    if not num_quantized:
        raise ValueError(f"{model} holds no weights named *_proj.weight.")
    scheme = preset_name_to_scheme("W8A8", ["Linear"])
    quantization = QuantizationConfig(
        config_groups={"group_0": scheme},
        format="int-quantized",
        quantization_status=QuantizationStatus.COMPRESSED,
        ignore=["lm_head"],
    )
    config["quantization_config"] = quantization.model_dump(mode="json")
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name in ("generation_config.json", "chat_template.jinja"):
        if (model / name).exists():
            shutil.copy(model / name, target)
    for file in model.glob("tokenizer*"):
        shutil.copy(file, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    quantize_model(args.model, args.target)
    print(args.target)


if __name__ == "__main__":
    main()
