"""The chat in a real pseudo-terminal: editing, history, Ctrl-C, resize, wide characters, colours, pipes."""
import json
import os
import re
import signal
import stat
import subprocess
import termios
import time

from terminal import Terminal

UP, LEFT, HOME = "\x1b[A", "\x1b[D", "\x1b[H"
PASTES, NO_PASTES = b"\x1b[?2004h", b"\x1b[?2004l"


def chat(context, *flags, env=None, model=None, **more):
    environment = dict(context.environment, **(env or {}))
    return Terminal([context.mlxcel, "run", "-m", model or context.scripted(), *flags], environment, **more)


def check_answer_and_leave(context):
    with chat(context) as terminal:
        terminal.expect(">>> ")
        terminal.line("[[stop]]")
        terminal.expect("[Generated")
        terminal.expect(">>> ")
        terminal.line("/bye")
        assert terminal.wait() == 0
    with chat(context, "--quiet") as terminal:
        terminal.expect(">>> ")
        terminal.send("\x04")
        assert terminal.wait() == 0


def check_commands(context):
    saved = context.folder / "talk.json"
    with chat(context, "--system", "Be brief.") as terminal:
        terminal.expect(">>> ")
        terminal.line("/?")
        terminal.expect("/regen")
        terminal.line("/set temperature 0.5")
        terminal.line("/set temperature hot")
        terminal.expect("expected a number")
        terminal.line("/set colour red")
        terminal.expect("no such setting")
        terminal.line("/show")
        terminal.expect("Be brief.")
        terminal.expect("0.5")
        terminal.line("/set temperature 0")
        terminal.line("[[stop]]")
        first = terminal.expect("[Generated")
        terminal.expect(">>> ")
        terminal.line(f"/save {saved}")
        terminal.expect("saved 3 messages")
        terminal.line("/regen")
        again = terminal.expect("[Generated")
        assert answer_of(first, "[[stop]]") == answer_of(again, "/regen"), (first, again)
        terminal.line("/undo")
        terminal.line("/undo")
        terminal.expect("nothing to undo")
        terminal.line(f"/load {saved}")
        terminal.expect("loaded 3 messages")
        terminal.line("/clear")
        terminal.line("/show")
        terminal.expect("messages        1")
        terminal.line("/image x.png")
        terminal.expect("text only")
        terminal.line("/nonsense")
        terminal.expect("no such command")
        terminal.line("/load /nowhere")
        terminal.expect("/nowhere: cannot open: No such file")
        terminal.line("/bye")
        assert terminal.wait() == 0
    talk = json.loads(saved.read_text())
    assert [m["role"] for m in talk] == ["system", "user", "assistant"] and talk[1]["content"] == "[[stop]]", talk


def check_files_that_are_no_conversation(context):
    bad = context.folder / "no-talk.json"
    kept = context.folder / "kept.json"
    talk = '[{"role": "user", "content": "[[stop]]"}, {"role": "assistant", "content": "x"}]'
    with chat(context, env={"MLXCEL_NO_HISTORY": "1"}) as terminal:
        terminal.expect(">>> ")
        bad.write_text(talk)
        terminal.line(f"/load {bad}")
        terminal.expect("loaded 2 messages")
        for text in ("", "{", "null", "7", '"x"', '{"role": "user"}', "[1]", '[{"role": "user"}]', '[{"role": 1, "content": "x"}]', "[" * 100000,
                     '[{"role": "wizard", "content": "x"}]', '[{"role": "user", "content": null}]', talk[:-1]):
            bad.write_text(text)
            terminal.line(f"/load {bad}")
            terminal.expect("expected a list of objects")
        for place in ("/", "/dev/null", context.folder):
            terminal.line(f"/load {place}")
            terminal.expect("expected a regular file")
            terminal.line(f"/save {place}")
            terminal.expect("saved 2" if place == "/dev/null" else "could not be written")
        kept.write_text(talk)
        (context.folder / "link.json").symlink_to(kept)
        terminal.line(f"/save {context.folder}/link.json")
        terminal.expect("saved 2 messages")
        for text in ("/save", "/load", "/set", "/set temperature", "/undo", "/regen", "/clear", "/", "//", "/BYE"):
            terminal.line(text)
            terminal.expect(text)
        for key, value in (("temperature", "0x1"), ("temperature", ""), ("top_k", "1e2"), ("max_tokens", "0x10"), ("max_tokens", " 5"), ("logit_bias", "5+1000")):
            terminal.line(f"/set {key} {value}")
            terminal.expect(f"/set {key} ")
            terminal.expect(f"/set {key} {value}: expected")
        terminal.line("[[stop]]")
        terminal.expect("[Generated")
        terminal.line("/bye")
        assert terminal.wait() == 0
    assert (context.folder / "link.json").is_symlink() and json.loads(kept.read_text()) == json.loads(talk), "a link leads to the file that is written"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def answer_of(text, typed):
    return text[text.rindex(typed) + len(typed):].split("[Generated")[0].strip()


def check_block_of_several_lines(context):
    saved = context.folder / "block.json"
    with chat(context) as terminal:
        terminal.expect(">>> ")
        for line in ('"""', "one", "", "two [[stop]]", '"""'):
            terminal.line(line)
        terminal.expect("[Generated")
        terminal.line(f"/save {saved}")
        terminal.expect("saved 2")
        terminal.line("/bye")
        terminal.wait()
    assert json.loads(saved.read_text())[0]["content"].strip("\n") == "one\n\ntwo [[stop]]"


def check_interrupt_stops_the_answer_then_leaves(context):
    saved = context.folder / "stopped.json"
    with chat(context, "-n", "100000") as terminal:
        terminal.expect(">>> ")
        terminal.line("[[loop]]")
        terminal.expect("tick tock tick")
        terminal.send("\x03", 0)
        terminal.expect("finish: cancelled")
        terminal.expect(">>> ")
        terminal.line(f"/save {saved}")
        terminal.expect("saved 2")
        terminal.expect(">>> ")
        # Typed text is dropped first; on an empty line it leaves.
        terminal.send("half a line")
        terminal.expect("half a line")
        terminal.send("\x03")
        terminal.expect(">>> ")
        terminal.send("\x03")
        assert terminal.wait() == 0, terminal.text()
    talk = json.loads(saved.read_text())
    assert talk[1]["role"] == "assistant" and talk[1]["content"], "what was shown stays"


def check_history(context):
    env = {"MLXCEL_CACHE_DIR": str(context.folder / "history-cache")}
    file = context.folder / "history-cache/history"
    with chat(context, env=env) as terminal:
        terminal.expect(">>> ")
        terminal.line("first [[stop]]")
        terminal.expect("[Generated")
        terminal.expect(">>> ")
        terminal.line("/bye")
        assert terminal.wait() == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and "first" in file.read_text()
    with chat(context, env=env) as terminal:
        terminal.expect(">>> ")
        terminal.send(UP + UP)
        terminal.expect("first [[stop]]")
        terminal.send("\r")
        terminal.expect("[Generated")
        terminal.expect(">>> ")
        terminal.line("/bye")
        terminal.wait()
    # A window that is closed takes no line with it.
    with chat(context, env=env) as terminal:
        terminal.expect(">>> ")
        terminal.line("last words [[stop]]")
        terminal.expect("[Generated")
        terminal.expect(">>> ")
        terminal.process.send_signal(signal.SIGHUP)
        assert terminal.wait() == -signal.SIGHUP, (terminal.process.returncode, terminal.text()[-600:])
    assert "last" in file.read_text() and stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_text()
    with chat(context, env=dict(env, MLXCEL_NO_HISTORY="")) as terminal:
        terminal.expect(">>> ")
        terminal.line("secret [[stop]]")
        terminal.expect("[Generated")
        terminal.line("/bye")
        terminal.wait()
    assert file.read_text() == before


def check_history_files_of_every_kind(context):
    """None of them keeps the chat from beginning; a link leads to the file that is kept."""
    elsewhere = context.folder / "history-elsewhere"
    elsewhere.write_text("_HiStOrY_V2_\nearlier\n")
    for kind, make in (("folder", lambda path: path.mkdir()), ("pipe", os.mkfifo), ("loop", lambda path: path.symlink_to(path)),
                       ("bytes", lambda path: path.write_bytes(bytes(range(256)) * 300)), ("link", lambda path: path.symlink_to(elsewhere)),
                       ("long", lambda path: path.write_text("_HiStOrY_V2_\n" + "x" * 3000000 + "\n"))):
        folder = context.folder / f"history-{kind}"
        folder.mkdir()
        make(folder / "history")
        with chat(context, env={"MLXCEL_CACHE_DIR": str(folder)}) as terminal:
            terminal.expect(">>> ")
            terminal.line("said [[stop]]")
            terminal.expect("[Generated")
            terminal.line("/bye")
            assert terminal.wait() == 0, kind
        assert sorted(path.name for path in folder.iterdir()) == ["history"], kind
        if kind in ("bytes", "long"):
            assert "said" in (folder / "history").read_text(errors="replace")
    assert "said" in elsewhere.read_text() and (context.folder / "history-link/history").is_symlink()


def check_editing_and_wide_characters(context):
    saved = context.folder / "wide.json"
    with chat(context, columns=40) as terminal:
        terminal.expect(">>> ")
        # Write, go back over wide characters, insert between them.
        terminal.send("日本 [[stop]]")
        terminal.send(HOME + "\x1b[C")
        terminal.send("🙂é")
        terminal.send("\r")
        terminal.expect("[Generated")
        terminal.line(f"/save {saved}")
        terminal.expect("saved 2")
        terminal.line("/bye")
        terminal.wait()
    assert json.loads(saved.read_text())[0]["content"] == "日🙂é本 [[stop]]", saved.read_text()


def pasted(text):
    return f"\x1b[200~{text}\x1b[201~"


def check_pasted_lines_are_one_message(context):
    saved = context.folder / "pasted.json"
    env = {"MLXCEL_CACHE_DIR": str(context.folder / "paste-cache")}
    with chat(context, env=env) as terminal:
        terminal.expect(">>> ")
        assert PASTES in terminal.bytes, "the terminal is asked to mark what is pasted"
        # Line breaks of both kinds, a tab, wide characters; control keys inside do nothing.
        terminal.send("typed " + pasted("one\r\ttwo\x03\x04 日本🙂\r/bye\n") + " and")
        terminal.send(LEFT * 3 + "on " + "\x05" + " [[stop]]\r")
        terminal.expect("[Generated")
        assert NO_PASTES in terminal.bytes, "an answer is written to a terminal that marks nothing"
        terminal.expect(">>> ")
        # A comment is no command, and two pastes are one line.
        terminal.send(pasted("/* a\n") + pasted("\nb */ ") + "[[stop]]\r")
        terminal.expect("[Generated")
        terminal.expect(">>> ")
        terminal.line(f"/save {saved}")
        terminal.expect("saved 4")
        terminal.send("\x03")
        assert terminal.wait() == 0 and terminal.bytes.rindex(NO_PASTES) > terminal.bytes.rindex(PASTES)
    talk = [m["content"] for m in json.loads(saved.read_text()) if m["role"] == "user"]
    assert talk == ["typed one\n\ttwo 日本🙂\n/bye on and [[stop]]", "/* a\nb */ [[stop]]"], talk
    # It comes back whole from the history.
    with chat(context, env=env) as terminal:
        terminal.expect(">>> ")
        terminal.send(UP * 3 + "\r")
        terminal.expect("[Generated")
        terminal.line(f"/save {saved}")
        terminal.expect("saved 2")
        terminal.line("/bye")
        terminal.wait()
    assert json.loads(saved.read_text())[0]["content"] == talk[0], saved.read_text()
    with chat(context, env={"TERM": "dumb"}) as terminal:
        terminal.expect(">>> ")
        terminal.line("/bye")
        assert terminal.wait() == 0 and PASTES not in terminal.bytes, "a dumb terminal is sent no sequences"


def check_line_breaks_of_every_system_are_pasted_as_one(context):
    saved = context.folder / "breaks.json"
    with chat(context, env={"MLXCEL_NO_HISTORY": "1"}) as terminal:
        terminal.expect(">>> ")
        for text in ("a\r\nb\r\n\r\nc\r\n", "a\nb\n\nc\n", "a\rb\r\rc\r"):
            terminal.send(pasted(text) + " [[stop]]\r")
            terminal.expect("[Generated")
            terminal.expect(">>> ")
        terminal.line(f"/save {saved}")
        terminal.expect("saved 6")
        terminal.line("/bye")
        assert terminal.wait() == 0
    talk = [m["content"] for m in json.loads(saved.read_text()) if m["role"] == "user"]
    assert talk == ["a\nb\n\nc [[stop]]"] * 3, talk


def check_long_pastes(context):
    text = "".join(f"line {i} of what somebody found in a log\n" for i in range(200))
    with chat(context, env={"MLXCEL_NO_HISTORY": "1"}) as terminal:
        terminal.expect(">>> ")
        for begin in range(0, len(text) + 12, 2000):  # as a terminal hands it over: in pieces
            terminal.send(pasted(text)[begin:begin + 2000], 0)
            terminal.pump(0.01)
        terminal.send(" [[stop]]\r")
        # All of it arrives as one message, which is more than this model's window holds.
        counted = re.search(r"request \((\d+) tokens\)", terminal.expect("exceeds the available context size"))
        assert int(counted.group(1)) >= len(text), counted
        terminal.expect(">>> ")
        terminal.line("[[stop]]")
        terminal.expect("[Generated")
        terminal.line("/bye")
        assert terminal.wait() == 0


def check_turns_share_their_beginning(context):
    with chat(context, "-n", "8", "--ignore-eos", model=context.tiny()) as terminal:
        terminal.expect(">>> ")
        counts = []
        for words in ("abcdefgh " * 12, "and again"):
            terminal.line(words)
            line = terminal.expect("| finish")
            counts.append(tuple(map(int, re.search(r"prompt (\d+) tokens, (\d+) cached", line).groups())))
            terminal.expect(">>> ")
        terminal.line("/bye")
        terminal.wait()
    (first, none), (second, cached) = counts
    assert none == 0 and first < second and cached >= 32, f"what was evaluated is not evaluated again: {counts}"


def check_second_interrupt_leaves_at_once(context):
    with chat(context, "-n", "100000", "--quiet") as terminal:
        terminal.expect(">>> ")
        terminal.line("[[loop]]")
        terminal.expect("tick tock tick")
        terminal.send("\x03", 0)
        terminal.send("\x03", 0.05)
        # The second one came while the answer was being stopped, or at the empty prompt: either way it leaves.
        try:
            code = terminal.wait(5)
        except AssertionError:
            terminal.send("\x03")  # the terminal made one of the two
            code = terminal.wait()
        assert code in (-signal.SIGINT, 0), code


def check_windows_and_locales_of_every_kind(context):
    """Whatever the terminal says about itself, a line can be typed and is answered."""
    for env, size in (({"TERM": "dumb"}, (80, 24)), ({"TERM": ""}, (80, 24)), ({"TERM": "unknown-terminal"}, (80, 24)), ({}, (5, 3)), ({}, (0, 0)),
                      ({}, (500, 100)), ({"COLUMNS": "0", "LINES": "-1"}, (80, 24)), ({"COLUMNS": "abc", "LINES": "99999999"}, (80, 24)),
                      ({"LANG": "C"}, (80, 24)), ({"LC_ALL": "xx_YY"}, (80, 24))):
        with chat(context, "--quiet", env=dict(env, MLXCEL_NO_HISTORY="1"), columns=size[0], rows=size[1]) as terminal:
            terminal.expect(">>> ")
            terminal.send(b"caf\xc3\xa9 \xff\x00 [[stop]]\r")
            terminal.expect("gamma delta")
            terminal.line("/bye")
            assert terminal.wait() == 0, (env, size, terminal.text())


def check_the_terminal_is_left_as_it_was(context):
    for leave in ("bye", "sigterm", "interrupt", "end of file"):
        with chat(context, env={"MLXCEL_NO_HISTORY": "1"}) as terminal:
            before = termios.tcgetattr(terminal.master)[:4]
            terminal.expect(">>> ")
            time.sleep(0.2)
            if leave == "sigterm":
                terminal.process.terminate()
            else:
                terminal.send({"bye": "/bye\r", "interrupt": "\x03", "end of file": "\x04"}[leave])
            assert terminal.wait() == (-signal.SIGTERM if leave == "sigterm" else 0), leave
            assert termios.tcgetattr(terminal.master)[:4] == before, leave


def check_resize(context):
    saved = context.folder / "resized.json"
    with chat(context, columns=80) as terminal:
        terminal.expect(">>> ")
        long = "word " * 30
        terminal.send(long)
        time.sleep(0.2)
        terminal.resize(40)
        time.sleep(0.2)
        terminal.send("[[stop]]\r")
        terminal.expect("[Generated")
        terminal.resize(200)
        terminal.line(f"/save {saved}")
        terminal.expect("saved 2")
        terminal.line("/bye")
        assert terminal.wait() == 0
    assert json.loads(saved.read_text())[0]["content"] == long + "[[stop]]"


def check_a_window_dragged_while_typing(context):
    saved = context.folder / "dragged.json"
    with chat(context, env={"MLXCEL_NO_HISTORY": "1"}) as terminal:
        terminal.expect(">>> ")
        time.sleep(0.2)
        for turn in range(20):
            for step in range(60):  # no pause: some of these reach the program in the midst of what it draws
                terminal.send("word ", 0)
                terminal.resize(10 + (60 * turn + step) * 7 % 100)
                terminal.pump(0)
            if turn < 19:
                terminal.send("\x03", 0)
                terminal.expect("^C")
                terminal.expect(">>> ")
        terminal.send("[[stop]]\r", 0)
        terminal.expect("[Generated")
        terminal.resize(80)
        terminal.line(f"/save {saved}")
        terminal.expect("saved 2")
        terminal.line("/bye")
        assert terminal.wait() == 0, terminal.process.returncode
    assert json.loads(saved.read_text())[0]["content"] == "word " * 60 + "[[stop]]"


def check_every_sampling_value_can_be_set(context):
    with chat(context) as terminal:
        terminal.expect(">>> ")
        for key, value in (("top-k", "3"), ("top_p", "0.5"), ("min_p", "0.1"), ("repeat_penalty", "1.1"), ("dry_multiplier", "0.8"),
                           ("mirostat", "2"), ("samplers", "top_k;temperature"), ("logit_bias", "5-1.5"), ("seed", "42"), ("max_tokens", "7")):
            terminal.line(f"/set {key} {value}")
        terminal.line("/show")
        shown = terminal.expect("max_tokens      7")
        assert "no such" not in shown and re.search(r"top_k +3\b", shown) and re.search(r"seed +42\b", shown), shown
        # A value that cannot be leaves the old one.
        for key, value in (("top_p", "2"), ("mirostat", "9"), ("logit_bias", "99999999+1"), ("max_tokens", "-7")):
            terminal.line(f"/set {key} {value}")
            terminal.expect("/set " + key)
            terminal.expect("/set " + key)
        terminal.line("/show")
        assert re.search(r"top_p +0\.5\b", terminal.expect("max_tokens      7"))
        terminal.line("/bye")
        assert terminal.wait() == 0


def check_thoughts_in_the_chat(context):
    saved = context.folder / "thought.json"
    for flags, dim in (([], False), (["--show-reasoning"], True)):
        with chat(context, *flags) as terminal:
            terminal.expect(">>> ")
            terminal.line("[[think]]")
            terminal.expect("[Generated")
            assert (b"\x1b[2m" in terminal.bytes) == dim and b"</think>" not in terminal.bytes, terminal.bytes
            terminal.line(f"/save {saved}")
            terminal.expect("saved 2")
            terminal.line("/bye")
            terminal.wait()
        assert "think" not in json.loads(saved.read_text())[1]["content"], "a thought is no part of the conversation"


def check_colours_only_where_they_belong(context):
    model = context.scripted()
    with chat(context) as terminal:
        terminal.expect(">>> ")
        terminal.line("[[stop]]")
        terminal.expect("[Generated")
        terminal.line("/bye")
        terminal.wait()
    # Nothing styled: NO_COLOR, a dumb terminal, a pipe.
    for env in ({"NO_COLOR": "1"},):
        with Terminal([context.mlxcel, "run", "-m", model, "-p", "[[stop]]", "--quiet"],
                      dict(context.environment, **env)) as terminal:
            terminal.wait()
            assert b"\x1b[" not in terminal.bytes, terminal.bytes
    piped = context.ok("run", "-m", model, "-p", "[[stop]]")
    assert "\x1b" not in piped.out and "\x1b" not in piped.err
    doctor = Terminal([context.mlxcel, "doctor", context.tiny()], context.environment)
    with doctor as terminal:
        terminal.wait()
        assert b"\x1b[32m" in terminal.bytes
    doctor = Terminal([context.mlxcel, "doctor", context.tiny()], dict(context.environment, NO_COLOR="1"))
    with doctor as terminal:
        terminal.wait()
        assert b"\x1b[" not in terminal.bytes


def check_answers_do_not_steer_the_terminal(context):
    words = ["run", "-m", context.tiny(), "-p", "x", "--quiet", "--grammar", r'root ::= "a\x1b]0;t\x07\x1b[2Jb\u009b1m\x7f\r\n\té日c"']
    # A pipe gets the bytes as they are.
    raw = subprocess.run([context.mlxcel, *map(str, words)], env=context.environment, capture_output=True, check=True).stdout
    assert raw == "a\x1b]0;t\x07\x1b[2Jb\u009b1m\x7f\r\n\té日c\n".encode(), raw
    for env in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"}):
        with Terminal([context.mlxcel, *words], dict(context.environment, **env)) as terminal:
            assert terminal.wait() == 0
            shown = terminal.bytes.decode()
            assert "a␛]0;t␇␛[2Jb\ufffd1m␡" in shown and "\té日c" in shown and "\x1b]" not in shown and "\x1b[2J" not in shown, shown


def check_standard_input_that_is_no_terminal(context):
    out = context.fails(2, "chat", "-m", context.scripted(), stdin=b"hello")
    assert "terminal" in out.err
    assert context.ok("run", "-m", context.scripted(), stdin=b"[[stop]]").out
    for words in (["run", "-m", "acme/absent"], ["generate", "-m", "acme/absent"]):
        empty = context.fails(2, *words, stdin=b"")
        assert "stdin is empty" in empty.err and "acme/absent" not in empty.err, empty
    context.ok("run", "-m", context.tiny(), "-p", "", "-n", "2")  # asked for in so many words


def check_base_model_is_named_as_such(context):
    import shutil
    base = context.folder / "base"
    if not base.exists():
        shutil.copytree(context.tiny(), base)
        for name in ("chat_template.jinja",):
            (base / name).unlink(missing_ok=True)
        config = json.loads((base / "tokenizer_config.json").read_text())
        config.pop("chat_template", None)
        (base / "tokenizer_config.json").write_text(json.dumps(config))
    out = context.ok("run", "-m", base, "-p", "abc", "-n", "3")
    assert "base model" in out.err and "-Instruct" in out.err, out.err
    silent = context.ok("run", "-m", base, "-p", "abc", "-n", "3", "--no-chat-template")
    assert "base model" not in silent.err


def check_progress_bars(context):
    from hub import Hub
    import random
    files = {"acme/bars": {"config.json": b"{}", "model.safetensors": random.Random(1).randbytes(3000000)}}
    with Hub(files) as hub:
        hub.delay = lambda name, sent: time.sleep(0.02)
        for env, shown in (({}, True), ({"NO_COLOR": "1"}, False), ({"MLXCEL_NO_PROGRESS": "1"}, False), ({"CI": "true"}, False)):
            target = context.folder / f"bars{len(hub.requests)}"
            with Terminal([context.mlxcel, "download", "acme/bars", "--local-dir", target],
                          dict(context.environment, HF_ENDPOINT=hub.url, **env)) as terminal:
                assert terminal.wait(60) == 0, terminal.text()
                assert (b"#" in terminal.bytes and b"left" in terminal.bytes) == shown, (env, terminal.text()[-500:])
                if shown:
                    assert "model.safetensors" in terminal.text() and "/s" in terminal.text()
