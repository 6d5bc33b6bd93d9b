"""What OpenAI's Python client gets from `gradloom serve`. usage: client.py ADDRESS"""
import concurrent.futures
import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
EXTRA = {"ignore_eos": True}
MESSAGES = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]


def chat(**options):
    return client.chat.completions.create(model="tiny", messages=MESSAGES, extra_body=EXTRA, **options)


def refused(kind, code, call):
    try:
        call()
    except openai.APIStatusError as e:
        assert isinstance(e, kind) and e.code == code, (type(e), e.code, e.message)
    else:
        raise AssertionError(f"{kind} was expected")


assert [m.id for m in client.models.list()] == ["tiny"]
whole = chat(temperature=0, max_tokens=40)
text = whole.choices[0].message.content
assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 40 and len(text) > 20, whole
pieces = list(chat(temperature=0, max_tokens=40, stream=True, stream_options={"include_usage": True}))
assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == text
assert pieces[-1].usage.total_tokens == whole.usage.total_tokens
assert chat(temperature=0, max_tokens=40, stop=[text[6:9]]).choices[0].message.content == text[: text.index(text[6:9])]
assert chat(max_tokens=4, logit_bias={"2": 100}).choices[0].message.content == "aaaa"
one, two, three = (chat(max_tokens=30, temperature=1.5, seed=s).choices[0].message.content for s in (1, 1, 2))
assert one == two != three

completion = client.completions.create(model="tiny", prompt="once", max_tokens=8, temperature=0, extra_body=EXTRA)
streamed = client.completions.create(model="tiny", prompt="once", max_tokens=8, temperature=0, stream=True, extra_body=EXTRA)
assert "".join(p.choices[0].text for p in streamed) == completion.choices[0].text

vectors = client.embeddings.create(model="tiny", input=["hello", "other"])
floats = client.embeddings.create(model="tiny", input="hello", encoding_format="float")
assert len(vectors.data) == 2 and len(vectors.data[0].embedding) == 32
assert max(abs(a - b) for a, b in zip(vectors.data[0].embedding, floats.data[0].embedding)) < 1e-6

refused(openai.NotFoundError, "model_not_found", lambda: client.completions.create(model="other", prompt="a"))
refused(openai.BadRequestError, "context_length_exceeded", lambda: client.completions.create(model="tiny", prompt="a" * 300))
refused(openai.BadRequestError, "unsupported", lambda: client.completions.create(model="tiny", prompt="a", best_of=2))

# several answers, and chances
several = chat(max_tokens=10, temperature=1.5, seed=1, n=3)
assert [c.index for c in several.choices] == [0, 1, 2] and several.usage.completion_tokens == 30, several
assert several.choices[0].message.content == chat(max_tokens=10, temperature=1.5, seed=1).choices[0].message.content
assert len({c.message.content for c in several.choices}) == 3
chances = chat(max_tokens=6, temperature=0, logprobs=True, top_logprobs=3)
tokens = chances.choices[0].logprobs.content
assert "".join(t.token for t in tokens) == chances.choices[0].message.content == text[:6]
assert all(t.top_logprobs[0].token == t.token and t.top_logprobs[0].logprob == t.logprob < 0 and len(t.top_logprobs) == 3 for t in tokens)
streamed = [p for p in chat(max_tokens=6, temperature=0, logprobs=True, top_logprobs=3, stream=True) if p.choices and p.choices[0].logprobs]
parts = [t for p in streamed for t in p.choices[0].logprobs.content]
assert [t.token for t in parts] == [t.token for t in tokens] and all(abs(a.logprob - b.logprob) < 1e-4 for a, b in zip(parts, tokens))
lists = client.completions.create(model="tiny", prompt=["once", "twice"], n=2, max_tokens=4, temperature=0, logprobs=2, extra_body=EXTRA)
assert len(lists.choices) == 4 and all(len(c.logprobs.token_logprobs) == 4 and len(c.logprobs.top_logprobs[0]) == 2 for c in lists.choices)

# functions
TOOLS = [{"type": "function", "function": {"name": "weather", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"enum": ["rome", "oslo"]}, "days": {"type": "integer"}}, "required": ["city"]}}}]


def called(**options):
    return client.chat.completions.create(model="tiny", messages=MESSAGES, tools=TOOLS, max_tokens=200, **options)


choice = called(tool_choice="required", seed=1).choices[0]
call = choice.message.tool_calls[0]
assert choice.finish_reason == "tool_calls" and call.type == "function" and call.function.name == "weather", choice
assert json.loads(call.function.arguments)["city"] in ("rome", "oslo")
with client.chat.completions.stream(model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice="required", max_tokens=200, seed=1) as stream:
    for _ in stream:
        pass
    whole = stream.get_final_completion().choices[0]
assert whole.finish_reason == "tool_calls" and whole.message.tool_calls[0].function.arguments == call.function.arguments, whole
before = [*MESSAGES, choice.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
assert client.chat.completions.create(model="tiny", messages=before, tools=TOOLS, tool_choice="none", max_tokens=3).choices[0].message.tool_calls is None
refused(openai.BadRequestError, None, lambda: chat(tool_choice="required"))

# clients that leave, among others that stay
for _ in range(8):
    stream = chat(max_tokens=200, stream=True)
    next(iter(stream))
    stream.close()
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    all_texts = list(pool.map(lambda _: chat(temperature=0, max_tokens=40).choices[0].message.content, range(64)))
assert set(all_texts) == {text}, "texts together differ from one alone"
print("python", openai.__version__)
