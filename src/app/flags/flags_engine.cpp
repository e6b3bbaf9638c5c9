// Rows of the table: how keys and values are kept, what is kept of prompts on disk, what drafts, which
// adapters.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "app/environment.h"
#include "app/flags/flag.h"
#include "app/serve_models.h"
#include "hub/store.h"
#include "state/kv_mode.h"

namespace mlxcel::app {
namespace {

using Kind = Flag::Kind;
using S = FlagState;

/// The engine's messages name the flag without its dashes.
void set_mode(S& s, const Flag&, const std::string& value) {
  try {
    s.serve.model.kv_cache_mode = to_string(parse_kv_mode(value.substr(0, 80)));
  } catch (const Error& error) {
    throw UsageError(fmt::format("--{}", error.what()));
  }
}

void set_bits(S& s, const Flag& flag, const std::string& value) {
  const char* mode = value == "16"  ? "fp16"
                     : value == "8" ? "int8"
                     : value == "4" ? "turbo4-asym"
                     : value == "3" ? "turbo3-asym"
                                    : "";
  if (!*mode)
    throw UsageError(fmt::format("{} {}: expected 16, 8, 4 or 3", flag.name(), value.substr(0, 80)));
  s.serve.model.kv_cache_mode = mode;
}

/// "PATH[:SCALE],…"; the scale is what follows the last colon.
void add_adapters(S& s, const Flag& flag, const std::string& list, bool scaled) {
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string item = list.substr(at, end - at);
    at = end + 1;
    AdapterSource adapter{item, 1.0f};
    if (scaled) {
      const auto colon = item.rfind(':');
      const char* last = item.data() + item.size();
      const auto parsed = colon == std::string::npos
                              ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                              : std::from_chars(item.data() + colon + 1, last, adapter.scale);
      if (parsed.ec != std::errc{} || parsed.ptr != last || !std::isfinite(adapter.scale))
        throw UsageError(fmt::format("{} {}: expected PATH:SCALE", flag.name(), item));
      adapter.path = item.substr(0, colon);
    }
    if (adapter.path.empty()) throw UsageError(fmt::format("{}: an empty path in \"{}\"", flag.name(), list));
    s.serve.engine.adapters.push_back(std::move(adapter));
  }
}

void add_cache_rows(std::vector<Flag>& f) {
  const char* g = "Keys and values";
  f.push_back({"--kv-cache-mode", "", g, Kind::value, "MODE",
               "fp16 (default), int8, turbo4, turbo4-asym, turbo4-delegated, turbo3-asym; f32 for tests",
               set_mode});
  f.push_back({"--kv-bits", "", g, Kind::value, "16|8|4|3",
               "the same in short: fp16, int8, turbo4-asym, turbo3-asym", set_bits});
  f.push_back(
      {"-ctk,--cache-type-k", "LLAMA_ARG_CACHE_TYPE_K", g, Kind::value, "TYPE",
       "keys: f16, int8, turbo4 (q8_0, q4_0 as their like); with --cache-type-v wins over --kv-cache-mode",
       text([](S& s, const auto& v) { s.kv_type_k = v; })});
  f.push_back({"-ctv,--cache-type-v", "LLAMA_ARG_CACHE_TYPE_V", g, Kind::value, "TYPE",
               "values: f16, int8, turbo4, turbo4-delegated, turbo3",
               text([](S& s, const auto& v) { s.kv_type_v = v; })});
  f.push_back(
      {"--turbo-boundary-v", "MLXCEL_KV_BOUNDARY_V_LAYERS,MLXCEL_TURBO_BOUNDARY_V", g, Kind::value, "N",
       "turbo modes: the first and last N layers keep 16-bit values (2)",
       integer(0, 1024, [](S& s, long long n) { s.serve.engine.kv_boundary_values = static_cast<int>(n); })});
  f.push_back({"--kv-skip-last-layer,!--no-kv-skip-last-layer", "MLXCEL_KV_SKIP_LAST_LAYER", g, Kind::toggle,
               "", "the last layer keeps 16 bits (default: on)",
               onoff([](S& s, bool on) { s.serve.engine.kv_skip_last_layer = on; })});
  f.push_back({"--kv-cache-budget", "MLXCEL_KV_CACHE_BUDGET", g, Kind::value, "BYTES",
               "most memory of keys and values; auto (default): as there is",
               [limit = byte_size([](S& s, size_t n) { s.serve.engine.kv_budget_bytes = n; })](
                   S& s, const Flag& flag, const std::string& value) {
                 limit(s, flag, value == "auto" ? "none" : value);
               }});
  f.push_back({"--kv-admission-watermark", "MLXCEL_KV_ADMISSION_WATERMARK", g, Kind::value, "F",
               "share of the pages that stays free when a request joins running rows (0.01)",
               real(0, 0.5, [](S& s, double x) { s.serve.engine.kv_watermark = x; })});
  f.push_back({"--prefill-grant-interval", "MLXCEL_PREFILL_GRANT_INTERVAL", g, Kind::value, "N",
               "decode steps between two parts of prompts (1)", integer(1, 1 << 20, [](S& s, long long n) {
                 s.serve.engine.prefill_interval = static_cast<int>(n);
               })});
  f.push_back({"--max-batch-size", "", g, Kind::value, "N",
               "rows that decode in one step; --ctx-size is then divided by it (default: --parallel)",
               integer(1, 1024, [](S& s, long long n) { s.serve.engine.max_batch = static_cast<int>(n); })});
  f.push_back(
      {"--max-batch-prefill", "", g, Kind::value, "N", "prompts that share a step (4)",
       integer(1, 1024, [](S& s, long long n) { s.serve.engine.max_prefill_rows = static_cast<int>(n); })});
  f.push_back(
      {"--max-batch-prefill-tokens", "MLXCEL_MAX_BATCH_PREFILL_TOKENS", g, Kind::value, "N",
       "their tokens, where they are several; 0: no bound (2 * prompts * 512, or a smaller chunk)",
       integer(0, 1 << 30, [](S& s, long long n) { s.serve.max_prefill_tokens = static_cast<int>(n); })});
  f.push_back({"--enable-preemption", "", g, Kind::toggle, "",
               "rows of strictly lower priority may go back to the queue",
               onoff([](S& s, bool on) { s.serve.engine.preemption = on; })});
  g = "Prompts kept on disk";
  f.push_back({"--prompt-cache-dir", "MLXCEL_PROMPT_CACHE_DIR", g, Kind::value, "DIR",
               "keep what was evaluated here, across restarts",
               text([](S& s, const auto& v) { s.serve.engine.prompt_cache_dir = v; })});
  f.push_back({"--prompt-cache-disk-bytes", "MLXCEL_PROMPT_CACHE_DISK_BYTES", g, Kind::value, "N",
               "most of it (10G); the least recently used goes",
               byte_size([](S& s, size_t n) { s.serve.engine.prompt_cache_disk_bytes = n; })});
  f.push_back({"--prompt-cache-disk-ttl", "MLXCEL_PROMPT_CACHE_DISK_TTL", g, Kind::value, "S",
               "what was not used for so long goes; 0 (default): nothing",
               real(0, 1e9, [](S& s, double x) { s.serve.engine.prompt_cache_disk_ttl_s = x; })});
}

void add_bound_rows(std::vector<Flag>& f) {
  const char* g = "Kept prefixes";
  const auto count = [](size_t PromptCacheBounds::* field) {
    return integer(1, 1 << 30, [field](S& s, long long n) {
      s.serve.engine.prompt_cache_bounds.*field = static_cast<size_t>(n);
    });
  };
  const auto seconds = [](double PromptCacheBounds::* field) {
    return real(0, 1e9, [field](S& s, double x) { s.serve.engine.prompt_cache_bounds.*field = x; });
  };
  using B = PromptCacheBounds;
  f.push_back({"--prompt-cache-max-entries", "MLXCEL_PROMPT_CACHE_MAX_ENTRIES", g, Kind::value, "N",
               "most of them (1024); see --no-prompt-cache for none", count(&B::entries)});
  f.push_back({"--prompt-cache-ttl", "MLXCEL_PROMPT_CACHE_TTL", g, Kind::value, "S",
               "what was not used for so long goes when the next prompt comes (3600); 0: it stays",
               seconds(&B::ttl_s)});
  f.push_back({"--prompt-cache-min-prefix", "MLXCEL_PROMPT_CACHE_MIN_PREFIX", g, Kind::value, "N",
               "tokens that are worth keeping (32, a page)", integer(1, 1 << 30, [](S& s, long long n) {
                 s.serve.engine.prompt_cache_bounds.min_prefix = static_cast<int>(n);
                 if (n < 32)
                   s.notes.push_back(
                       fmt::format("--prompt-cache-min-prefix {}: pages have 32 tokens; 32 is in effect", n));
               })});
  f.push_back({"--prompt-cache-snapshot-capacity-bytes", "MLXCEL_PROMPT_CACHE_SNAPSHOT_CAPACITY_BYTES", g,
               Kind::value, "N", "of these, states of recurrent layers (as many as there may be of all)",
               byte_size([](S& s, size_t n) { s.serve.engine.prompt_cache_bounds.snapshot_bytes = n; })});
  f.push_back({"--prompt-cache-snapshot-max-entries", "MLXCEL_PROMPT_CACHE_SNAPSHOT_MAX_ENTRIES", g,
               Kind::value, "N", "most entries of models whose state cannot be cut (4096)",
               count(&B::snapshot_entries)});
  f.push_back({"--prompt-cache-snapshot-ttl", "MLXCEL_PROMPT_CACHE_SNAPSHOT_TTL", g, Kind::value, "S",
               "how long those stay unused (7200); 0: for good", seconds(&B::snapshot_ttl_s)});
  f.push_back(
      {"--apc-enabled", "APC_ENABLED", g, Kind::toggle, "",
       "prefixes are found page by page (default: on); off: only where all of an entry is in the prompt",
       onoff([](S& s, bool on) { s.serve.engine.prompt_cache_bounds.whole_only = !on; })});
  f.push_back({"--apc-num-blocks", "APC_NUM_BLOCKS", g, Kind::value, "N",
               "pages of 32 tokens that may be kept (default: as bytes allow)", count(&B::pages)});
  f.push_back({"--apc-block-size", "APC_BLOCK_SIZE", g, Kind::value, "16|32",
               "tokens of a page: 32 in any case", word({"16", "32"}, [](S& s, const auto& v) {
                 if (v == "16") s.notes.push_back("--apc-block-size 16: pages have 32 tokens");
               })});
}

void add_draft_rows(std::vector<Flag>& f) {
  const char* g = "Drafting (answers do not change)";
  f.push_back({"-md,--model-draft,--draft-model,--spec-draft-model",
               "LLAMA_ARG_SPEC_DRAFT_MODEL,LLAMA_ARG_MODEL_DRAFT", g, Kind::value, "REF",
               "a smaller model over the same vocabulary",
               text([](S& s, const auto& v) { s.serve.draft.model = v; })});
  f.push_back({"-hfd,-hfrd,--hf-repo-draft,--spec-draft-hf", "LLAMA_ARG_SPEC_DRAFT_HF_REPO", g, Kind::value,
               "REPO", "the same, as owner/name[:QUANT]",
               text([](S& s, const auto& v) { s.serve.draft.model = v; })});
  f.push_back(
      {"--draft-kind", "LLAMA_ARG_DRAFT_KIND,MLXCEL_DRAFT_KIND", g, Kind::value,
       "auto|none|draft|prompt-lookup|mtp|internal-mtp|dflash",
       "auto (default): draft where a drafter is given; prompt-lookup: from what prompt and answer repeat; "
       "internal-mtp: by the checkpoint's own block",
       word({"auto", "none", "draft", "prompt-lookup", "mtp", "internal-mtp", "dflash"},
            [](S& s, const auto& v) { s.serve.draft.kind = v; })});
  f.push_back({"--spec-type", "LLAMA_ARG_SPEC_TYPE", g, Kind::value,
               "none|draft-simple|draft-mtp|draft-dflash", "the same in llama-server's words",
               word({"none", "draft-simple", "draft-mtp", "draft-dflash"}, [](S& s, const auto& v) {
                 s.serve.draft.kind = v == "none"           ? "none"
                                      : v == "draft-simple" ? "draft"
                                      : v == "draft-mtp"    ? "internal-mtp"
                                                            : "dflash";
               })});
  f.push_back({"--draft,--draft-n,--draft-max,--num-draft-tokens,--spec-draft-n-max",
               "LLAMA_ARG_SPEC_DRAFT_N_MAX,LLAMA_ARG_DRAFT_MAX", g, Kind::value, "N",
               "most tokens of a draft; 0 (default): as many as pay",
               integer(0, 64, [](S& s, long long n) { s.serve.engine.draft_tokens = static_cast<int>(n); })});
  f.push_back({"--draft-block-size", "LLAMA_ARG_DRAFT_BLOCK_SIZE,MLXCEL_DRAFT_BLOCK_SIZE", g, Kind::value,
               "K", "tokens that are checked at once: the draft and one more",
               integer(2, 65, [](S& s, long long n) { s.serve.draft.block = static_cast<int>(n); })});
  f.push_back({"--draft-p-min,--spec-draft-p-min", "LLAMA_ARG_SPEC_DRAFT_P_MIN", g, Kind::value, "F",
               "a draft ends before a token that its model finds less likely (0)",
               real(0, 1, [](S& s, double x) { s.serve.engine.draft_p_min = static_cast<float>(x); })});
  f.push_back({"--prompt-lookup-policy", "", g, Kind::value, "graded|gated",
               "graded (default): short drafts until they hold; gated: long ones only, none after a miss",
               word({"graded", "gated"}, [](S& s, const auto& v) { s.lookup_policy = v; })});
  f.push_back({"--prompt-lookup-max-batch", "", g, Kind::value, "N",
               "rows that decode at once, beyond which nothing is looked up (2)",
               integer(1, 1024, [](S& s, long long n) {
                 s.serve.engine.prompt_lookup_max_batch = static_cast<int>(n);
               })});
}

void add_adapter_rows(std::vector<Flag>& f) {
  const char* g = "Adapters (LoRA)";
  f.push_back({"--lora,--adapter", "", g, Kind::list, "PATH",
               "an adapter's folder or file; repeatable, comma lists",
               [](S& s, const Flag& flag, const std::string& v) { add_adapters(s, flag, v, false); }});
  f.push_back({"--lora-scaled", "", g, Kind::list, "PATH:SCALE",
               "the same, scaled beside its own alpha / r; repeatable",
               [](S& s, const Flag& flag, const std::string& v) { add_adapters(s, flag, v, true); }});
  f.push_back({"--lora-init-without-apply", "", g, Kind::toggle, "", "all scales start at 0",
               onoff([](S& s, bool on) { s.serve.engine.adapters_apply = !on; })});
  f.push_back({"--lora-fuse", "", g, Kind::toggle, "", "bake them into the weights; scales are then fixed",
               onoff([](S& s, bool on) { s.serve.engine.fuse_adapters = on; })});
}

}  // namespace

void add_engine_flags(std::vector<Flag>& flags) {
  add_cache_rows(flags);
  add_bound_rows(flags);
  add_draft_rows(flags);
  add_adapter_rows(flags);
}

void settle_engine_flags(FlagState& state) {
  auto& [model, kind, block] = state.serve.draft;
  EngineOptions& engine = state.serve.engine;
  if (!state.kv_type_k.empty() || !state.kv_type_v.empty()) {
    try {
      const auto type = [](const std::string& given) { return given.empty() ? std::string("f16") : given; };
      state.serve.model.kv_cache_mode =
          to_string(kv_mode_of_types(type(state.kv_type_k), type(state.kv_type_v)));
    } catch (const Error& error) {
      throw UsageError(fmt::format("--{}", error.what()));
    }
  }
  if (block > 0 && engine.draft_tokens == 0) engine.draft_tokens = block - 1;
  const bool beside = kind == "draft" || kind == "mtp" || kind == "dflash";
  if (beside && model.empty())
    throw UsageError(fmt::format("--draft-kind {}: which drafter? give --draft-model", kind));
  if ((kind == "prompt-lookup" || kind == "internal-mtp") && !model.empty())
    throw UsageError(fmt::format("--draft-kind {} and --draft-model: give one of them", kind));
  if (kind == "none") model.clear();
  engine.draft_kind = beside ? kind : "";
  engine.prompt_lookup = kind == "prompt-lookup";
  if (!state.lookup_policy.empty() && !engine.prompt_lookup)
    throw UsageError(
        fmt::format("--prompt-lookup-policy {}: nothing is looked up; give --draft-kind prompt-lookup",
                    state.lookup_policy));
  engine.prompt_lookup_gated = state.lookup_policy == "gated";
  engine.internal_mtp = kind == "internal-mtp";
  engine.auto_mtp = (kind.empty() || kind == "auto") && model.empty();
  const char* adaptive = std::getenv("MLXCEL_MTP_ADAPTIVE");
  engine.draft_policy = adaptive == nullptr || *adaptive == '\0' || variable_is_on("MLXCEL_MTP_ADAPTIVE");
  engine.draft_by_odds = variable_is_on("MLXCEL_SPECULATIVE_STOCHASTIC_ACCEPT");
  engine.draft_policy_dir = cache_root() / "mtp-policy";
  if ((engine.fuse_adapters || !engine.adapters_apply) && engine.adapters.empty())
    throw UsageError("--lora-fuse, --lora-init-without-apply: no adapter is given (--lora)");
}

EngineOptions engine_options(const ServeFlags& flags) {
  EngineOptions options = engine_options(flags.model, flags.engine);
  options.draft_model = drafter_of(flags);
  return options;
}

}  // namespace mlxcel::app
