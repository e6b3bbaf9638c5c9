"""Variables that have no flag: what they report, and those that this build knows without following them."""
import json
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src"
TABLE = SOURCE / "app/environment.cpp"


def unfollowed():
    text = TABLE.read_text()
    table = text[text.index("kUnfollowed"):text.index("});")]
    return re.findall(r"\bMLXCEL_[A-Z0-9_]+", table)


def check_variables_without_effect_are_named(context):
    model = context.tiny()
    words = ["run", "-m", model, "-p", "abc", "-n", "2"]
    want = context.ok(*words)
    names = unfollowed()
    assert len(names) == len(set(names)) > 90, "each stands once"
    assert "without effect" not in want.err
    one = context.ok(*words, env={"MLXCEL_FUSED_MOE": "0"})
    assert re.search(r"^MLXCEL_FUSED_MOE is set without effect: .{20,}$", one.err, re.M) and one.out == want.out, one
    every = context.ok(*words, env={name: "1" for name in names})
    lines = [line.split()[0] for line in every.err.splitlines() if "is set without effect" in line]
    assert sorted(lines) == sorted(names) and every.out == want.out, set(names) ^ set(lines)
    assert context.ok(*words, "--quiet", env={"MLXCEL_FUSED_MOE": "0"}).err == ""
    assert "without effect" not in context.ok(*words, env={"MLXCEL_FUSED_MOE": ""}).err, "an empty one is not set"


def check_the_table_of_them_is_true(_):
    """None of these is read anywhere."""
    names = set(unfollowed())
    for path in SOURCE.rglob("*.cpp"):
        if path != TABLE and not path.name.endswith("_test.cpp"):
            # As getenv() and the rows of the flag table have them; messages may name one.
            read = names & set(re.findall(r'(?<=[",])MLXCEL_[A-Z0-9_]+(?=[",])', re.sub(r"//[^\n]*", "", path.read_text())))
            assert not read, f"{path.relative_to(SOURCE)} reads {read}"


def check_traces(context):
    model = context.tiny()
    words = ["run", "-m", model, "-p", "abc", "-n", "2"]
    arch = context.ok(*words, env={"MLXCEL_TRACE_ARCH": "1"})
    assert re.search(r"^trace: .*config\.json: model_type llama, architectures \[LlamaForCausalLM\]: family llama", arch.err, re.M), arch
    types = context.ok(*words, "--quiet", env={"MLXCEL_TRACE_DTYPE": "1"})
    assert [line.split()[1:3] for line in types.err.splitlines()] == [["layer", "0"], ["layer", "1"], ["outside", "3"]], types
    assert "9 x BF16" in types.err and types.out == arch.out, types
    for off in ("0", "off", "No", ""):
        assert context.ok(*words, "--quiet", env={"MLXCEL_TRACE_ARCH": off, "MLXCEL_TRACE_DTYPE": off, "MLXCEL_PROFILE": off}).err == ""


def check_profiles(context):
    words = ["run", "-m", context.tiny(), "-p", "abc", "-n", "8", "--quiet"]
    for more, env in ((["--profile"], {}), ([], {"MLXCEL_PROFILE": "1"})):
        report = context.ok(*words, *more, env=env).err
        assert re.match(r"profile: queue [\d.]+ ms, prefill [\d.]+ ms \(\d+ tokens, 0 cached\), decode [\d.]+ ms", report), report
    first = context.ok(*words, env={"MLXCEL_PROFILE_TTFT": "1"}).err
    assert re.match(r"profile: first token: load [\d.]+ ms, queue [\d.]+ ms, prompt [\d.]+ ms \(\d+ tokens, 0 cached\)\n$", first), first


def check_estimates_follow_their_variables(context):
    model = context.tiny()

    def estimate(**env):
        return context.run("inspect", "-m", model, "--json", env=env)

    plain = json.loads(estimate().out)
    more = json.loads(estimate(MLXCEL_ACTIVATION_MULT="6").out)
    assert more["activation_bytes"] > plain["activation_bytes"]
    half = json.loads(estimate(MLXCEL_HEADROOM_FACTOR="1.5").out)
    assert half["headroom_bytes"] > plain["headroom_bytes"] > 0
    for wrong in ("0", "-1", "x", "1e400", "nan"):
        warned = estimate(MLXCEL_HEADROOM_FACTOR=wrong)
        assert warned.code == 0 and f"MLXCEL_HEADROOM_FACTOR={wrong}" in warned.err, warned
        assert json.loads(warned.out)["headroom_bytes"] == plain["headroom_bytes"]


def check_a_folder_for_packed_weights_that_cannot_be(context):
    words = ["run", "-m", context.tiny(), "-p", "abc", "-n", "2"]
    plain = context.ok(*words)
    file = context.folder / "no-folder"
    file.write_text("x")
    for place in (file, file / "below", "/proc/packed"):
        told = context.ok(*words, env={"MLXCEL_PACKED_CACHE": str(place)})
        lines = [line for line in told.err.splitlines() if "MLXCEL_PACKED_CACHE" in line]
        assert len(lines) == 1 and lines[0].startswith(f"warning: MLXCEL_PACKED_CACHE={place}: ") and "say off" in lines[0], told
        assert told.out == plain.out, told
        assert context.ok(*words, "--quiet", env={"MLXCEL_PACKED_CACHE": str(place)}).err == ""
    # The default place may lie in a home that nobody can write to: no start nags about that.
    for env in ({"MLXCEL_CACHE_DIR": str(file)}, {"MLXCEL_CACHE_DIR": None, "HOME": "/proc"}):
        quiet = context.ok(*words, env=env)
        assert "warning" not in quiet.err and quiet.out == plain.out, quiet
    assert "warning" not in context.ok(*words, env={"MLXCEL_PACKED_CACHE": "off"}).err
    for name, value in (("MLXCEL_PACKED_CACHE", "beside/me"), ("MLXCEL_PACKED_CACHE_MB", "much"), ("MLXCEL_PACKED_CACHE_MB", "-1"),
                        ("MLXCEL_PACKED_CACHE_MB", "1e400")):
        bad = context.fails(2, *words, env={name: value})
        assert name in bad.err and value in bad.err and bad.out == "", bad
