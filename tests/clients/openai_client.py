"""The official openai package, unchanged: sync, async, streams, errors. Arguments: BASE_URL KEY."""
import asyncio
import sys

import openai

BASE, KEY = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0)
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The capital of France?"}]


def expect(error, param, call):
    try:
        call()
    except error as e:
        assert param is None or e.param == param or param in str(e), e
        return
    raise AssertionError(f"{error} was expected")


def check_models():
    models = client.models.list().data
    assert [m.id for m in models] == ["tiny", "other-name"], models
    assert client.models.retrieve("tiny").id == "tiny"


def check_completions():
    answer = client.completions.create(model="tiny", prompt="The capital of France is", max_tokens=12, temperature=0, logprobs=2, echo=True)
    choice = answer.choices[0]
    assert choice.text.startswith("The capital of France is")
    assert len(choice.logprobs.tokens) == answer.usage.total_tokens
    assert choice.logprobs.token_logprobs[0] is None and all(x <= 0 for x in choice.logprobs.token_logprobs[1:])
    assert all(1 <= len(x) <= 3 for x in choice.logprobs.top_logprobs[1:])  # tokens of one text are one key
    several = client.completions.create(model="tiny", prompt=["a", "b"], n=2, max_tokens=3, seed=5)
    assert [c.index for c in several.choices] == [0, 1, 2, 3]
    ids = client.completions.create(model="tiny", prompt=[5, 6, 7], max_tokens=3, temperature=0, extra_body={"return_token_ids": True})
    assert len(ids.choices[0].token_ids) == ids.usage.completion_tokens


def check_chat():
    whole = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=16, temperature=0, logprobs=True, top_logprobs=3)
    choice = whole.choices[0]
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    assert len(choice.logprobs.content) == whole.usage.completion_tokens
    assert all(len(t.top_logprobs) == 3 and t.bytes is not None for t in choice.logprobs.content)
    text, finish, usage, roles = "", [], None, []
    for chunk in client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=16, temperature=0, stream=True,
                                                stream_options={"include_usage": True}):
        if chunk.usage:
            usage = chunk.usage
            assert chunk.choices == []
            continue
        text += chunk.choices[0].delta.content or ""
        roles.append(chunk.choices[0].delta.role)
        if chunk.choices[0].finish_reason:
            finish.append(chunk.choices[0].finish_reason)
    assert text == choice.message.content, (text, choice.message.content)
    assert finish == [choice.finish_reason] and roles[0] == "assistant"
    assert usage.completion_tokens == whole.usage.completion_tokens and usage.prompt_tokens == whole.usage.prompt_tokens


def check_errors():
    expect(openai.NotFoundError, "model", lambda: client.chat.completions.create(model="none", messages=MESSAGES))
    expect(openai.BadRequestError, "temperature", lambda: client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=-1))
    expect(openai.BadRequestError, "unknown role", lambda: client.chat.completions.create(model="tiny", messages=[{"role": "x", "content": "y"}]))
    expect(openai.BadRequestError, "context", lambda: client.completions.create(model="tiny", prompt="a", max_tokens=10**6))
    expect(openai.BadRequestError, "response_format", lambda: client.chat.completions.create(
        model="tiny", messages=MESSAGES, response_format={"type": "json_object"}))
    expect(openai.NotFoundError, None, lambda: client.embeddings.create(model="tiny", input="x"))
    expect(openai.AuthenticationError, None, lambda: openai.OpenAI(base_url=BASE + "/v1", api_key="wrong", max_retries=0).models.list())


async def check_async():
    a = openai.AsyncOpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0)

    async def one(seed, stream):
        answer = await a.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=20, temperature=1, seed=seed, stream=stream)
        if not stream:
            return answer.choices[0].message.content
        return "".join([c.choices[0].delta.content or "" async for c in answer])

    whole = await asyncio.gather(*(one(i, False) for i in range(8)))
    streamed = await asyncio.gather(*(one(i, True) for i in range(8)))
    assert whole == streamed, (whole, streamed)
    assert len(set(whole)) > 1
    stream = await a.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=500, temperature=0, stream=True, extra_body={"ignore_eos": True})
    async for _ in stream:
        break
    await stream.close()  # a client that leaves
    await a.close()


for check in (check_models, check_completions, check_chat, check_errors):
    check()
asyncio.run(check_async())
print("openai", openai.__version__, "ok")
