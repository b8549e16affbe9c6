#!/usr/bin/env python3
"""Makes dequantize.bin: random blocks of every storage type with the values that the gguf package gives them.

Needs numpy and gguf (0.19.0 made the stored file). Usage: make_dequantize_golden.py dequantize.bin
With --model FILE it prints the first values of some rows of a GGUF file instead, for gguf_model_test.cc.

Format, little-endian, once per type: u32 type id, u32 values, u32 bytes, the bytes, the values as f32.
"""
import struct
import sys

import gguf
import numpy as np

BLOCKS = 4
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
# Places of f16 scales in a block: random bits there would often be NaN or infinite.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}


def random_blocks(name, rng):
    values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    if name == "F32":
        return rng.standard_normal(64).astype("<f4").tobytes(), 64
    if name == "F16":
        tricky = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00], "<u2")
        return tricky.tobytes() + rng.standard_normal(56).astype("<f2").tobytes(), 64
    if name == "BF16":
        bits = rng.standard_normal(64).astype("<f4").view("<u4") >> 16
        return bits.astype("<u2").tobytes(), 64
    data = bytearray()
    for _ in range(BLOCKS):
        block = bytearray(rng.integers(0, 256, size, dtype=np.uint8).tobytes())
        for at in SCALES[name]:
            block[at:at + 2] = np.array(rng.standard_normal(), "<f2").tobytes()
        data += block
    return bytes(data), BLOCKS * values


def main():
    if sys.argv[1] == "--model":
        reader = gguf.GGUFReader(sys.argv[2])
        for tensor in reader.tensors:
            if tensor.name in ("token_embd.weight", "blk.0.attn_q.weight", "blk.29.ffn_down.weight", "output_norm.weight"):
                rows = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(-1, tensor.shape[0])
                row = rows[rows.shape[0] // 2]
                print(tensor.name, rows.shape, "row", rows.shape[0] // 2, [float.hex(float(v)) for v in row[:4]],
                      float.hex(float(row.astype(np.float64).sum())))
        return
    rng = np.random.default_rng(20240607)
    with open(sys.argv[1], "wb") as out:
        for name in TYPES:
            type_id = gguf.GGMLQuantizationType[name]
            data, count = random_blocks(name, rng)
            raw = np.frombuffer(data, np.uint8)
            if name in ("F32", "F16"):
                values = raw.view("<f4" if name == "F32" else "<f2").astype("<f4")
            else:
                values = gguf.quants.dequantize(raw, type_id).astype("<f4").reshape(-1)
            assert values.size == count
            out.write(struct.pack("<III", int(type_id), count, len(data)) + data + values.tobytes())


main()
