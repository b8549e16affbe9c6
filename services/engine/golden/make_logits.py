#!/usr/bin/env python3
"""Makes the golden logits of the engine's tests with transformers (PyTorch, f32, CPU).

  pip install torch transformers gguf
  build/release/bin/write_tiny_models DIR
  services/engine/golden/make_logits.py tiny DIR services/engine/golden
  services/engine/golden/make_logits.py gguf MODEL.gguf services/engine/golden/default_model.txt

tiny: reads the Hugging Face folders that write_tiny_models made. gguf: dequantises a llama GGUF file with the
`gguf` package, puts the rows of q and k back in the order of transformers (GGUF has them for NORM pairing) and
runs LlamaForCausalLM.

Format, one item a line, numbers separated by spaces:
  prompt ID...                        the prompt
  row INDEX LOGSUMEXP COUNT           logits that predict token INDEX + 1; then one line of COUNT pairs ID:LOGIT
  greedy ID:MARGIN...                 the greedy answer, with the distance of the two best logits before each
Tiny models list every id of the vocabulary; the default model its 64 best and every 193rd.
"""
import os
import sys

import torch
import transformers


def write_prompt(out, model, prompt, rows, answer_tokens, ids_of):
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[0]
    out.write("prompt " + " ".join(map(str, prompt)) + "\n")
    for row in rows:
        ids = ids_of(logits[row])
        total = torch.logsumexp(logits[row].double(), 0).item()
        out.write(f"row {row} {total:.9g} {len(ids)}\n")
        out.write(" ".join(f"{i}:{logits[row][i].item():.9g}" for i in ids) + "\n")
    answer = []
    tokens = list(prompt)
    for _ in range(answer_tokens):
        best = torch.topk(logits[-1], 2)
        answer.append(f"{best.indices[0].item()}:{(best.values[0] - best.values[1]).item():.6g}")
        tokens.append(best.indices[0].item())
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0]
    out.write("greedy " + " ".join(answer) + "\n")


def tiny(folder, target):
    for name in sorted(os.listdir(folder)):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            os.path.join(folder, name), dtype=torch.float32, attn_implementation="eager").eval()
        vocab = model.config.vocab_size
        with open(os.path.join(target, f"tiny_{name}.txt"), "w") as out:
            generator = torch.Generator().manual_seed(7)
            prompt = torch.randint(0, vocab, (150,), generator=generator).tolist()
            write_prompt(out, model, prompt, [0, 149], 6, lambda row: range(vocab))
        print(name)


def unpermute(weight, heads):
    rows, cols = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, cols).transpose(1, 2).reshape(rows, cols)


def load_gguf(path):
    import gguf
    reader = gguf.GGUFReader(path)
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        tensors[tensor.name] = torch.from_numpy(values.astype("float32", copy=True))

    def field(key):
        return reader.fields[key].contents()

    heads = field("llama.attention.head_count")
    kv_heads = field("llama.attention.head_count_kv")
    config = transformers.LlamaConfig(
        vocab_size=tensors["token_embd.weight"].shape[0], hidden_size=field("llama.embedding_length"),
        intermediate_size=field("llama.feed_forward_length"), num_hidden_layers=field("llama.block_count"),
        num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=field("llama.context_length"),
        rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"), tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": field("llama.rope.freq_base")})
    config._attn_implementation = "eager"
    model = transformers.LlamaForCausalLM(config).float().eval()
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    state = {"model.embed_tokens.weight": tensors["token_embd.weight"],
             "model.norm.weight": tensors["output_norm.weight"], "lm_head.weight": tensors["token_embd.weight"]}
    for name, values in tensors.items():
        if not name.startswith("blk."):
            continue
        _, layer, role, _ = name.split(".")
        if role == "attn_q":
            values = unpermute(values, heads)
        if role == "attn_k":
            values = unpermute(values, kv_heads)
        state[f"model.layers.{layer}.{names[role]}.weight"] = values
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return model


TEXTS = [
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nWhat is the capital of France?"
    "<|im_end|>\n<|im_start|>assistant\n",
    "Water boils at 100 degrees Celsius at sea level. At higher altitudes the air pressure is lower, so water boils "
    "at a lower temperature. This is why",
    "def fibonacci(n):\n    \"\"\"Returns the n-th Fibonacci number.\"\"\"\n    if n < 2:\n        return n\n",
    "The river rises in the mountains and runs for two hundred kilometres to the sea. " * 20 + "The river",
]


def default_model(path, target):
    model = load_gguf(path)
    vocab = model.config.vocab_size
    tokenizer = transformers.AutoTokenizer.from_pretrained(os.path.dirname(os.path.abspath(path)),
                                                           gguf_file=os.path.basename(path))
    fixed = list(range(0, vocab, 193))
    with open(target, "w") as out:
        for text in TEXTS:
            prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
            n = len(prompt)
            print(n)
            write_prompt(out, model, prompt, [n // 2, n - 1], 16,
                         lambda row: sorted(set(torch.topk(row, 64).indices.tolist()) | set(fixed)))


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("tiny", "gguf"):
        sys.exit(__doc__)
    (tiny if sys.argv[1] == "tiny" else default_model)(sys.argv[2], sys.argv[3])
