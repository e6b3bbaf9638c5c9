// Cases of the official JavaScript clients: node js_cases.mjs NODE_MODULES SCRIPTED_URL EMBED_URL KEY (run by js_cases.py).
import assert from "node:assert";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, scripted, embed, key] = process.argv.slice(2);
const require = createRequire(pathToFileURL(modules + "/").href);
const load = async (name) => (await import(pathToFileURL(require.resolve(name)).href)).default;
const [OpenAI, Anthropic, ollamaModule] = [await load("openai"), await load("@anthropic-ai/sdk"), require("ollama")];
const openai = new OpenAI({ baseURL: scripted + "/v1", apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: scripted, apiKey: key, maxRetries: 0 });
const ollama = new ollamaModule.Ollama({ host: scripted, headers: { Authorization: "Bearer " + key } });
const user = (content) => [{ role: "user", content }];
const tools = [
  { type: "function", function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } } } } },
  { type: "function", function: { name: "search", parameters: { type: "object", properties: { query: { type: "string" } } } } },
];

const cases = {
  async openai_chat() {
    const answer = await openai.chat.completions.create({ model: "m", messages: user("[[count]]"), temperature: 0 });
    assert(answer.choices[0].message.content.endsWith(" ten"));
  },
  async openai_stream() {
    let text = "";
    for await (const chunk of await openai.chat.completions.create({ model: "m", messages: user("[[emoji]]"), temperature: 0, stream: true })) {
      text += chunk.choices[0]?.delta?.content ?? "";
    }
    assert.equal(text, "\u{1F600}");
  },
  async openai_tool_stream() {
    const runner = openai.chat.completions.stream({ model: "m", messages: user("[[tools]]"), temperature: 0, tools });
    const final = await runner.finalChatCompletion();
    assert.deepEqual(final.choices[0].message.tool_calls.map((c) => c.function.name), ["get_weather", "search"]);
    assert.deepEqual(JSON.parse(final.choices[0].message.tool_calls[0].function.arguments), { city: "Oslo" });
  },
  async openai_responses() {
    const first = await openai.responses.create({ model: "m", input: "[[count]]", temperature: 0 });
    assert(first.output_text.endsWith(" ten"));
    const kinds = [];
    for await (const event of await openai.responses.create({ model: "m", input: "[[space]]", temperature: 0, stream: true, previous_response_id: first.id })) {
      kinds.push(event.type);
    }
    assert.equal(kinds[0], "response.created");
    assert.equal(kinds.at(-1), "response.completed");
  },
  async openai_errors() {
    await assert.rejects(openai.chat.completions.create({ model: "m", messages: user("x"), temperature: 5 }), OpenAI.BadRequestError);
  },
  async openai_embeddings() {  // H29
    if (embed === "-") return "skipped";
    const client = new OpenAI({ baseURL: embed + "/v1", apiKey: key, maxRetries: 0 });
    const model = (await client.models.list()).data[0].id;
    const usual = await client.embeddings.create({ model, input: ["a cat"] });
    const floats = await client.embeddings.create({ model, input: ["a cat"], encoding_format: "float" });
    assert.equal(usual.data[0].embedding.length, floats.data[0].embedding.length);
    usual.data[0].embedding.forEach((x, i) => assert(Math.abs(x - floats.data[0].embedding[i]) < 1e-6));
  },
  async anthropic_message() {
    const answer = await anthropic.messages.create({ model: "m", max_tokens: 64, temperature: 0, messages: user("[[count]]") });
    assert(answer.content[0].text.endsWith(" ten"));
    assert.equal(answer.stop_reason, "end_turn");
  },
  async anthropic_stream_with_tools() {
    const mine = tools.map((t) => ({ name: t.function.name, input_schema: t.function.parameters }));
    const final = await anthropic.messages.stream({ model: "m", max_tokens: 64, temperature: 0, tools: mine, messages: user("[[tool]]") }).finalMessage();
    assert.deepEqual(final.content.map((b) => b.type), ["text", "tool_use"]);
    assert.deepEqual(final.content[1].input, { city: "Paris" });
  },
  async anthropic_count() {
    assert((await anthropic.messages.countTokens({ model: "m", messages: user("[[count]]") })).input_tokens > 0);
  },
  async ollama_chat() {
    let text = "";
    for await (const part of await ollama.chat({ model: "scripted", messages: user("[[count]]"), options: { temperature: 0 }, stream: true })) text += part.message.content;
    assert(text.endsWith(" ten"));
    assert.equal((await ollama.list()).models[0].name, "scripted");
  },
};

let passed = 0, failed = 0, skipped = 0;
for (const [name, body] of Object.entries(cases)) {
  try {
    if ((await body()) === "skipped") skipped++;
    else passed++;
  } catch (error) {
    failed++;
    console.log(`FAILED js ${name}: ${String(error?.stack ?? error).slice(0, 600)}`);
  }
}
console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exit(failed ? 1 : 0);
