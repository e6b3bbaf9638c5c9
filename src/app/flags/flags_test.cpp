// The table of flags: every row can be told apart, explained, given and refused; llama-server's options are
// all there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "app/flags/flag.h"

namespace mlxcel::app {
namespace {

FlagState read(const std::vector<std::string>& words) {
  FlagState state;
  read_flags(server_flags(), words, state);
  return state;
}

std::string refusal(const std::vector<std::string>& words) {
  try {
    read(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Flags, EveryRowIsToldApartAndExplained) {
  std::set<std::string> names, variables;
  for (const auto& flag : server_flags()) {
    for (const auto& [name, on] : flag.spellings()) {
      EXPECT_TRUE(names.insert(name).second) << name << " stands twice";
      EXPECT_TRUE(name.starts_with("-")) << name;
    }
    EXPECT_TRUE(flag.apply) << flag.names;
    EXPECT_FALSE(!flag.group.empty() && flag.help.empty()) << flag.names;
    EXPECT_EQ(flag.kind != Flag::Kind::toggle, !flag.type.empty()) << flag.names;
    std::string list = flag.env;
    while (!list.empty()) {
      const auto name = list.substr(0, list.find(','));
      list = list.size() > name.size() ? list.substr(name.size() + 1) : "";
      EXPECT_TRUE(variables.insert(name).second) << name << " belongs to two flags";
    }
  }
}

TEST(Flags, RowsOfTheOtherCommandsAreRefusedWithAReason) {
  std::set<std::string> taken;
  for (const auto& flag : server_flags())
    for (const auto& [name, on] : flag.spellings()) taken.insert(name);
  for (const auto& flag : offline_flags()) {
    EXPECT_TRUE(taken.insert(flag.names).second) << flag.names << " stands twice";
    FlagState state;
    try {
      flag.apply(state, flag, flag.kind == Flag::Kind::toggle ? "true" : "1");
      ADD_FAILURE() << flag.names << " does nothing";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(flag.names), std::string::npos) << error.what();
    }
  }
}

TEST(Flags, EveryRowActsOrSaysWhyNot) {
  for (const auto& flag : server_flags()) {
    for (const auto& [name, on] : flag.spellings()) {
      std::vector<std::string> words{name};
      if (flag.kind != Flag::Kind::toggle) words.emplace_back("no such value");
      const std::string answer = refusal(words);
      if (!answer.empty()) {
        const std::string called = flag.kind == Flag::Kind::toggle ? flag.name() : name;  // as it was typed
        EXPECT_NE(answer.find(called), std::string::npos) << answer;
        EXPECT_GT(answer.size(), called.size() + 12) << "no reason in: " << answer;
      }
    }
  }
}

TEST(Flags, LlamaServersOptionsAreAllKnown) {
  // Names of release b10621 that scripts use; each works, is inert at some value, or is refused with a
  // reason.
  static const char* const kNames[] = {"-t",
                                       "-tb",
                                       "-C",
                                       "-Cr",
                                       "--cpu-strict",
                                       "--prio",
                                       "--poll",
                                       "-Cb",
                                       "-Crb",
                                       "-c",
                                       "-n",
                                       "-b",
                                       "-ub",
                                       "--keep",
                                       "--swa-full",
                                       "-fa",
                                       "--perf",
                                       "-e",
                                       "--rope-scaling",
                                       "--rope-scale",
                                       "--rope-freq-base",
                                       "--rope-freq-scale",
                                       "--yarn-orig-ctx",
                                       "--yarn-ext-factor",
                                       "--yarn-attn-factor",
                                       "--yarn-beta-slow",
                                       "--yarn-beta-fast",
                                       "-kvo",
                                       "-nkvo",
                                       "--repack",
                                       "-nr",
                                       "--no-host",
                                       "-ctk",
                                       "-ctv",
                                       "-dt",
                                       "--rpc",
                                       "-lm",
                                       "-lzm",
                                       "--numa",
                                       "-dev",
                                       "--list-devices",
                                       "-ot",
                                       "-cmoe",
                                       "-ncmoe",
                                       "-ncffn",
                                       "-ngl",
                                       "-sm",
                                       "-ts",
                                       "-mg",
                                       "-fit",
                                       "-fitt",
                                       "-fitc",
                                       "--check-tensors",
                                       "--override-kv",
                                       "--op-offload",
                                       "--lora",
                                       "--lora-scaled",
                                       "--control-vector",
                                       "--control-vector-scaled",
                                       "--control-vector-layer-range",
                                       "-m",
                                       "-mu",
                                       "-dr",
                                       "-hf",
                                       "-hfr",
                                       "-hff",
                                       "-hft",
                                       "--log-disable",
                                       "--log-file",
                                       "--log-jsonl",
                                       "--log-colors",
                                       "-v",
                                       "--offline",
                                       "-lv",
                                       "--log-prefix",
                                       "--log-timestamps",
                                       "-ctkd",
                                       "-ctvd",
                                       "--samplers",
                                       "-s",
                                       "--sampler-seq",
                                       "--ignore-eos",
                                       "--temp",
                                       "--top-k",
                                       "--top-p",
                                       "--min-p",
                                       "--top-nsigma",
                                       "--xtc-probability",
                                       "--xtc-threshold",
                                       "--typical",
                                       "--repeat-last-n",
                                       "--repeat-penalty",
                                       "--presence-penalty",
                                       "--frequency-penalty",
                                       "--dry-multiplier",
                                       "--dry-base",
                                       "--dry-allowed-length",
                                       "--dry-penalty-last-n",
                                       "--dry-sequence-breaker",
                                       "--adaptive-target",
                                       "--adaptive-decay",
                                       "--dynatemp-range",
                                       "--dynatemp-exp",
                                       "--mirostat",
                                       "--mirostat-lr",
                                       "--mirostat-ent",
                                       "-l",
                                       "--grammar",
                                       "--grammar-file",
                                       "-j",
                                       "-jf",
                                       "-bs",
                                       "-hfd",
                                       "-td",
                                       "-tbd",
                                       "-Cd",
                                       "-Crd",
                                       "-Cbd",
                                       "-otd",
                                       "-cmoed",
                                       "-ncmoed",
                                       "--spec-draft-n-max",
                                       "--spec-synth-len",
                                       "--spec-synth-rates",
                                       "--draft-p-split",
                                       "--draft-p-min",
                                       "-devd",
                                       "-ngld",
                                       "-md",
                                       "--spec-type",
                                       "--spec-ngram-mod-n-min",
                                       "--spec-ngram-map-k4v-min-hits",
                                       "--draft",
                                       "--draft-min",
                                       "--spec-ngram-size-n",
                                       "-lcs",
                                       "-lcd",
                                       "--kv-unified-per-slot",
                                       "-ctxcp",
                                       "-cms",
                                       "-cram",
                                       "-kvu",
                                       "-no-kvu",
                                       "--cache-idle-slots",
                                       "--context-shift",
                                       "-r",
                                       "-sp",
                                       "--warmup",
                                       "--spm-infill",
                                       "--pooling",
                                       "-np",
                                       "-cb",
                                       "-nocb",
                                       "-mm",
                                       "-mmu",
                                       "--mmproj-auto",
                                       "--no-mmproj",
                                       "--mmproj-offload",
                                       "-mmdev",
                                       "--image-min-tokens",
                                       "--image-max-tokens",
                                       "--mtmd-batch-max-tokens",
                                       "--video-fps",
                                       "--video-timestamp-interval",
                                       "--video-ffmpeg-dir",
                                       "-a",
                                       "--tags",
                                       "--embd-normalize",
                                       "--host",
                                       "--port",
                                       "--reuse-port",
                                       "--path",
                                       "--cors-origins",
                                       "--cors-methods",
                                       "--cors-headers",
                                       "--cors-credentials",
                                       "--api-prefix",
                                       "--ui-config",
                                       "--ui-mcp-proxy",
                                       "--tools",
                                       "--tools-runtime",
                                       "--mcp-servers-config",
                                       "--mcp-servers-json",
                                       "-ag",
                                       "-no-ag",
                                       "--ui",
                                       "--no-webui",
                                       "--embedding",
                                       "--rerank",
                                       "--api-key",
                                       "--api-key-file",
                                       "--ssl-key-file",
                                       "--ssl-cert-file",
                                       "--chat-template-kwargs",
                                       "-to",
                                       "--sse-ping-interval",
                                       "--threads-http",
                                       "--cache-prompt",
                                       "--cache-reuse",
                                       "--metrics",
                                       "--props",
                                       "--slots",
                                       "--slot-save-path",
                                       "--media-path",
                                       "--models-dir",
                                       "--models-preset",
                                       "--models-max",
                                       "--models-autoload",
                                       "--jinja",
                                       "--reasoning-format",
                                       "-rea",
                                       "--reasoning-effort",
                                       "--reasoning-budget",
                                       "--reasoning-budget-message",
                                       "--reasoning-preserve",
                                       "--chat-template",
                                       "--chat-template-file",
                                       "--skip-chat-parsing",
                                       "--prefill-assistant",
                                       "-sps",
                                       "--lora-init-without-apply",
                                       "--sleep-idle-seconds",
                                       "--log-prompts-dir",
                                       "--embd-gemma-default",
                                       "--gpt-oss-20b-default",
                                       "--vision-gemma-12b-default",
                                       "--spec-default",
                                       "-cl",
                                       "--completion-bash",
                                       "--version",
                                       "-h"};
  std::set<std::string> known;
  for (const auto& flag : server_flags()) {
    for (const auto& [name, on] : flag.spellings()) known.insert(name);
  }
  for (const char* name : kNames) EXPECT_TRUE(known.contains(name)) << name;
}

TEST(Flags, ValuesAreReadAndChecked) {
  const auto state = read({"--port", "0", "-np", "8", "--temp=0", "--no-warmup", "--api-key", "a",
                           "--api-key", "b", "-r", "x", "--jinja"});
  EXPECT_EQ(state.serve.transport.port, 0);
  EXPECT_EQ(state.serve.parallel, 8);
  EXPECT_EQ(state.serve.service.sampling.temperature, 0.0f);
  EXPECT_TRUE(state.serve.model.no_warmup);
  EXPECT_EQ(state.api_keys, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read({"--port", "1", "--port", "2"}).serve.transport.port, 2);
  EXPECT_NE(refusal({"--port", "70000"}).find("from 0 to 65535"), std::string::npos);
  EXPECT_NE(refusal({"--port"}).find("expected a value"), std::string::npos);
  EXPECT_NE(refusal({"--port", "8080x"}).find("--port 8080x"), std::string::npos);
  EXPECT_NE(refusal({"--no-such"}).find("no such option"), std::string::npos);
  EXPECT_NE(refusal({"--slots=maybe"}).find("expected true or false"), std::string::npos);
  EXPECT_EQ(refusal({"--slots=false", "-ngl", "99", "-fa", "on", "--mmap", "--prio", "0"}), "");
  EXPECT_NE(refusal({"--no-mmap"}).find("--mmap"), std::string::npos);
  EXPECT_NE(refusal({"--split-mode", "row"}).find("accepted: none"), std::string::npos);
  EXPECT_EQ(read({"-sps", "0.5"}).notes.size(), 1u);
}

TEST(Flags, TheEnvironmentFillsWhatTheCommandLineLeavesOpen) {
  {
    const Variable port("LLAMA_ARG_PORT", "1234");
    EXPECT_EQ(read({}).serve.transport.port, 1234);
    EXPECT_EQ(read({"--port", "1"}).serve.transport.port, 1);
  }
  {
    const Variable bad("LLAMA_ARG_PORT", "many");
    EXPECT_NE(refusal({}).find("LLAMA_ARG_PORT"), std::string::npos);
  }
  {
    const Variable key("LLAMA_API_KEY", "from-environment");
    EXPECT_EQ(read({"--api-key", "a"}).api_keys.size(), 2u);
  }
  for (const auto& [word, on] : {std::pair("on", true), std::pair("1", true), std::pair("ON", false),
                                 std::pair("yes", false), std::pair("0", false)}) {
    const Variable metrics("LLAMA_ARG_ENDPOINT_METRICS",
                           word);  // without a value of its own: only exact words fire
    EXPECT_EQ(read({}).serve.service.metrics, on) << word;
  }
  {
    const Variable slots("LLAMA_ARG_ENDPOINT_SLOTS", "disabled");
    EXPECT_FALSE(read({}).serve.service.slots);
  }
  {
    const Variable slots("LLAMA_ARG_ENDPOINT_SLOTS", "perhaps");
    EXPECT_NE(refusal({}).find("LLAMA_ARG_ENDPOINT_SLOTS"), std::string::npos);
  }
  {
    const Variable no("LLAMA_ARG_NO_PREFILL_ASSISTANT", "1");
    EXPECT_FALSE(read({}).serve.service.prefill_assistant);
  }
  {
    const Variable device("LLAMA_ARG_SPLIT_MODE", "row");
    EXPECT_NE(refusal({}).find("LLAMA_ARG_SPLIT_MODE"), std::string::npos);
  }
}

TEST(Flags, HelpAndTablesShowEveryVisibleFlag) {
  const auto help = flags_help(server_flags(), "prog"), tables = flags_markdown(server_flags()),
             completion = flags_completion(server_flags(), "prog");
  for (const auto& flag : server_flags()) {
    const bool shown = !flag.group.empty();
    for (const auto& [name, on] : flag.spellings()) {
      const auto first = "`" + flag.spellings().front().first;
      const bool found = tables.find(first + ",") != std::string::npos ||
                         tables.find(first + " ") != std::string::npos ||
                         tables.find(first + "`") != std::string::npos;
      EXPECT_EQ(found, shown) << name;
      if (!shown) continue;
      EXPECT_NE(help.find(name), std::string::npos) << name;
      EXPECT_NE(completion.find(name), std::string::npos) << name;
    }
  }
}

FlagState settled_engine(const std::vector<std::string>& words) {
  FlagState state = read(words);
  settle_engine_flags(state);
  return state;
}

std::string engine_refusal(const std::vector<std::string>& words) {
  try {
    settled_engine(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Flags, KvModesInEverySpelling) {
  EXPECT_EQ(settled_engine({}).serve.model.kv_cache_mode, "fp16");
  EXPECT_EQ(settled_engine({"--kv-cache-mode", "i8"}).serve.model.kv_cache_mode, "int8");
  EXPECT_EQ(settled_engine({"--kv-bits", "3"}).serve.model.kv_cache_mode, "turbo3-asym");
  EXPECT_EQ(settled_engine({"-ctk", "q8_0", "-ctv", "q8_0"}).serve.model.kv_cache_mode, "int8");
  // The pair wins over the one word, in either order.
  EXPECT_EQ(
      settled_engine({"-ctk", "f16", "-ctv", "turbo4", "--kv-cache-mode", "int8"}).serve.model.kv_cache_mode,
      "turbo4-asym");
  for (const auto& words : std::vector<std::vector<std::string>>{{"--kv-cache-mode", "int7"},
                                                                 {"--kv-bits", "5"},
                                                                 {"-ctk", "int8", "-ctv", "turbo4"},
                                                                 {"-ctk", "iq4_nl"}})
    EXPECT_NE(engine_refusal(words), "") << words[0] << " " << words[1];
}

TEST(Flags, DraftsExcludeEachOther) {
  EXPECT_TRUE(settled_engine({"--draft-kind", "prompt-lookup"}).serve.engine.prompt_lookup);
  EXPECT_TRUE(settled_engine({"--spec-type", "draft-mtp"}).serve.engine.internal_mtp);
  EXPECT_EQ(settled_engine({"-md", "a/b", "--draft-block-size", "5"}).serve.engine.draft_tokens, 4);
  EXPECT_EQ(settled_engine({"-md", "a/b", "--draft-kind", "none"}).serve.draft.model, "");
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"--draft-kind", "draft"},
           {"--draft-kind", "prompt-lookup", "-md", "a/b"},
           {"--draft-kind", "mtp"},
           {"--prompt-lookup-policy", "gated"},
           {"--prompt-lookup-policy", "greedy", "--draft-kind", "prompt-lookup"}})
    EXPECT_NE(engine_refusal(words), "") << words[1];
  EXPECT_EQ(settled_engine({"--draft-kind", "dflash", "-md", "a/b"}).serve.engine.draft_kind, "dflash");
  const auto gated = settled_engine({"--draft-kind", "prompt-lookup", "--prompt-lookup-policy", "gated"});
  EXPECT_TRUE(gated.serve.engine.prompt_lookup_gated);
}

TEST(Flags, AdaptersComeInListsWithScales) {
  const auto engine =
      settled_engine({"--lora", "a,b", "--lora-scaled", "c:d:-0.5", "--lora-fuse"}).serve.engine;
  ASSERT_EQ(engine.adapters.size(), 3u);
  EXPECT_EQ(engine.adapters[1].path, "b");
  EXPECT_EQ(engine.adapters[2].path, "c:d");
  EXPECT_EQ(engine.adapters[2].scale, -0.5f);
  EXPECT_TRUE(engine.fuse_adapters);
  for (const auto& words : std::vector<std::vector<std::string>>{{"--lora", ""},
                                                                 {"--lora", "a,"},
                                                                 {"--lora-scaled", "a"},
                                                                 {"--lora-scaled", "a:nan"},
                                                                 {"--lora-fuse"}})
    EXPECT_NE(engine_refusal(words), "") << words[0];
}

TEST(Flags, SizesOfBytes) {
  EXPECT_EQ(read({"--kv-cache-budget", "1.5G"}).serve.engine.kv_budget_bytes, size_t{3} << 29);
  EXPECT_EQ(read({"--kv-cache-budget", "auto"}).serve.engine.kv_budget_bytes, 0u);
  const Variable limit("MLXCEL_RESPONSES_STORE_MAX_BYTES", " 2 "),
      other("MLXCEL_PROMPT_CACHE_CAPACITY_BYTES", "64kb");
  EXPECT_EQ(read({}).serve.service.responses.bytes, 2u);
  EXPECT_EQ(read({}).serve.prompt_cache_bytes, size_t{64} << 10);
  EXPECT_NE(refusal({"--kv-cache-budget", "much"}), "");
  EXPECT_NE(refusal({"--conversation-store-max-bytes", "-1"}), "");
}

TEST(Flags, DiffusionIsARowOfTheTable) {
  const auto state = read({"--max-denoising-steps", "4", "--diffusion-threshold", "0.5"});
  EXPECT_EQ(state.serve.model.diffusion.steps, 4);
  EXPECT_EQ(state.serve.model.diffusion.threshold, 0.5);
  EXPECT_EQ(state.serve.model.diffusion.whole, false);
  EXPECT_EQ(read({"--diffusion-sampler", "random"}).serve.model.diffusion.sampler, "random");
  const auto lengths = read({"--diffusion-min-canvas-length", "64", "--diffusion-full-canvas"});
  EXPECT_EQ(lengths.serve.model.diffusion.least, 64);
  EXPECT_TRUE(lengths.serve.model.diffusion.whole);
  for (const auto& words : std::vector<std::vector<std::string>>{{"--max-denoising-steps", "0"},
                                                                 {"--diffusion-threshold", "1.5"},
                                                                 {"--diffusion-sampler", "surest"},
                                                                 {"--diffusion-min-canvas-length", "0"},
                                                                 {"--diffusion-max-canvas-length", "4097"}})
    EXPECT_NE(refusal(words), "") << words[0];
}

TEST(Flags, EscapesAndBiases) {
  EXPECT_EQ(unescaped("a\\nb\\t\\\\n\\x"), "a\nb\t\\n\\x");
  EXPECT_EQ(unescaped("end\\"), "end\\");
  const auto sampling = read({"-l", "5-1.5", "-l", "6+2", "-l", "7-inf"}).serve.service.sampling;
  EXPECT_EQ(sampling.logit_bias.at(5), -1.5f);
  EXPECT_EQ(sampling.logit_bias.at(6), 2.0f);
  EXPECT_EQ(sampling.banned, std::vector<int32_t>{7});
  for (const char* text : {"", "5", "+1", "5+", "5+nan", "5+inf", "x-1", "5-1x"})
    EXPECT_NE(refusal({"-l", text}), "") << text;
}

}  // namespace
}  // namespace mlxcel::app
