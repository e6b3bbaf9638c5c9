"""Flags of models that fill in blocks (LLaDA-2, DiffusionGemma), on tiny ones; for other models they are a usage error."""
import json
import re
import pathlib

import models

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "golden/data"


def model_of(context, name, change):
    """A golden's layers over the scripted model's vocabulary; `change` writes its size into the configuration."""
    folder = context.folder / name
    if folder.exists():
        return folder
    golden = json.loads((GOLDENS / f"{name}.json").read_text())
    vocab = json.loads((context.scripted() / "config.json").read_text())["vocab_size"]
    config, own = golden["config"], golden["config"].get("text_config", golden["config"])["vocab_size"]
    change(config, vocab)
    shapes = {tensor: [vocab if n == own else n for n in shape] for tensor, shape in golden["tensors"].items()}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    models.write_safetensors(folder / "model.safetensors", models.random_tensors(shapes, dtype="F32"))
    models.companions(folder, context.scripted())
    return folder


def llada(context):
    return model_of(context, "llada2_moe-blocks", lambda config, vocab: config.update(vocab_size=vocab, mask_token_id=vocab - 1))


def gemma(context):
    return model_of(context, "diffusion_gemma-draft", lambda config, vocab: config["text_config"].update(vocab_size=vocab))


def check_lengths_of_drafts(context):
    model = gemma(context)
    words = ["run", "-m", model, "-p", "abc", "-n", "3", "--ignore-eos", "--quiet", "-s", "7"]

    def run(*more):
        return context.ok(*words, *more).out

    plain, short = run(), run("--diffusion-min-canvas-length", "1")
    assert plain and run() == plain, "the seed decides"
    assert run("--diffusion-full-canvas") == plain, "the model's shortest is over its longest: nine tokens"
    assert short != plain and run("--diffusion-max-canvas-length", "3") == short, "three tokens are left to write"
    assert run("--diffusion-sampler", "random") == run("--diffusion-sampler", "random")
    for more, word in ((["--diffusion-min-canvas-length", "10"], "is 9"), (["--diffusion-max-canvas-length", "10"], "is 9"),
                       (["--diffusion-min-canvas-length", "4", "--diffusion-max-canvas-length", "3"], "over"),
                       (["--diffusion-full-canvas", "--diffusion-min-canvas-length", "4"], "always"),
                       (["--diffusion-threshold", "0.5", "--diffusion-sampler", "random"], "confidence")):
        refused = context.fails(2, *words, *more)
        assert word in refused.err and "--diffusion-" in refused.err and refused.out == "", refused


def check_rounds_and_threshold(context):
    model = llada(context)
    words = ["run", "-m", model, "-p", "abc", "-n", "24", "--ignore-eos", "--quiet"]

    def run(*more):
        return context.ok(*words, *more).out

    plain = run()
    assert plain and run("--diffusion-threshold", "0.95") == plain, "0.95 is the model's own"
    assert run("--diffusion-sampler", "confidence") == plain
    # The model is sure of nothing: by one token a round, or by all of a block at once, other tokens come out.
    assert run("--max-denoising-steps", "8") == plain, "a block of eight has eight rounds anyway"
    once = run("--max-denoising-steps", "1")
    assert once != plain and run("--diffusion-threshold", "0") == once, "all at once, by either way"
    for more, word in ((["--max-denoising-steps", "9"], "8 tokens"), (["--max-denoising-steps", "0"], "from 1"),
                       (["--diffusion-threshold", "1.5"], "from 0 to 1"), (["--diffusion-sampler", "entropy-bound"], "surest"),
                       (["--diffusion-sampler", "random"], "surest"), (["--diffusion-full-canvas"], "8 tokens"),
                       (["--diffusion-min-canvas-length", "4"], "8 tokens"), (["--diffusion-max-canvas-length", "4"], "8 tokens")):
        refused = context.fails(2, *words, *more)
        assert word in refused.err and more[0] in refused.err and refused.out == "", refused


def check_other_models_have_no_blocks(context):
    for more in (["--max-denoising-steps", "4"], ["--diffusion-threshold", "0.5"], ["--diffusion-sampler", "confidence"],
                 ["--diffusion-min-canvas-length", "4"], ["--diffusion-max-canvas-length", "4"], ["--diffusion-full-canvas"]):
        refused = context.fails(2, "run", "-m", context.tiny(), "-p", "abc", *more)
        assert "--diffusion-" in refused.err and "one token after another" in refused.err and refused.out == "", refused


def check_what_a_diffusion_model_cannot_do(context):
    model = llada(context)
    for more in (["--prompt-lookup"], ["--draft-model", context.tiny()]):
        refused = context.run("run", "-m", model, "-p", "abc", "-n", "4", *more)
        assert refused.code != 0 and refused.out == "" and refused.err.strip(), (more, refused)


def check_what_its_answer_must_look_like(context):
    for flags in (["--regex", "(ab)+"], ["--grammar", 'root ::= "ab"+']):
        out = context.ok("run", "-m", llada(context), "-p", "abc", "-n", "4", "--quiet", *flags).out
        assert re.fullmatch("(ab)*a?\\n?", out), (flags, out)


def check_an_early_end_is_a_clean_one(context):
    """A program that ends before the model's thread had work lets go of MLX alone: it crashed one time in ten."""
    model = llada(context)
    for _ in range(40):
        context.fails(2, "run", "-m", model, "-p", "abc", "--quiet", "--max-denoising-steps", "9")
