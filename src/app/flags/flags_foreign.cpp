// Rows of the table: llama-server's other options, and ours that wait for their feature. Each takes the
// values that mean what this server does anyway, or stops start-up and says where to turn.
#include "app/flags/flag.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace mlxcel::app {
namespace {

using Kind = Flag::Kind;

struct Row {
  const char* names;
  const char* env;
  const char* inert;  // values that pass, "|" between them; "*": any; empty: none
  const char* reason;
};

std::vector<std::string> listed(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const auto word = text.substr(0, text.find('|'));
    out.emplace_back(word);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return out;
}

void add(std::vector<Flag>& flags, Kind kind, std::initializer_list<Row> rows) {
  for (const auto& row : rows) {
    flags.push_back({row.names, row.env, "", kind, kind == Kind::value ? "V" : "", row.reason,
                     inert(listed(row.inert), row.reason)});
    const bool refuses = kind == Kind::value ? !*row.inert : std::string_view(row.inert) == "false";
    flags.back().status = refuses ? "refused" : "inert";
  }
}

constexpr const char* kDevice =
    "devices are chosen with MLXCEL_DEVICE; layers are not split between memories";
constexpr const char* kCpu =
    "the threads follow this process's CPU mask; use taskset, and --threads for their number";
constexpr const char* kMemory =
    "the whole model is read and repacked at load; see MLXCEL_WIRED_LIMIT for locking";
constexpr const char* kDraft = "drafting is not supported yet";
constexpr const char* kMedia = "images, sound and video are not supported yet";
constexpr const char* kSound = "no model of this build hears or speaks (`mlxcel arch`)";
constexpr const char* kCluster = "running on several devices or hosts is not supported yet";
constexpr const char* kPreset = "built-in presets are not followed; name the model with -m or -hf";
constexpr const char* kUi = "there is no web client in this build";

void add_runtime(std::vector<Flag>& f) {
  add(f, Kind::value,
      {
          {"-C,--cpu-mask", "", "", kCpu},
          {"-Cr,--cpu-range", "", "", kCpu},
          {"--cpu-strict", "", "0", kCpu},
          {"--prio", "", "0", kCpu},
          {"--poll", "", "50", kCpu},
          {"-Cb,--cpu-mask-batch", "", "", kCpu},
          {"-Crb,--cpu-range-batch", "", "", kCpu},
          {"--cpu-strict-batch", "", "0", kCpu},
          {"--prio-batch", "", "0", kCpu},
          {"--poll-batch", "", "0|50", kCpu},
          {"-fa,--flash-attn", "LLAMA_ARG_FLASH_ATTN", "on|auto|1|true|enabled",
           "attention is always fused; only on and auto are accepted"},
          {"-dt,--defrag-thold", "LLAMA_ARG_DEFRAG_THOLD", "*", "pages need no defragmentation"},
          {"--rpc", "LLAMA_ARG_RPC", "", kCluster},
          {"-lm,--load-mode", "LLAMA_ARG_LOAD_MODE", "auto|mmap", kMemory},
          {"-lzm,--lazy-mode", "LLAMA_ARG_LAZY_MODE", "none|off|auto", kMemory},
          {"--numa", "LLAMA_ARG_NUMA", "", "use numactl for placement"},
          {"-dev,--device", "LLAMA_ARG_DEVICE", "", kDevice},
          {"-ot,--override-tensor", "LLAMA_ARG_OVERRIDE_TENSOR", "", kDevice},
          {"-ncmoe,--n-cpu-moe", "LLAMA_ARG_N_CPU_MOE", "0", kDevice},
          {"-ncffn,--n-cpu-ffn", "LLAMA_ARG_N_CPU_FFN", "0", kDevice},
          {"-ngl,--gpu-layers,--n-gpu-layers", "LLAMA_ARG_N_GPU_LAYERS", "all|auto|-1|99|999",
           "a model is wholly on its device: all, auto, -1, 99 and 999 are accepted"},
          {"-sm,--split-mode", "LLAMA_ARG_SPLIT_MODE", "none", kCluster},
          {"-ts,--tensor-split", "LLAMA_ARG_TENSOR_SPLIT", "", kCluster},
          {"-mg,--main-gpu", "LLAMA_ARG_MAIN_GPU", "0", kDevice},
          {"-fit,--fit", "LLAMA_ARG_FIT", "off",
           "nothing is changed to make a model fit; see mlxcel inspect for its size"},
          {"-fitt,--fit-target", "LLAMA_ARG_FIT_TARGET", "", "nothing is changed to make a model fit"},
          {"-fitc,--fit-ctx", "LLAMA_ARG_FIT_CTX", "", "nothing is changed to make a model fit"},
          {"--override-kv", "", "", "metadata of a checkpoint is taken as it is"},
          {"--control-vector", "", "", "control vectors are not supported"},
          {"--control-vector-scaled", "", "", "control vectors are not supported"},
          {"--control-vector-layer-range", "", "*", "control vectors are not supported"},
          {"--decode-storage-backend", "MLXCEL_SERVER_DECODE_STORAGE", "auto|dense|paged",
           "expected auto, dense or paged"},
          {"--vision-cache-size", "", "*", kMedia},
          {"--kv-unified-per-slot", "LLAMA_ARG_KV_UNIFIED_PER_SLOT", "0",
           "the window of a slot is --ctx-size divided by --parallel"},
          {"--log-prompts-dir", "", "", "prompts are not written to files; see --verbosity 5"},
          {"--debug-pp-trace", "", "", kCluster},
          {"-mu,--model-url", "LLAMA_ARG_MODEL_URL", "",
           "models are not fetched from addresses; use -hf, or mlxcel download"},
          {"-dr,--docker-repo", "LLAMA_ARG_DOCKER_REPO", "",
           "container registries are not a source of models; use -hf, or mlxcel download"},
      });
  add(f, Kind::toggle,
      {
          {"--swa-full", "LLAMA_ARG_SWA_FULL", "false", "windowed layers keep their window only"},
          {"--perf,!--no-perf", "LLAMA_ARG_PERF", "false", "see --metrics and the timings of answers"},
          {"-kvo,--kv-offload,!-nkvo,!--no-kv-offload", "LLAMA_ARG_KV_OFFLOAD", "true", kDevice},
          {"--repack,!-nr,!--no-repack", "LLAMA_ARG_REPACK", "true|false", ""},
          {"--no-host", "LLAMA_ARG_NO_HOST", "false", kDevice},
          {"--mlock", "LLAMA_ARG_MLOCK", "false", kMemory},
          {"--mmap,!--no-mmap", "LLAMA_ARG_MMAP", "true", kMemory},
          {"--direct-io,!--no-direct-io", "LLAMA_ARG_DIO", "false", kMemory},
          {"--list-devices", "", "false", "see mlxcel doctor and the start-up lines"},
          {"-cmoe,--cpu-moe", "LLAMA_ARG_CPU_MOE", "false", kDevice},
          {"--check-tensors", "", "false", "headers are always checked; see mlxcel inspect"},
          {"--op-offload,!--no-op-offload", "", "true", kDevice},
          {"-bs,--backend-sampling", "LLAMA_ARG_BACKEND_SAMPLING", "true|false", ""},
          {"--packed-cache", "", "false", "weights are repacked at every start"},
          {"--embedding,--embeddings", "LLAMA_ARG_EMBEDDINGS", "true|false", ""},
      });
}

void add_caches(std::vector<Flag>& f) {
  add(f, Kind::toggle,
      {
          {"--enable-vlm-prefix-cache,!--no-vlm-prefix-cache", "MLXCEL_ENABLE_VLM_PREFIX_CACHE", "true|false",
           ""},
      });
  add(f, Kind::value,
      {
          {"--apc-hash", "APC_HASH", "sha256", "only sha256"},
          {"--cache-reuse", "LLAMA_ARG_CACHE_REUSE", "0",
           "only whole prefixes are reused; shifted chunks are not"},
      });
  const char* pool = "prefixes live in one shared pool, not in slots";
  f.push_back({"-sps,--slot-prompt-similarity", "", "", Kind::value, "V", pool, noted(pool)});
  f.push_back({"-ctxcp,--ctx-checkpoints,--swa-checkpoints", "LLAMA_ARG_CTX_CHECKPOINTS", "", Kind::value,
               "V", pool, noted(pool)});
  f.push_back({"-cms,--checkpoint-min-step", "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT", "", Kind::value, "V",
               pool, noted(pool)});
  f.push_back({"--cache-idle-slots,!--no-cache-idle-slots", "LLAMA_ARG_CACHE_IDLE_SLOTS", "", Kind::toggle,
               "", pool, noted(pool)});
  f.push_back({"-kvu,--kv-unified,!-no-kvu,!--no-kv-unified", "LLAMA_ARG_KV_UNIFIED", "", Kind::toggle, "",
               pool, inert({"true"}, pool)});
}

void add_drafting(std::vector<Flag>& f) {
  add(f, Kind::value,
      {
          {"--draft-min,--draft-n-min,--spec-draft-n-min", "LLAMA_ARG_SPEC_DRAFT_N_MIN,LLAMA_ARG_DRAFT_MIN",
           "0", kDraft},
          {"--spec-draft-threads,-td,--threads-draft", "", "", kDraft},
          {"--spec-draft-threads-batch,-tbd,--threads-batch-draft", "", "", kDraft},
          {"--spec-draft-cpu-mask,-Cd,--cpu-mask-draft", "", "", kDraft},
          {"--spec-draft-cpu-range,-Crd,--cpu-range-draft", "", "", kDraft},
          {"--spec-draft-cpu-strict,--cpu-strict-draft", "", "0", kDraft},
          {"--spec-draft-prio,--prio-draft", "", "0", kDraft},
          {"--spec-draft-poll,--poll-draft", "", "50", kDraft},
          {"--spec-draft-cpu-mask-batch,-Cbd,--cpu-mask-batch-draft", "", "", kDraft},
          {"--spec-draft-cpu-strict-batch,--cpu-strict-batch-draft", "", "0", kDraft},
          {"--spec-draft-prio-batch,--prio-batch-draft", "", "0", kDraft},
          {"--spec-draft-poll-batch,--poll-batch-draft", "", "50", kDraft},
          {"--spec-draft-override-tensor,-otd,--override-tensor-draft", "", "", kDraft},
          {"--spec-draft-n-cpu-moe,--spec-draft-ncmoe,-ncmoed,--n-cpu-moe-draft",
           "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE", "0", kDraft},
          {"--spec-synth-len", "LLAMA_ARG_SPEC_SYNTH_LEN", "", kDraft},
          {"--spec-synth-rates", "LLAMA_ARG_SPEC_SYNTH_RATES", "", kDraft},
          {"--spec-draft-p-split,--draft-p-split", "LLAMA_ARG_SPEC_DRAFT_P_SPLIT", "0.1", kDraft},
          {"--spec-draft-device,-devd,--device-draft", "", "", kDraft},
          {"--spec-draft-ngl,-ngld,--gpu-layers-draft,--n-gpu-layers-draft", "LLAMA_ARG_N_GPU_LAYERS_DRAFT",
           "all|auto|-1|99|999", kDraft},
          {"--spec-draft-type-k,-ctkd,--cache-type-k-draft", "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", "f16",
           kDraft},
          {"--spec-draft-type-v,-ctvd,--cache-type-v-draft", "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", "f16",
           kDraft},
          {"-lcs,--lookup-cache-static", "", "", kDraft},
          {"-lcd,--lookup-cache-dynamic", "", "", kDraft},
          {"--spec-ngram-mod-n-min", "", "48", kDraft},
          {"--spec-ngram-mod-n-max", "", "64", kDraft},
          {"--spec-ngram-mod-n-match", "", "24", kDraft},
          {"--spec-ngram-simple-size-n", "", "12", kDraft},
          {"--spec-ngram-simple-size-m", "", "48", kDraft},
          {"--spec-ngram-simple-min-hits", "", "1", kDraft},
          {"--spec-ngram-map-k-size-n", "", "12", kDraft},
          {"--spec-ngram-map-k-size-m", "", "48", kDraft},
          {"--spec-ngram-map-k-min-hits", "", "1", kDraft},
          {"--spec-ngram-map-k4v-size-n", "", "12", kDraft},
          {"--spec-ngram-map-k4v-size-m", "", "48", kDraft},
          {"--spec-ngram-map-k4v-min-hits", "", "1", kDraft},
          {"--spec-ngram-size-n", "", "", kDraft},
          {"--spec-ngram-size-m", "", "", kDraft},
          {"--spec-ngram-min-hits", "", "", kDraft},
      });
  add(f, Kind::toggle,
      {
          {"--spec-draft-cpu-moe,-cmoed,--cpu-moe-draft", "LLAMA_ARG_SPEC_DRAFT_CPU_MOE", "false", kDraft},
          {"--spec-draft-backend-sampling,!--no-spec-draft-backend-sampling",
           "LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING", "true|false", ""},
          {"--spec-default", "", "false", kDraft},
      });
}

void add_side_models(std::vector<Flag>& f) {
  const char* side = "texts of one request are evaluated together, as many as fit into a step";
  add(f, Kind::value,
      {
          {"--embedding-batch-size", "MLXCEL_EMBEDDING_BATCH_SIZE", "16", side},
          {"--rerank-batch-size", "MLXCEL_RERANK_BATCH_SIZE", "0", side},
          {"--audio-queue-depth", "MLXCEL_AUDIO_QUEUE_DEPTH", "8", kMedia},
          {"--audio-request-timeout-secs", "MLXCEL_AUDIO_REQUEST_TIMEOUT_SECS", "120", kMedia},
          {"--realtime-sessions", "MLXCEL_REALTIME_SESSIONS", "1", kMedia},
          {"--media-path", "", "", kMedia},
          {"--max-images", "MLXCEL_MAX_IMAGES", "*", kMedia},
          {"--max-image-payload-size", "MLXCEL_MAX_IMAGE_PAYLOAD_SIZE", "*", kMedia},
          {"--image-min-tokens", "LLAMA_ARG_IMAGE_MIN_TOKENS", "", kMedia},
          {"--image-max-tokens", "LLAMA_ARG_IMAGE_MAX_TOKENS", "", kMedia},
          {"--video-max-frames", "MLXCEL_VIDEO_MAX_FRAMES", "16", kMedia},
          {"--video-fps", "MLXCEL_VIDEO_FPS,LLAMA_ARG_VIDEO_FPS", "2|2.0|4", kMedia},
          {"--video-timestamp-interval", "LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL", "", kMedia},
          {"--video-ffmpeg-dir", "LLAMA_ARG_VIDEO_FFMPEG_DIR", "", kMedia},
          {"-mm,--mmproj", "LLAMA_ARG_MMPROJ", "", kMedia},
          {"-mmu,--mmproj-url", "LLAMA_ARG_MMPROJ_URL", "", kMedia},
          {"-mmdev,--mmproj-device", "MTMD_BACKEND_DEVICE", "", kMedia},
          {"--mtmd-batch-max-tokens", "LLAMA_ARG_MTMD_BATCH_MAX_TOKENS", "1024", kMedia},
          {"--tp-size", "", "1", kCluster},
          {"--tp-moe-mode", "", "tensor", kCluster},
          {"--tp-embedding-mode", "", "replicated", kCluster},
          {"--tp-lm-head-mode", "", "replicated", kCluster},
          {"--pp-size", "", "1", kCluster},
          {"--pp-layers", "", "", kCluster},
          {"--pp-micro-batch-size", "", "", kCluster},
          {"--pp-auto", "", "", kCluster},
          {"--distributed-config", "", "", kCluster},
          {"--node-id", "", "", kCluster},
          {"--distributed-backend", "MLXCEL_DISTRIBUTED_BACKEND", "auto", kCluster},
          {"--cluster-peers", "", "", kCluster},
          {"--cluster-discovery", "", "none", kCluster},
          {"--cluster-secret-file", "", "", kCluster},
          {"--node-role", "", "hybrid", kCluster},
          {"--serving-bind", "", "", kCluster},
          {"--prefill-peers", "", "", kCluster},
          {"--decode-peers", "", "", kCluster},
          {"--elastic-pp-drain-timeout", "", "30", kCluster},
          {"--elastic-pp-pressure-fraction", "", "0.9", kCluster},
          {"--elastic-pp-cool-down", "", "60", kCluster},
          {"--tools", "LLAMA_ARG_TOOLS", "", "this server runs no tools"},
          {"--tools-runtime", "LLAMA_ARG_TOOLS_RUNTIME", "", "this server runs no tools"},
          {"--path", "LLAMA_ARG_STATIC_PATH", "", "no files are served"},
          {"--ui-config,--webui-config", "LLAMA_ARG_UI_CONFIG", "", kUi},
          {"--ui-config-file,--webui-config-file", "LLAMA_ARG_UI_CONFIG_FILE", "", kUi},
          {"--mcp-servers-config", "LLAMA_ARG_MCP_SERVERS_CONFIG", "", "this server runs no tools"},
          {"--mcp-servers-json", "LLAMA_ARG_MCP_SERVERS_JSON", "", "this server runs no tools"},
      });
  add(f, Kind::toggle,
      {
          {"--mmproj-auto,!--no-mmproj,!--no-mmproj-auto", "LLAMA_ARG_MMPROJ_AUTO", "true|false", ""},
          {"--mmproj-offload,!--no-mmproj-offload", "LLAMA_ARG_MMPROJ_OFFLOAD", "true", kMedia},
          {"--enable-elastic-pp", "", "false", kCluster},
          {"--ui,--webui,!--no-ui,!--no-webui", "LLAMA_ARG_UI", "false", kUi},
          {"-ag,--agent,!-no-ag,!--no-agent", "LLAMA_ARG_AGENT", "false", "this server runs no tools"},
          {"--ui-mcp-proxy,--webui-mcp-proxy,!--no-ui-mcp-proxy,!--no-webui-mcp-proxy",
           "LLAMA_ARG_UI_MCP_PROXY", "false", "this server runs no tools"},
          {"--embd-gemma-default", "", "false", kPreset},
          {"--fim-qwen-1.5b-default", "", "false", kPreset},
          {"--fim-qwen-3b-default", "", "false", kPreset},
          {"--fim-qwen-7b-default", "", "false", kPreset},
          {"--fim-qwen-7b-spec", "", "false", kPreset},
          {"--fim-qwen-14b-spec", "", "false", kPreset},
          {"--fim-qwen-30b-default", "", "false", kPreset},
          {"--gpt-oss-20b-default", "", "false", kPreset},
          {"--gpt-oss-120b-default", "", "false", kPreset},
          {"--vision-gemma-4b-default", "", "false", kPreset},
          {"--vision-gemma-12b-default", "", "false", kPreset},
      });
}

}  // namespace

void add_foreign_flags(std::vector<Flag>& flags) {
  add_runtime(flags);
  add_caches(flags);
  add_drafting(flags);
  add_side_models(flags);
}

const std::vector<Flag>& offline_flags() {
  static const std::vector<Flag> all = [] {
    std::vector<Flag> out;
    add(out, Kind::value,
        {
            {"--image-soft-tokens", "", "", kMedia},
            {"--fps", "", "", kMedia},
            {"--layout-detections", "", "", kMedia},
            {"--output-audio", "", "", kSound},
            {"--extra-decoding-seconds", "", "", kSound},
            {"--max-streaming-seconds", "", "", kSound},
            {"--language", "", "", kSound},
            {"--format", "", "", kSound},
        });
    add(out, Kind::toggle, {{"--stream", "", "false", kSound}, {"--translate", "", "false", kSound}});
    return out;
  }();
  return all;
}

}  // namespace mlxcel::app
