#!/usr/bin/env python3
"""Computes the identity of a llama GGUF file with byte-level BPE from the text of model_identity.h alone.

An independent check of the golden value in gguf_model_test.cc. Needs numpy and gguf. Usage: model_identity.py FILE
"""
import hashlib
import struct
import sys

import gguf

PRE = {"gpt-2": 1, "smollm": 2, "qwen2": 3, "llama-bpe": 4}


def field(data):
    return struct.pack("<Q", len(data)) + data


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    get = lambda key: reader.fields[key].contents() if key in reader.fields else None
    tokens = get("tokenizer.ggml.tokens")
    heads, hidden = get("llama.attention.head_count"), get("llama.embedding_length")
    names = {tensor.name for tensor in reader.tensors}
    config = struct.pack("<8I", 0, get("llama.block_count"), hidden, heads, get("llama.attention.head_count_kv"),
                         get("llama.attention.key_length") or hidden // heads, get("llama.feed_forward_length"),
                         len(tokens))
    config += struct.pack("<d3B", float(get("llama.attention.layer_norm_rms_epsilon")), 0, 0,
                          "output.weight" not in names)
    rope = struct.pack("<Bd", 0, float(get("llama.rope.freq_base")))
    pre = get("tokenizer.ggml.pre")
    tokenizer = struct.pack("<7B", 0, PRE[pre], pre == "qwen2", pre == "llama-bpe", 0,
                            bool(get("tokenizer.ggml.add_bos_token")), bool(get("tokenizer.ggml.add_eos_token")))
    for name in ("bos", "eos", "eot", "unknown", "padding"):
        value = get(f"tokenizer.ggml.{name}_token_id")
        tokenizer += struct.pack("<BI", value is not None, value or 0)
    tokenizer += struct.pack("<Q", len(tokens)) + b"".join(field(t.encode()) for t in tokens)
    types = get("tokenizer.ggml.token_type")
    tokenizer += struct.pack("<Q", len(types)) + bytes(types) + struct.pack("<Q", 0)
    merges = get("tokenizer.ggml.merges")
    tokenizer += struct.pack("<Q", len(merges))
    for merge in merges:
        cut = merge.index(" ", 1)
        tokenizer += field(merge[:cut].encode()) + field(merge[cut + 1:].encode())
    encoded = field(b"epic.model-identity.v1") + field(config) + field(rope) + field(tokenizer)
    for tensor in sorted(reader.tensors, key=lambda t: t.name.encode()):
        dims = [int(d) for d in tensor.shape]
        rows = dims[1] if len(dims) > 1 else 1
        encoded += field(tensor.name.encode()) + field(struct.pack("<IQQ", int(tensor.tensor_type), rows, dims[0]))
        encoded += field(hashlib.sha256(tensor.data.tobytes()).digest())
    print(hashlib.sha256(encoded).hexdigest())


main()
