#!/usr/bin/env python3
"""Published chat templates, there and back: what a template writes of a call in the history is what a model is taught
to write, so the server must read it as that call, in one piece and in seven bytes at a time.

usage: templates.py --build build/release [--source DIR] [--only TEXT]

The templates are those that llama.cpp keeps. What is listed in READ_OTHERWISE has its reason. Prints
`N passed, N failed, N skipped`.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "http")]

from check_tools import CHAT, joined_calls  # noqa: E402
from harness import Server, joined_chat  # noqa: E402
from run import Context  # noqa: E402
from suite import unpack  # noqa: E402

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": {
             "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
         {"type": "function", "function": {"name": "search", "description": "Find", "parameters": {
             "type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}}}}]
CALLS = [("search", {"query": 'x < y "q"\nline two', "limit": 3}), ("get_weather", {"city": "Sao Paulo, BR", "days": 2})]
READ_OTHERWISE = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "adds a text to something undefined, which no Jinja does",
    "fireworks-ai-llama-3-firefunction-v2": "adds a text to something undefined, which no Jinja does",
    "Kimi-K2-Instruct": "changes a list in place, which the sandbox of transformers forbids too",
    "Kimi-K2-Thinking": "changes a list in place, which the sandbox of transformers forbids too",
    "meetkai-functionary-medium-v3.2": "wants arguments as text, and a format of its own",
    "GigaChat3-10B-A1.8B": "a format of its own that is not among those that are read",
    "GigaChat3.1-10B-A1.8B": "a format of its own that is not among those that are read",
    "tencent-Hy3": "a format of its own that is not among those that are read",
    "upstage-Solar-Open-100B": "a format of its own that is not among those that are read",
    "unsloth-Apriel-1.5": "writes calls as Hunyuan, and speaks of <tool_call>",
    "LFM2-8B-A1B": "leaves calls out of the history",
    "LFM2.5-Instruct": "leaves calls out of the history",
    "ibm-granite-granite-3.3-2B-Instruct": "leaves calls out of the history",
}
# What ends a turn, and is an end token of the model.
ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "</s>", "<|end_of_text|>", "<|return|>", "<|call|>", "[e~[", "<|END_OF_TURN_TOKEN|>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>", "<seed:eos>", "<|message_sep|>", "<end_of_turn>", "<|user|>", "<|observation|>", "<turn|>", "<SPECIAL_12>", "</assistant>",
        "<|end_of_msg|>", "<|role_end|>", "<end_of_sentence>", "<sep>", "<|tool_response>", "<|eNd|>", "<|assistant_end|>")


def turn_of(count):
    calls = [{"id": f"call{i}abcd", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}} for i, (name, arguments) in enumerate(CALLS[:count])]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def written(prompt, whole):
    """What a model would have written behind the prompt for the history to read like this."""
    at = 0
    while at < min(len(prompt), len(whole)) and prompt[at] == whole[at]:
        at += 1
    if at < len(prompt):
        at = max(prompt.rfind(mark, 0, at) for mark in (">", "\n")) + 1
    text = whole[at:]
    if "<think>" in prompt[at:] and "</think>" not in text:
        text = "</think>\n" + text  # the prompt opens a thought, which the history leaves out
    begin = text.rfind("<|START_OF_TURN_TOKEN|>")
    text = text[:begin] if begin > 0 else text
    while (end := next((e for e in ENDS if text.rstrip().endswith(e)), None)) is not None:
        text = text.rstrip()[:-len(end)]
    return text


def model(context, name, template, trigger, text):
    """A model of this template that writes `text` behind a prompt that ends in the byte `trigger`."""
    raw, tokens, at = text.encode(), [], 0
    while at < len(raw):
        size = 6
        while raw[at:at + size] in tokens and at + size <= len(raw):
            size += 1
        token = raw[at:at + size]
        at += size
        if token in tokens or len(token) == 1:
            token = tokens.pop() + token
        tokens.append(token)
    folder, script = context.folder / name, context.folder / f"{name}.json"
    script.write_text(json.dumps({"special": ["<|eNd|>", "<s>"], "eos": ["<|eNd|>"], "bos": "<s>", "add_bos": False, "added": [], "window": 8192, "chat_template": template,
                                  "scripts": [[{"hex": trigger.hex()}, *({"hex": token.hex()} for token in tokens)]]}))
    subprocess.run([context.maker, folder, script], check=True, capture_output=True)
    return Server(context.binary, folder, "-np", "1")


def check(context, path):
    """Problems of one template; None where it knows no tools."""
    source = path.read_text()
    user = [{"role": "user", "content": "question"}]
    with Server(context.binary, context.wide_folder(), "--chat-template-file", path, "-np", "1") as server:
        if not server.get("/props").json()["chat_template_caps"]["supports_tools"]:
            return None
        problems, texts = [], {}
        prompt = server.post("/apply-template", {"messages": user, "tools": TOOLS}).json().get("prompt")
        for count in (1, 2):
            body = {"messages": user + [turn_of(count)], "tools": TOOLS, "add_generation_prompt": False, "continue_final_message": False}
            found = server.post("/apply-template", body)
            if found.status == 200 and prompt is not None:
                texts[count] = written(prompt, found.json()["prompt"])
            elif b"single tool-calls" not in found.body:
                problems.append(f"{count} calls: {found.body[:200]}")
    for count, text in texts.items():
        with model(context, f"{path.stem}-{count}", source, prompt.encode()[-1:], text) as server:
            body = {"messages": user, "tools": TOOLS, "temperature": 0, "max_tokens": 900}
            found = server.post(CHAT, body)
            message = found.json()["choices"][0]["message"] if found.status == 200 else {"content": str(found.body[:300])}
            calls = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls") or []]
            events = server.post(CHAT, {**body, "stream": True}, read_size=7).events()
            streamed = [(c["name"], json.loads(c["arguments"])) for c in joined_calls(events)]
            wanted = CALLS[:count] if path.stem != "openai-gpt-oss-120b" else CALLS[:1]  # which writes the first alone
            if not calls == streamed == wanted or (message["content"] or "").strip() or joined_chat(events).strip():
                problems.append(f"{count} calls: {text!r} is read as {calls}, {message['content']!r}; streamed {streamed}")
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--source", type=pathlib.Path)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="mlxcel-templates-"))
    unpack(args.source and args.source.resolve(), work / "tools/server/tests")
    context = Context(args.build.resolve(), None)
    passed = failed = skipped = 0
    for path in sorted(work.glob("models/templates/*.jinja")):
        if args.only not in path.stem:
            continue
        problems = check(context, path)
        if problems is None or (problems and path.stem in READ_OTHERWISE):
            skipped += 1
        elif problems:
            failed += 1
            print(f"FAILED {path.stem}: " + "; ".join(problems), flush=True)
        else:
            passed += 1
            if path.stem in READ_OTHERWISE:
                print(f"PASSES NOW {path.stem}: take it off the list")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
