#!/usr/bin/env python3
"""Writes the golden files of the tokenizer tests, with ids from independent implementations.

usage: make_goldens.py [--model FILE.gguf] [--licenses DIR]
Needs the Python packages tokenizers, sentencepiece, protobuf and, for --model, gguf.

corpus.json          texts that are hard to split or merge
bpe_<pre>.json       a small vocabulary trained here, and the ids that `tokenizers` gives
bpe_merged_special.json  merges that make </s> as ordinary text, and merges that make and join a special token,
                     with the ids that `tokenizers` gives
spm_<name>.json      a small SentencePiece model trained here, and the ids that `sentencepiece` gives
spm_prefix.json      tokenizer.json files of such a model, one for each way to prefix spaces, and the ids that
                     `tokenizers` gives to texts with special tokens
default_model.json   ids of the corpus under the default model's vocabulary and merges (`tokenizers`)
"""
import argparse
import glob
import io
import json
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST
LLAMA = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST

HARD = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", " \n ", "\n \n", " \r\n\t ", "a", " a", "  a", "a ",
    "a  ", "a   b", "\n\na", "a\n\n", "a \n b", "a\n  b", "  \n\n  x", "x\u00a0y", "x\u3000\u3000y", "\u2028\u2029z",
    "\u180ex\u180e", "\u200bx\u200b y", "\ufeffbom", "\x0b\x0c", "\x1c\x1d \x1e", "\x85next\x85", "nul\x00byte", "\x7f",
    "I'm you're he's it'll we've I'd can't", "I'M YOU'RE HE'S IT'LL WE'VE I'D CAN'T", "'s't're've'm'll'd", "'S'T'Re'vE'M'lL'D",
    "'\u017f'\u017f x'\u017fy", "'r 'v 'l 'x ' '' '''", "don\u2019t won\u2019t", "rock'n'roll o'clock", "'sam 'sal", " 's 't",
    "1", "12", "123", "1234", "12345678", "3.14159", "1,000,000", "v1.2.3", "2024-06-11T12:34:56Z", " 7 77 777 7777", "x1y22z333",
    "\u0661\u0662\u0663", "\u216b \u2167", "\u00bd\u00be x\u00b2", "\u2460\u2461", "\uff11\uff12\uff13", "\U0001d7d8\U0001d7d9", "a1b2  3", "  1", "1  ", "1 \n 2",
    "Hello, World!", "hello world", "The quick brown fox jumps over the lazy dog.", "HELLO", "hElLo", "antidisestablishmentarianism",
    "na\u00efve caf\u00e9 r\u00e9sum\u00e9", "nai\u0308ve cafe\u0301 re\u0301sume\u0301", "e\u0301", "a\u0323\u0307", "a\u0307\u0323", "\u1e9b\u0323", "\u212b \u2126 \u212a",
    "\u1100\u1161\u11a8", "\uac01", "\u0928\u093f \u0915\u094d\u0937", "\u0301alone", " \u0301", "q\u0307\u0323\u0301\u0300\u0327",
    "Привет, мир!", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "வணக்கம்", "ආයුබෝවන්", "გამარჯობა", "Բարեւ", "ሰላም",
    "你好，世界！", "こんにちは世界", "안녕하세요 세계", "繁體中文 简体中文", "ひらがなカタカナ漢字", "中文123英文abc", "Tiếng Việt có dấu", "ǅ ǈ ǋ ß ẞ ﬁ ﬂ",
    "🙂", "🙂🙃 😀", "👩‍👩‍👧‍👦 family", "🇩🇪🇫🇷", "👍🏽", "❤️", "x🙂y", " 🙂", "1️⃣", "🏳️‍🌈!",
    "def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\r\n", "if(a&&b||!c){}", "#include <vector>\n", "a->b::c<d>&&e", "x=1;y=2;",
    "SELECT * FROM t WHERE a='b';", "{\"key\": [1, 2, {\"a\": null}]}", "https://example.org/path?q=1&r=2#frag", "user@example.org", "C:\\path\\to", "$100.00 €5 £3 ¥7",
    "...", "---", "!!!???", "(((a)))", "a.b.c", " .", ". ", " . ", "_x_ __init__ snake_case", "camelCase PascalCase", "-1 +2 *3 /4 %5 ^6", "~`@#$%^&*()_+-=[]{}|;:'\",.<>/?",
    " ,,,\n\n", "!\n", "!\r\n\n x", " !\n \n", "\n!\n", "\t\tx", "\t x", " \tx", "x \t", "x\n\ty", "  \n", "\n  ", "\n\n\n\n", "    ", "        deep", "a" * 40, "ab" * 30, " " * 40, "\n" * 40,
    "=" * 33, "0" * 35, "é" * 20, "🙂" * 12, "你" * 15, " a" * 20, "'s" * 20, "\r" * 5, "\r\n" * 8, "\t" * 9 + "x",
    "\U00040000", "\U000a1234 x", "\x04\x06", "x\x04y\x06z", "\U0010ffff", "\ue000", "\ufffd", "\u00ad soft", "\u2060",
    "Dr. Smith's 3rd-floor office (room #42) isn't open until 9:30.", "Ünïcödé ÀÉÎÕÜ", "①②③ ⅠⅡ ½", "∀x∈ℝ: x²≥0", "→←↑↓", "«»„“”", "…", "–—", "°C µm Å",
    "end.\n\nStart", "a\u0020\u0009\u000a\u000b\u000c\u000d b", "\u1680x", "\u2003\u2003x", "\u205f", "x\u202fy", "\u3000",
]

POOLS = [
    "abcdefgh  ", "ABCxyz'sStTrReElLdDmMvV ", "0123456789 ab", " \t\n\r", " \n", "a \n\r", "!?.,;:-' a", "éèüñç e\u0301\u0323\u0307",
    "你好世界 a1", "приветмир ", "🙂👩\u200d🇩🇪\ufe0f x", "\u00a0\u3000\u2028\u180e\u0085 ab1", "१२३४ नमस", "مرحبا ١٢٣", "'\u017fsS l",
]

SPECIAL_TEXTS = [
    "<|im_start|>user\nhi<|im_end|>\n", "a<|im_end|>b", "<|im_start|><|im_start|>", "<|im_start", "<|im_end|> x", " <|im_end|>", "<tool>x</tool>", "a <tool> b",
    "<|im_<tool>end|>", "x\n\n\n\n\n\ny", "e<|im_end|>\u0301", "12<|im_end|>34", "  <|im_end|>  ", "<|im_start|>system\nYou are.<|im_end|>\n<|im_start|>user\n",
]


def corpus(rng):
    texts = list(HARD)
    for pool in POOLS:
        for _ in range(8):
            texts.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 24))))
    every = "".join(POOLS)
    for _ in range(60):
        texts.append("".join(rng.choice(every) for _ in range(rng.randint(2, 30))))
    return texts


def training_text(licenses):
    lines = []
    for path in sorted(glob.glob(os.path.join(licenses, "*"))):
        if os.path.isfile(path) and not os.path.islink(path):
            lines += io.open(path, encoding="utf-8", errors="replace").read().splitlines(True)[:120]
    return lines + [text for text in HARD for _ in range(3)]


def write(name, value):
    with open(os.path.join(HERE, name), "w", encoding="ascii") as out:
        json.dump(value, out, separators=(",", ":"))
        out.write("\n")


def byte_alphabet():
    printable = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    table, spare = {}, 0x100
    for byte in range(256):
        if byte in printable:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(spare)
            spare += 1
    return table


def pre_tokenizer(pre):
    from tokenizers import Regex, pre_tokenizers as p
    if pre == "gpt-2":
        return p.ByteLevel(add_prefix_space=False)
    if pre == "smollm":
        return p.Sequence([p.Digits(individual_digits=True), p.ByteLevel(add_prefix_space=False)])
    pattern = QWEN2 if pre == "qwen2" else LLAMA
    return p.Sequence([p.Split(Regex(pattern), "isolated"), p.ByteLevel(add_prefix_space=False, use_regex=False)])


def make_bpe(pre, texts, lines):
    from tokenizers import AddedToken, Tokenizer, models, normalizers, trainers
    alphabet = byte_alphabet()
    missing = {0x04, 0x06, 0xF1} if pre == "smollm" else set()
    trainer = trainers.BpeTrainer(vocab_size=640, show_progress=False,
                                  initial_alphabet=[c for b, c in alphabet.items() if b not in missing])
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizer(pre)
    trained.train_from_iterator([l for l in lines if not set(l.encode()) & missing], trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(m) for m in model["merges"]]
    vocab = {t: i for i, t in enumerate(t for t in sorted(model["vocab"], key=model["vocab"].get)
                                        if t not in {alphabet[b] for b in missing})}
    ignore = pre == "llama-bpe"
    if ignore:  # some tokens that merges alone cannot make
        merges = [m for i, m in enumerate(merges) if i % 7]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore))
    tokenizer.pre_tokenizer = pre_tokenizer(pre)
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in ("<tool>", "\n\n\n\n")])
    tokens = list(vocab) + ["<|im_start|>", "<|im_end|>", "<tool>", "\n\n\n\n"]
    write(f"bpe_{pre}.json", {
        "pre": pre, "nfc": pre == "qwen2", "ignore_merges": ignore, "tokens": tokens,
        "types": [1] * len(vocab) + [3, 3, 4, 4], "merges": merges,
        "ids": [tokenizer.encode(t, add_special_tokens=False).ids for t in texts],
        "special": [{"text": t, "ids": tokenizer.encode(t, add_special_tokens=False).ids} for t in SPECIAL_TEXTS]})


def make_merged_special():
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    special = "<|e|>"
    merges = [("<", "/"), ("s", ">"), ("</", "s>"), ("</s>", "\u010a"), ("a", "b"), ("<", "|"), ("|", ">"), ("e", "|>"),
              ("<|", "e|>"), (special, "!"), ("x", special), ("!", "!")]
    tokens = list(byte_alphabet().values()) + [left + right for left, right in merges]
    vocab = {t: i for i, t in enumerate(tokens)}

    def tokenizer(merges):
        made = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return made

    template = tokenizer(merges)
    template.add_special_tokens([AddedToken(special, normalized=False, special=True)])
    user = tokenizer([(l, r) for l, r in merges if special not in (l, r, l + r)])
    rng = random.Random(1)
    texts = ["</s>", "a</s>\nb", "<s>ab</s></s>", "</s", "<|e|>", "x<|e|>!", "<|e|>!!", "x<|</s>e|>", "ab<|e|></s>"]
    texts += ["".join(rng.choice(["</s>", "<|e|>", *"</s>|e!x\nab \u00e9"]) for _ in range(rng.randint(1, 20))) for _ in range(60)]
    write("bpe_merged_special.json", {
        "pre": "none", "nfc": False, "ignore_merges": False, "tokens": tokens,
        "types": [3 if t == special else 1 for t in tokens], "merges": merges,
        "cases": [{"text": t, "template": template.encode(t, add_special_tokens=False).ids,
                   "user": user.encode(t, add_special_tokens=False).ids} for t in texts]})


def make_spm(name, texts, lines, prefix, byte_fallback, restrict):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(l.rstrip("\n") for l in lines if l.strip() and "\0" not in l), model_writer=model, model_type="bpe",
        vocab_size=800 if byte_fallback else 500, byte_fallback=byte_fallback, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=prefix, character_coverage=0.995,
        allow_whitespace_only_pieces=True, user_defined_symbols=["<tool>"], minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    if restrict:  # most long pieces become unused: merges go through them and are undone
        for i, piece in enumerate(proto.pieces):
            if piece.type == piece.NORMAL and len(piece.piece) > 2 and i % 3:
                piece.type = piece.UNUSED
    sp = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())

    def kind(i):
        if sp.id_to_piece(i) == "<tool>":
            return 4
        for test, value in ((sp.is_unknown, 2), (sp.is_control, 3), (sp.is_unused, 5), (sp.is_byte, 6)):
            if test(i):
                return value
        return 1

    size = sp.vocab_size()
    texts = [t if "\0" not in t else "" for t in texts] + [t for t in SPECIAL_TEXTS]
    if prefix:  # sentencepiece prefixes its input only, model files also what follows a special token
        texts = [t for t in texts if "<tool>" not in t]
    write(f"spm_{name}.json", {
        "space_prefix": prefix, "unknown": sp.unk_id(), "bos": sp.bos_id(), "eos": sp.eos_id(),
        "tokens": [sp.id_to_piece(i) for i in range(size)], "types": [kind(i) for i in range(size)],
        "scores": [sp.get_score(i) for i in range(size)],
        "cases": [{"text": t, "ids": sp.encode(t), "decoded": sp.decode(sp.encode(t))} for t in texts]})


def make_prefixes(texts, lines):
    import sentencepiece
    from tokenizers import Tokenizer
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(l.rstrip("\n") for l in lines if l.strip() and "\0" not in l), model_writer=model, model_type="bpe",
        vocab_size=560, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        character_coverage=0.98, allow_whitespace_only_pieces=True, minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    vocab = {sp.id_to_piece(i): i for i in range(sp.vocab_size())}
    merges = []
    for piece, i in sorted(vocab.items(), key=lambda item: (-sp.get_score(item[1]), item[1])):
        splits = [(piece[:at], piece[at:]) for at in range(1, len(piece))] if i > 258 else []
        merges += [split for split in splits if all(part in vocab for part in split)]

    def added(i, content, special):
        return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": special}

    size = len(vocab)
    base = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None, "decoder": None,
            "added_tokens": [added(i, t, True) for i, t in enumerate(("<unk>", "<s>", "</s>"))] +
                            [added(size, "<|im_start|>", True), added(size + 1, "<|im_end|>", True),
                             added(size + 2, "<tool>", False)],
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": vocab, "merges": merges}}
    space = "\u2581"
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": space}
    prepend = {"type": "Prepend", "prepend": space}

    def metaspace(scheme):
        return {"type": "Metaspace", "replacement": space, "prepend_scheme": scheme, "split": False}

    both = {"type": "Sequence", "normalizers": [prepend, replace]}
    shapes = [("prepend", both, None), ("replace", replace, None), ("prepend first", both, metaspace("first")),
              ("prepend never", both, metaspace("never"))]
    shapes += [(scheme, None, metaspace(scheme)) for scheme in ("first", "always", "never")]
    inner = ["x", " x", "  x", "", "the", "\u2581x", "\nx", "1 2", "\u00e9"]
    special = [a + t + b for t in ("<s>", "<|im_end|>", "<s></s>", "<tool>", "<s><tool>") for a in inner for b in inner]
    special += SPECIAL_TEXTS + ["<s>" + t for t in HARD[:40]] + texts[:60]
    result = []
    for name, normalizer, pre in shapes:
        tokenizer = Tokenizer.from_str(json.dumps({**base, "normalizer": normalizer, "pre_tokenizer": pre}))
        result.append({"name": name, "normalizer": normalizer, "pre_tokenizer": pre,
                       "ids": [tokenizer.encode(t, add_special_tokens=False).ids for t in special]})
    write("spm_prefix.json", {"tokenizer": base, "texts": special, "shapes": result})


def make_default(path, texts):
    from gguf import GGUFReader
    from tokenizers import Tokenizer, models
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ", 1)) for m in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizer("smollm")
    long_runs = [["A", 43000], ["Z", 131072], ["us", 50000], ["\n", 20000], [" ", 30000], ["a ", 20000], [" \n", 20000], ["1", 20000],
                 ["\u00e9", 20000], ["!", 40000], ["'s", 20000], ["\t", 20000]]

    def summary(ids):
        value = 14695981039346656037
        for i in ids:
            value = ((value ^ i) * 1099511628211) % 2**64
        return {"count": len(ids), "hash": str(value)}

    write("default_model.json", {
        "ids": [tokenizer.encode(t).ids for t in texts],
        "long": [{"unit": u, "repeat": n, **summary(tokenizer.encode(u * n).ids)} for u, n in long_runs]})
    return tokenizer


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--model")
    args.add_argument("--licenses", default="/usr/share/common-licenses")
    args = args.parse_args()
    texts = corpus(random.Random(20240611))
    lines = training_text(args.licenses)
    write("corpus.json", texts)
    for pre in ("gpt-2", "smollm", "qwen2", "llama-bpe"):
        make_bpe(pre, texts, lines)
    make_merged_special()
    make_spm("bytes", texts, lines, prefix=True, byte_fallback=True, restrict=False)
    make_spm("unknown", texts, lines, prefix=False, byte_fallback=False, restrict=False)
    make_spm("unused", texts, lines, prefix=True, byte_fallback=True, restrict=True)
    make_prefixes(texts, lines)
    if args.model:
        make_default(args.model, texts)


if __name__ == "__main__":
    main()
