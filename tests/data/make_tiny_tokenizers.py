#!/usr/bin/env python3
"""Makes the small tokenizers of this folder and what the Python package says about them.

  tiny_tokenizer.json      byte-level BPE, NFC, a Llama-3-like split, a BOS template, and padding and truncation that
                           a server must ignore
  tiny_byte_fallback.json  SentencePiece-style BPE with byte fallback and the Llama-2 decoder
  tokens_tiny.json, tokens_tiny_byte_fallback.json
      text, ids (special tokens parsed), plain (not parsed), framed (with what the post-processor adds), decoded
      (all tokens), skipped (without special tokens)

  tokens_tiny_gguf.json
      for the names of pre-tokenizers in GGUF files: ids of every text of tokens_tiny.json under the pipeline that the
      name stands for, with the vocabulary of tiny_tokenizer.json

  tiny_spm.json, tiny_wordpiece.json
      vocabularies as GGUF files hold them (tokens, types, scores), and for every text of tokens_tiny.json its ids
      (special tokens parsed, then framed): for the SentencePiece kind by a plain merge of the best-scored pair, as
      SentencePiece does it; for WordPiece by the tokenizers package on the vocabulary before GGUF's rewriting

Needs: pip install tokenizers (made with 0.23.3). Run it in this folder; it is deterministic.
"""
import json
import random
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = """The capital of France is Paris. The capital of Germany is Berlin, and that of Japan is Tokyo.
A stick holds sixty-four halves; a page holds sixteen tokens. The page is padded, the stick is not.
def add(a, b):\n    return a + b\n\nfor i in range(10):\n    print(i, add(i, 1))\nint main() { return 0; }
Der Zug fährt über die Brücke. Où est la bibliothèque? ¿Dónde está el café? Привет, мир! Здравствуй.
今日は世界。東京の天気は晴れです。 안녕하세요 세계 שלום עולם مرحبا بالعالم नमस्ते 😀 👍 👨‍👩‍👧
1 2 3 10 100 1000 2024 3.14159 it's don't we'll I'm they've he'd you're
""" * 4

STRINGS = [
    "", " ", "  ", "a", "The capital of France is", "Hello, world!", "   leading and trailing   ",
    "tabs\t\tand\tmixed \t \t spaces", "line\nbreaks\n\n\nand\r\n\r\nCRLF \n \n", "a" * 50, " " * 40 + "x", "\n" * 40,
    "def f(x):\n    if x:\n        return [i**2 for i in x]\n", "int main(void) { return 0x1F & ~mask; } // ok",
    "1234567890", "3.14159 + 2.71828 = 5.85987", "1,000,000", "12 345 6789", "٠١٢٣٤", "½ ⅓ ²", "it's don't we'll I'M",
    "naïve café résumé", "cafe\u0301 re\u0301sume\u0301", "A\u030A ﬁ ﬂ", "Ünïcödé", "ß ẞ İ ı ſ", "Привет, мир!",
    "今日は世界。", "東京の天気", "안녕하세요 세계", "각", "שלום עולם", "مرحبا بالعالم",
    "mixed עברית and English عربي", "नमस्ते दुनिया", "ไทยภาษา", "😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈 flag 🇫🇷🇩🇪",
    "a😀b👍c", "e\u0301\u0302\u0303 stacked", "\u200b\u200d\ufeff zero width", "\u00a0nbsp\u2003em\u3000ideographic",
    "\x00 nul", "\x01\x02\x7f control", "\x1b[31mred\x1b[0m", "\u202eRTL override\u202c", "\ufffd replacement",
    "\U0010ffff last", "\U00013661's hieroglyph", "<|im_start|>user\nHi<|im_end|>", "<|im_end|><|im_end|>",
    "x<|bos|>y", "<|im_start", "|im_end|>", "< |im_end|>", "<|IM_END|>", "a<tool>b", "<tool><|im_end|><tool>",
    "    four    eight        ", "<s>hello</s>", "<0x41> literal", "▁meta▁space▁", "Ġ Ċ byte alphabet", "\\n \\t \\\\",
    '{"key": ["value", 1, null]}', "https://example.com/a?b=c&d=%20#e", "user@example.com", "C++20, C#, F#",
    "a\u0000b\u0000c", "æøå ÆØÅ", "…—–‘’“”", "∑∫√≠≤≥ αβγ", "words, words; words: words!? (words) [words]",
    "CamelCase snake_case kebab-case SCREAMING", "ends with space ", "ends with newline\n",
]
rng = random.Random(7)
ALPHABET = list("abcdefghij \n\t0123456789.,'") + list("éßЖ界안שعन😀👍\u0301\u200d")
STRINGS += ["".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, 60))) for _ in range(40)]


def save(tokenizer, name, expected):
    plain_file = tokenizer.to_str()
    reference = Tokenizer.from_str(plain_file)
    reference.no_padding()
    reference.no_truncation()
    rows = []
    for text in STRINGS:
        reference.encode_special_tokens = False
        ids = reference.encode(text, add_special_tokens=False).ids
        framed = reference.encode(text).ids
        reference.encode_special_tokens = True
        plain = reference.encode(text, add_special_tokens=False).ids
        rows.append({"text": text, "ids": ids, "plain": plain, "framed": framed,
                     "decoded": reference.decode(ids, skip_special_tokens=False),
                     "skipped": reference.decode(ids, skip_special_tokens=True)})
    with open(name, "w", encoding="utf-8") as f:
        json.dump(json.loads(plain_file), f, ensure_ascii=False, separators=(",", ":"))
    with open(expected, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")


def byte_level():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    split = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|bos|>", "<|im_start|>", "<|im_end|>"]
    t.train_from_iterator([CORPUS], trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("        ", normalized=False)])
    t.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", pair="<|bos|> $A <|bos|> $B", special_tokens=[("<|bos|>", t.token_to_id("<|bos|>"))])
    t.enable_padding(length=16, pad_id=0, pad_token="<|pad|>")
    t.enable_truncation(max_length=8)
    return t


def byte_fallback():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pieces = [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator([CORPUS], trainers.BpeTrainer(
        vocab_size=480, special_tokens=["<unk>", "<s>", "</s>"] + pieces, show_progress=False))
    model = json.loads(t.to_str())
    # As in real files: byte pieces are ordinary tokens, not added ones.
    model["added_tokens"] = [a for a in model["added_tokens"] if a["id"] < 3]
    t = Tokenizer.from_str(json.dumps(model))
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    return t


def gguf_pipelines(tiny):
    """The same vocabulary under the pipelines of GPT-2, SmolLM, Llama 3 and Qwen 2."""
    llama = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)

    def split(pattern):
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    pipelines = {
        "gpt-2": (None, gpt2, False),
        "smollm": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2]), False),
        "llama-bpe": (None, split(llama), True),
        "qwen2": (normalizers.NFC(), split(llama.replace("{1,3}", "")), False),
    }
    out = {}
    for name, (normalizer, pre_tokenizer, ignore_merges) in pipelines.items():
        file = json.loads(tiny.to_str())
        file.update(normalizer=None, pre_tokenizer=None, post_processor=None, padding=None, truncation=None)
        file["model"]["ignore_merges"] = ignore_merges
        t = Tokenizer.from_str(json.dumps(file))
        if normalizer:
            t.normalizer = normalizer
        t.pre_tokenizer = pre_tokenizer
        out[name] = [t.encode(text).ids for text in STRINGS]
    with open("tokens_tiny_gguf.json", "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(f'"{k}": ' + json.dumps(v, separators=(",", ":")) for k, v in out.items()) + "\n}\n")


NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def spm_ids(text, ids, scores, types, space_prefix):
    """Special and user-defined pieces are cut out, longest first; a space stands before each stretch; the adjacent pair
    whose join has the best score is merged, the leftmost of equals; what is left over becomes bytes."""
    cut = sorted((p for p, i in ids.items() if types[i] in (UNKNOWN, CONTROL, USER)), key=len, reverse=True)
    out, at, stretch = [], 0, ""

    def merge(stretch):
        if not stretch:
            return
        symbols = list((("▁" if space_prefix else "") + stretch.replace(" ", "▁")))
        while True:
            best = None
            for k in range(len(symbols) - 1):
                joined = ids.get(symbols[k] + symbols[k + 1])
                if joined is not None and types[joined] == NORMAL and (best is None or scores[joined] > best[0]):
                    best = (scores[joined], k)
            if best is None:
                break
            k = best[1]
            symbols[k:k + 2] = [symbols[k] + symbols[k + 1]]
        for s in symbols:
            if s in ids:
                out.append(ids[s])
            else:
                out.extend(ids[f"<0x{b:02X}>"] for b in s.encode())

    while at < len(text):
        piece = next((p for p in cut if text.startswith(p, at)), None)
        if piece is None:
            stretch, at = stretch + text[at], at + 1
        else:
            merge(stretch)
            out.append(ids[piece])
            stretch, at = "", at + len(piece)
    merge(stretch)
    return out


def spm():
    model = json.loads(byte_fallback().to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    # Two pieces that users defined; the later a piece was learnt, the lower its score.
    tokens += ["<tool>", "\t\t"]
    assert len(set(tokens)) == len(tokens)
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 261) + [USER] * 2
    scores = [0.0] * 259 + [-float(i - 259) for i in range(259, len(tokens) - 2)] + [0.0, 0.0]
    ids = {t: i for i, t in enumerate(tokens)}
    rows = {"prefix": [spm_ids(t, ids, scores, types, True) for t in STRINGS],
            "no_prefix": [spm_ids(t, ids, scores, types, False) for t in STRINGS]}
    return {"tokens": tokens, "types": types, "scores": scores, "ids": rows}


def word_piece(lowercase):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator([CORPUS], trainers.WordPieceTrainer(vocab_size=300, special_tokens=special,
                                                             show_progress=False, continuing_subword_prefix="##"))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.decoder = decoders.WordPiece(prefix="##")
    vocab = t.get_vocab()
    plain = sorted(vocab, key=vocab.get)
    # As GGUF has them: a word's beginning is marked, not its continuation.
    rewritten = [p if p.startswith("[") and p.endswith("]") else p[2:] if p.startswith("##") else "▁" + p for p in plain]
    encoded = [t.encode(s, add_special_tokens=False).ids for s in STRINGS]
    return {"tokens": rewritten, "types": [CONTROL, UNKNOWN] + [CONTROL] * 3 + [NORMAL] * (len(plain) - 5),
            "ids": encoded, "framed": [t.encode(s).ids for s in STRINGS],
            "decoded": [t.decode(e, skip_special_tokens=False) for e in encoded]}


def write(name, value):
    with open(name, "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    gguf_pipelines(byte_level())
    save(byte_level(), "tiny_tokenizer.json", "tokens_tiny.json")
    save(byte_fallback(), "tiny_byte_fallback.json", "tokens_tiny_byte_fallback.json")
    write("tiny_spm.json", spm())
    write("tiny_wordpiece.json", {"uncased": word_piece(True), "cased": word_piece(False)})
