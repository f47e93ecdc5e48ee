// The official openai package for Node. Arguments: BASE_URL KEY.
import assert from "node:assert";
import OpenAI from "openai";

const [base, key] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 });
const messages = [{ role: "user", content: "The capital of France?" }];
const common = { model: "tiny", messages, max_tokens: 16, temperature: 0 };

const whole = await client.chat.completions.create(common);
let text = "";
const stream = await client.chat.completions.create({ ...common, stream: true, stream_options: { include_usage: true } });
let usage = null;
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, whole.choices[0].message.content);
assert.deepEqual(usage.completion_tokens, whole.usage.completion_tokens);
const completion = await client.completions.create({ model: "tiny", prompt: "a", max_tokens: 4, logprobs: 1 });
assert.equal(completion.choices[0].logprobs.tokens.length, completion.usage.completion_tokens);
await assert.rejects(client.chat.completions.create({ ...common, temperature: -1 }), (e) => e.status === 400 && e.param === "temperature");
await assert.rejects(client.models.retrieve("none"), (e) => e.status === 404);
const left = await client.chat.completions.create({ ...common, max_tokens: 500, stream: true, ignore_eos: true });
for await (const _ of left) break;
console.log("openai for node ok");
