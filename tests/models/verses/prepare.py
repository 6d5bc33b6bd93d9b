#!/usr/bin/env python3
"""Makes what `the example tests/examples/verses` trains on: the text of Debian's package bible-kjv-text, a tokenizer of it, and its tokens.

    apt-get install bible-kjv && pip install tokenizers && python3 prepare.py [OUT]

OUT (.cache/verses) then has tokenizer.json, tokenizer_config.json, and tokens.bin: u16, chapters from <s> to </s>, as text and as turns
of two who tell it to each other.
"""
import json
import pathlib
import random
import re
import subprocess
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "../../../.cache/verses")
WORDS = 2048
SPECIAL = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{{ '<|assistant|>' if m.role == 'assistant' else '<|user|>' }}"
            "{{ m.content | trim }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")


def chapters():
    """Lists of verses."""
    printed = subprocess.run(["bible", "gen1:1-rev22:21"], check=True, capture_output=True, text=True).stdout
    out = []
    for line in printed.splitlines():
        verse = re.match(r" {1,2}\d+ (.*)|\d{3} (.*)", line)
        if verse and out:
            out[-1].append((verse[1] or verse[2]).strip())
        elif re.fullmatch(r"[A-Z0-9].* \d+", line) and not line.startswith(" ") and (not out or out[-1]):
            out.append([])
        elif line.strip() and out and out[-1]:
            out[-1][-1] += " " + line.strip()
    plain = lambda v: re.sub(r"\s+", " ", re.sub(r"[\[\]{}<>#*]", "", v)).strip()
    return [[plain(v) for v in c if plain(v)] for c in out if c]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    text = chapters()
    print(len(text), "chapters", sum(map(len, text)), "verses", sum(len(v) for c in text for v in c), "characters")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=WORDS, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((" ".join(c) for c in text), trainer)
    tokenizer.save(str(OUT / "tokenizer.json"))
    config = dict(bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE, tokenizer_class="PreTrainedTokenizerFast")
    (OUT / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    rng = random.Random(1)
    ids = lambda s: tokenizer.encode(s, add_special_tokens=False).ids
    begin, end, user, assistant = range(4)
    stream = []
    for chat in (False, True):
        order = list(text)
        rng.shuffle(order)
        for chapter in order:
            stream.append(begin)
            if not chat:
                stream += ids(" ".join(chapter)) + [end]
                continue
            at, turn = 0, 0
            while at < len(chapter):
                # the one who asks says little
                count = 1 if turn % 2 == 0 else rng.choice([1, 2, 2, 3])
                stream += [(user, assistant)[turn % 2]] + ids(" ".join(chapter[at:at + count])) + [end]
                at, turn = at + count, turn + 1
    assert max(stream) < WORDS
    (OUT / "tokens.bin").write_bytes(b"".join(t.to_bytes(2, "little") for t in stream))
    print(len(stream), "tokens")


main()
