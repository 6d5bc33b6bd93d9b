"""Tokenizers against Hugging Face's `tokenizers` on random texts: words of this repository's documents, special tokens, characters of
many scripts. Takes the tokenizers of tests/fixtures/text, or the files given, and counts differences of tokens and of what
they decode to.

    python text.py TOOL [--count N] [--seed N] [NAME or TOKENIZER.json ..]

TOOL is the example `tokens`. Needs the PyPI package tokenizers; `npm run conformance:text` does all of it.
"""
import argparse, os, pathlib, random, struct, subprocess, sys, unicodedata
os.environ["TOKENIZERS_PARALLELISM"] = "true"
from tokenizers import Tokenizer
root = pathlib.Path(__file__).parent / "../.."
# every script that a large vocabulary meets, as ranges of code points
SCRIPTS = [(0x20, 0x7e), (0xa0, 0x24f), (0x250, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f),
           (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x2070, 0x2bff), (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3),
           (0xf900, 0xfaff), (0xfb00, 0xfdff), (0xfe00, 0xffef), (0x1d400, 0x1d7ff), (0x1f300, 0x1faff), (0x20000, 0x2a6df)]
SPECIAL = ["<|endoftext|>", "<|begin|>", " <|im|> ", "Word", "the ", "the big", "café", "cafe\u0301", "<s>", "</s>", "<unk>", "[CLS]", "[SEP]", "[MASK]",
           "[UNK]", "<0x41>", "▁", "##", "  ", "\n\n", "\t", "\r\n", "'s", "'LL", " ", "'ſ", "ﬁ", "½", "\u200b"]

def texts(rng, words):
    def character():
        while True:
            c = chr(rng.randint(*rng.choice(SCRIPTS)))
            # what Unicode gave no meaning yet differs between the versions of its tables
            if unicodedata.category(c) not in ("Cn", "Cs"): return c
    while True:
        out = []
        for _ in range(rng.randint(0, 12)):
            k = rng.random()
            if k < 0.5: out += [rng.choice(words), rng.choice([" ", " ", "", "  ", "\n"])]
            elif k < 0.65: out.append(rng.choice(SPECIAL))
            elif k < 0.85: out.append("".join(character() for _ in range(rng.randint(1, 6))))
            else: out.append("".join(chr(rng.randint(0x20, 0x7e)) for _ in range(rng.randint(1, 10))))
        yield "".join(out)

def answers(data):
    at = 0
    def part(size):
        nonlocal at
        n, = struct.unpack_from("<I", data, at)
        at += 4 + n * size
        return data[at - n * size:at], n
    while at < len(data):
        ids, n = part(4)
        yield list(struct.unpack(f"<{n}I", ids)), part(1)[0].decode()

def differences(tool, path, tokenizer, source, count):
    found = 0
    for start in range(0, count, 50_000):
        batch = [next(source) for _ in range(min(50_000, count - start))]
        data = b"".join(struct.pack("<I", len(b)) + b for b in (t.encode() for t in batch))
        got = answers(subprocess.run([tool, path], input=data, capture_output=True, check=True).stdout)
        for text, (ids, decoded), want in zip(batch, got, tokenizer.encode_batch(batch), strict=True):
            if ids != want.ids or decoded != tokenizer.decode(want.ids):
                found += 1
                if found <= 3: print(" ", ascii(text), "\n    ours", ids, "\n    want", want.ids)
    return found

def main():
    p = argparse.ArgumentParser()
    p.add_argument("tool")
    p.add_argument("names", nargs="*")
    p.add_argument("--count", type=int, default=1_000_000)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_intermixed_args()
    words = " ".join((root / f).read_text() for f in ("README.md", "ARCHITECTURE.md", "STYLE.md")).split()
    files = {f.stem: f for f in sorted((root / "tests/fixtures/text").glob("*.json")) if f.stem not in ("samples", "chat")}
    chosen = [pathlib.Path(n) if n.endswith(".json") else files[n] for n in a.names] or list(files.values())
    total = 0
    for path in chosen:
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        found = differences(a.tool, str(path), tokenizer, texts(random.Random(a.seed), words), a.count)
        print(f"{path.stem}: {a.count} texts, {found} differences", flush=True)
        total += found
    sys.exit(total > 0)

main()
