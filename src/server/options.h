// What the server is told at start-up (server.md 2.2, 2.6, 2.8). Plain values; the application fills them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sample/params.h"
#include "text/language_bias.h"

namespace mlxcel {

/// Bounds on what a client may send, and on how long it may take. Seconds are steady time.
struct ServerLimits {
  size_t header_bytes = 16 * 1024;
  size_t body_bytes = size_t{32} << 20;
  int json_depth = 128;
  size_t connections = 4096;
  size_t bodies_bytes = size_t{512} << 20;  // of all bodies being read or parsed
  size_t unsent_bytes = size_t{16} << 20;   // of one stream whose reader is slow
  double header_seconds = 15;               // first byte to end of header
  double idle_seconds = 120;                // between two requests
  double body_seconds = 30;                 // plus one for every 16 KiB that came
  double io_seconds = 3600;                 // --timeout: one write that does not move
  double handshake_seconds = 10;
  double drain_seconds = 30;    // after SIGTERM
  double decode_seconds = 600;  // --decode-timeout: between two tokens
  size_t blocking_jobs = 12;    // embeddings running and waiting
};

/// Of what is kept in memory for later requests.
struct StoreLimits {
  size_t entries = 1024;
  size_t bytes = size_t{256} << 20;
  double seconds = 3600;
};

struct TransportOptions {
  std::string host = "127.0.0.1";  // several: commas between them; ends in .sock: a Unix socket
  int port = 8080;                 // 0: a free one
  int metrics_port = -1;           // a second listener, for /metrics alone; -1: none
  bool reuse_port = false;
  int threads = -1;                         // -1: automatic
  std::string tls_cert_file, tls_key_file;  // both or neither
  bool handle_signals = true;
  ServerLimits limits;
};

struct AccessOptions {
  std::vector<std::string> keys;  // empty: open
  std::string cors_origins = "*";
  std::string cors_methods = "GET, POST, DELETE, OPTIONS";
  std::string cors_headers = "*";
  bool cors_credentials = true;
  std::vector<std::string> allowed_origins;  // exact; empty: no check
  bool check_host = false;                   // loopback without a key: names of others are refused
  std::vector<std::string> allowed_hosts;    // accepted besides localhost and addresses
};

/// Flags that stand between a request's field and the checkpoint's own value.
struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
  std::optional<float> typical_p, top_n_sigma, xtc_probability, xtc_threshold, dry_multiplier, dry_base;
  std::optional<float> dynatemp_range, dynatemp_exponent, mirostat_tau, mirostat_eta, adaptive_target,
      adaptive_decay;
  std::optional<int> top_k, repeat_last_n, dry_allowed_length, dry_penalty_last_n, mirostat;
  std::optional<std::vector<std::string>> dry_breakers;
  std::optional<std::vector<Stage>> samplers;
  std::map<int32_t, float> logit_bias;
  std::vector<int32_t> banned;  // biased by -inf
  std::optional<uint32_t> seed;
  bool ignore_eos = false;
};

/// Of Vertex AI (AIP_MODE=PREDICTION); no predict route: off.
struct VertexRoutes {
  std::string predict, health;
};

struct ServiceOptions {
  std::string model_id;              // what `model` says in answers
  std::vector<std::string> aliases;  // accepted as well
  std::vector<std::string> tags;
  std::string api_prefix;
  std::string store_root;   // of models on disk, for lists; empty: the usual place
  std::string mlx_version;  // for metrics
  VertexRoutes vertex;
  std::string otlp_endpoint;  // where spans go; empty: nowhere
  SamplingFlags sampling;
  std::vector<std::string> reverse_prompts;  // server-wide stop strings
  int predict = -1;                          // default output cap
  int prefill_chunk = 2048;                  // as /props says it
  int keep = 0;  // where a full window shifts: first tokens that stay; -1: the whole prompt
  int ping_seconds = 30;
  bool metrics = false;
  bool props = false;          // POST /props
  std::string slot_save_path;  // folder of saved slots; empty: off
  bool slots_debug = false;    // GET /slots shows prompts
  bool slots = true;           // GET /slots
  bool settings = false;       // GET and PATCH /v1/settings
  int parallel = 4;
  int step_token_budget = 0;   // tokens of a step while rows decode; 0: learned
  size_t max_per_key = 0;      // running requests of one key; 0: any number
  LanguageBias language_bias;  // of requests, all of which bring none
  std::string model_path;
  std::string device;  // as the banner says
  bool embeddings_only = false, reranking_only = false;
  bool suffix_first = false;  // --spm-infill
  bool special = false;       // special tokens appear in the text
  bool prefill_assistant = true;
  bool jinja = true;                               // false: chats as role-prefixed plain text
  bool prompt_cache = true;                        // prefixes are kept, unless a request says no
  std::string reasoning_format = "auto";           // none, deepseek, deepseek-legacy, auto
  std::string reasoning_alias = "reasoning";       // repeats reasoning_content; empty: no
  int reasoning_budget = -1;                       // thinking tokens; -1: no limit
  size_t reasoning_echo_bytes = size_t{16} << 20;  // of thoughts put back into histories; 0: none are
  std::string grammar, json_schema;   // the form of every answer that no request gives another; one of them
  std::optional<int> embd_normalize;  // as the request's field; nothing: the model's own
  double embedding_seconds = 120;     // vectors and scores that take longer: 504
  std::string reasoning_budget_message;  // before the end of a thought that was cut
  bool skip_chat_parsing = false;        // everything goes to the content
  std::string chat_template;             // text; empty: the model's
  std::string chat_template_kwargs;      // JSON object; the request's win
  StoreLimits responses;
  StoreLimits conversations{256, size_t{64} << 20, 3600};
  AccessOptions access;
  ServerLimits limits;
  int max_rows = 0;  // parallel rows plus queue places
};

}  // namespace mlxcel
