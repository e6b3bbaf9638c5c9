// Cases of the AI SDK with its OpenAI, OpenAI-compatible and Anthropic providers: node aisdk_cases.mjs NODE_MODULES
// SCRIPTED_URL KEY (run by aisdk_cases.py).
import assert from "node:assert";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

globalThis.AI_SDK_LOG_WARNINGS = false;
const [modules, scripted, key] = process.argv.slice(2);
const require = createRequire(pathToFileURL(modules + "/").href);
const load = async (name) => await import(pathToFileURL(require.resolve(name)).href);
const { generateText, streamText, generateObject, tool, jsonSchema } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { createAnthropic } = await load("@ai-sdk/anthropic");

const openai = createOpenAI({ baseURL: scripted + "/v1", apiKey: key });
const compatible = createOpenAICompatible({ name: "mlxcel", baseURL: scripted + "/v1", apiKey: key });
const anthropic = createAnthropic({ baseURL: scripted + "/v1", apiKey: key });
const models = { chat: openai.chat("scripted"), responses: openai.responses("scripted"), compatible: compatible("scripted"), messages: anthropic("scripted") };
const tools = { get_weather: tool({ description: "Weather", inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } } }) }) };
const common = { temperature: 0, maxRetries: 0, maxOutputTokens: 64 };

const cases = {
  async text() {
    for (const [name, model] of Object.entries(models)) {
      const answer = await generateText({ model, prompt: "[[count]]", ...common });
      assert(answer.text.endsWith(" ten"), `${name}: ${answer.text}`);
      assert.equal(answer.finishReason, "stop", name);
      assert.equal(answer.usage.outputTokens, 10, name);
    }
  },
  async streams() {
    for (const [name, model] of Object.entries(models)) {
      let text = "";
      for await (const piece of streamText({ model, prompt: "[[emoji]]", ...common }).textStream) text += piece;
      assert.equal(text, "\u{1F600}", name);
    }
  },
  async tools() {
    for (const [name, model] of Object.entries(models)) {
      const answer = await generateText({ model, prompt: "[[tool]]", tools, ...common });
      assert.deepEqual(answer.toolCalls.map((c) => [c.toolName, c.input]), [["get_weather", { city: "Paris" }]], name);
      assert.equal(answer.finishReason, "tool-calls", name);
    }
  },
  async tools_streamed() {
    for (const [name, model] of Object.entries(models)) {
      const seen = [];
      for await (const part of streamText({ model, prompt: "[[tool]]", tools, ...common }).fullStream) {
        if (part.type === "error") throw part.error;
        if (part.type === "tool-call") seen.push([part.toolName, part.input]);
      }
      assert.deepEqual(seen, [["get_weather", { city: "Paris" }]], name);
    }
  },
  async turns_that_follow() {
    // The Responses provider sends the ids of kept items instead of the items.
    for (const [name, model] of Object.entries(models)) {
      const first = [{ role: "user", content: "[[tool]]" }];
      const called = await generateText({ model, messages: first, tools, ...common });
      const call = called.toolCalls[0];
      const result = { role: "tool", content: [{ type: "tool-result", toolCallId: call.toolCallId, toolName: call.toolName, output: { type: "text", value: "rain" } }] };
      const messages = [...first, ...called.response.messages, result, { role: "user", content: "[[count]]" }];
      const answer = await generateText({ model, messages, tools, ...common });
      assert(answer.text.endsWith(" ten"), `${name}: ${answer.text}`);
      const last = await generateText({ model, messages: [...messages, ...answer.response.messages, { role: "user", content: "[[space]]" }], tools, ...common });
      assert.equal(last.text, " hello", name);
    }
  },
  async objects() {
    const schema = jsonSchema({ type: "object", properties: { a: { type: "boolean" } }, required: ["a"], additionalProperties: false });
    for (const model of [models.chat, models.responses]) {
      const { object } = await generateObject({ model, schema, prompt: "[[count]]", ...common, maxOutputTokens: 300 });
      assert.equal(typeof object.a, "boolean");
    }
  },
  async aborted() {
    const stop = new AbortController();
    const result = streamText({ model: models.compatible, prompt: "[[count]]", ...common, abortSignal: stop.signal });
    for await (const part of result.fullStream) {
      if (part.type === "text-delta") stop.abort();
    }
    const next = await generateText({ model: models.compatible, prompt: "[[space]]", ...common });
    assert(next.text.length > 0);
  },
  async errors() {
    await assert.rejects(generateText({ model: models.compatible, prompt: "x", maxRetries: 0, topP: 5 }), (e) => e.statusCode === 400);
    const stranger = createOpenAICompatible({ name: "x", baseURL: scripted + "/v1", apiKey: "wrong" });
    await assert.rejects(generateText({ model: stranger("scripted"), prompt: "x", maxRetries: 0 }), (e) => e.statusCode === 401);
  },
};

let passed = 0, failed = 0;
for (const [name, body] of Object.entries(cases)) {
  try {
    await body();
    ++passed;
  } catch (error) {
    ++failed;
    console.log(`FAILED ${name}: ${error?.stack?.split("\n").slice(0, 3).join(" | ") ?? error}`);
  }
}
console.log(`${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed ? 1 : 0);
