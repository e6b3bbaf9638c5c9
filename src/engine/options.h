// How an engine is set up: window, slots, memory, caches, speculation, adapters. Owner: values. Thread: any.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/denoising.h"
#include "models/model.h"
#include "text/language_bias.h"

namespace mlxcel {

class Tokenizer;

/// A LoRA adapter and how much of it, beside its own alpha / r.
struct AdapterSource {
  std::filesystem::path path = {};
  float scale = 1.0f;
};
struct AdapterScale {
  int id = 0;
  float scale = 1.0f;
};
struct AdapterInfo {
  int id = 0;
  std::string path = {};
  float scale = 1.0f;       // in force
  std::string format = {};  // "PEFT", "MLX"
  int rank = 0;             // the largest
  size_t bytes = 0;
};

/// What holds for kept prefixes beside their bytes. Snapshots: entries of models whose state is kept as it
/// was at one token (recurrent, windowed); their own bounds stand in for those of other models.
struct PromptCacheBounds {
  size_t entries = 1024, snapshot_entries = 4096;
  double ttl_s = 3600, snapshot_ttl_s = 7200;  // entries not used for so long go; 0: they stay
  size_t snapshot_bytes = 0;                   // recurrent states; 0: as the whole
  size_t pages = 0;                            // of 32 tokens; 0: as bytes allow
  int min_prefix = 32;                         // tokens that a prefix has at least
  bool whole_only = false;                     // entries are taken whole, never cut to what is shared
};

struct EngineOptions {
  std::filesystem::path model = {};
  int context = 0;                     // window per sequence; 0: the model's, or what memory allows of it
  int max_kv_size = 0;                 // no window is larger; 0: no such bound
  bool context_shift = false;          // a full window forgets its oldest tokens instead of ending the answer
  int parallel = 4;                    // sequences at once
  int max_batch = 0;                   // of these, rows that decode in one step; 0: all of them
  int prefill_chunk = 2048;            // prompt tokens per step; 0: whole prompts
  int step_token_budget = 0;           // tokens of a step while rows decode; 0: learned from max_token_gap_ms
  int max_token_gap_ms = 100;          // what a learned budget keeps a step under
  int prefill_interval = 1;            // while rows decode, every so many steps may hold parts of prompts
  int max_prefill_rows = 4;            // prompts that share a step
  int max_prefill_tokens = 4096;       // their tokens, where they are several; 0: no bound
  size_t max_queue = 256;              // waiting requests; beyond: Busy
  std::string kv_cache_mode = "fp16";  // a name of state/kv_mode.h
  int kv_boundary_values = 2;          // turbo modes: so many layers at either end keep 16-bit values
  bool kv_skip_last_layer = true;      // coded modes: the last layer keeps 16 bits
  size_t max_kv_tokens = 0;            // pages for that many tokens over all sequences; 0: as memory allows
  size_t kv_budget_bytes = 0;          // what pages may take at most; 0: as memory allows
  size_t memory_limit = 0;     // what this process may hold when it takes a request in; 0: what there is
  double kv_watermark = 0.01;  // share of the pages that stays free when a request joins running rows
  bool preemption = false;     // rows of strictly lower priority may be put back in the queue
  bool prompt_cache = true;    // keep what was evaluated for prompts that begin alike
  size_t prompt_cache_bytes =
      0;  // keys, values and states kept; 0: 2 GiB, or a quarter of the memory available
  PromptCacheBounds prompt_cache_bounds = {};
  std::filesystem::path prompt_cache_dir = {};  // also keep them here, across restarts; empty: nowhere
  size_t prompt_cache_disk_bytes = size_t{10} << 30;
  double prompt_cache_disk_ttl_s = 0;  // entries not used for so long go; 0: they stay
  std::string weight_edits = {};       // what was done to the weights beyond their files (surgery)
  size_t max_per_key = 0;              // running requests of one key while others wait; 0: any number
  size_t keys = 1;  // how many there are: each may fill its share of the queue, beyond: KeyBusy
  // Speculation: answers do not change, whatever is drafted.
  bool prompt_lookup = false;              // draft from what prompt and answer repeat
  int prompt_lookup_max_batch = 2;         // rows that decode at once, beyond which nothing is looked up
  bool prompt_lookup_gated = false;        // only long drafts, and none after one that failed
  std::filesystem::path draft_model = {};  // a smaller model, or a drafter made for this one: its config says
  std::string draft_kind = {};             // what it must be: "draft", "mtp", "dflash"; empty: whatever it is
  std::function<std::unique_ptr<Model>()> make_drafter =
      nullptr;  // a smaller model, made on the model thread (tests)
  std::shared_ptr<const Tokenizer> draft_tokenizer =
      nullptr;  // of a smaller model over another vocabulary: what it reads and drafts is translated
  std::shared_ptr<const Checkpoint> side_drafter =
      nullptr;                // draft_model opened, where it was made for this one
  bool internal_mtp = false;  // draft by the checkpoint's own block that predicts further
  bool auto_mtp = false;      // the same by itself, where there is one and blocks are verified exactly
  std::filesystem::path draft_policy_dir = {};  // where it is kept whether drafting pays; empty: nowhere
  bool draft_policy = false;   // the first answers are measured with drafts and without, which settles it
  int draft_tokens = 0;        // most tokens of a draft; 0: what suits the kind
  bool draft_adaptive = true;  // no more of them than pay, by what is accepted and what it costs
  bool draft_by_odds =
      false;                 // drafts are drawn, and stand by their odds: the same distribution, other draws
  float draft_p_min = 0.0f;  // a draft ends before a token that its model finds less likely
  std::string pooling = {};  // encoders: mean, cls, last, max; empty: the checkpoint's own
  std::vector<AdapterSource> adapters = {};  // loaded with the model, ids 0, 1, … in this order
  bool adapters_apply = true;                // false: their scales start at 0
  bool fuse_adapters = false;                // baked into the weights; scales are then fixed
  LanguageBias language_bias = {};           // of requests that bring none
  Denoising denoising = {};                  // of text diffusion, where a request asks nothing
  bool reranker = false;  // decoders: rows keep nothing; score() judges prompts by their last token's logits
  bool warmup = true;
  int warmup_prompt = 8;  // tokens evaluated then before a single one; 0: the single one alone
  std::function<void(size_t done, size_t total)> progress = nullptr;
};

/// Whether these ask for drafts of any kind.
inline bool asks_for_drafts(const EngineOptions& o) {
  return o.prompt_lookup || o.make_drafter || o.side_drafter || o.internal_mtp;
}

}  // namespace mlxcel
