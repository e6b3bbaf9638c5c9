#include "app/environment.h"

#include <fmt/format.h>
#include <mlx/memory.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "app/options.h"
#include "base/memory.h"
#include "kernels/matrix.h"
#include "models/packed_cache.h"

namespace mlxcel::app {
namespace {

/// Variables that some build of mlxcel follows and this one does not, names apart by blanks.
struct Unfollowed {
  const char* why;
  std::string_view names;
};

constexpr std::array kUnfollowed = std::to_array<Unfollowed>({
    {"this backend has no use for it",
     "MLXCEL_WIRED_LIMIT MLXCEL_DECODE_MB_PER_BUFFER MLXCEL_METAL4_ATTENTION MLXCEL_METAL_CAPTURE_PATH "
     "MLXCEL_PREFILL_DEQUANT_MIN_M "
     "MLXCEL_GATHER_QMM_GROUPED MLXCEL_GATHER_QMM_GROUPED_MIN_ROWS MLXCEL_QMV_MULTIROW "
     "MLXCEL_QMV_MULTIROW_MAX_ROWS MLXCEL_QMV_ROWS_PER_WARP MLXCEL_QMV_MIN_BLOCKS MLXCEL_QMM_TILE_M "
     "MLXCEL_QMM_NAIVE_TILE_N MLXCEL_TRACE_QMM_TILE MLXCEL_SDPA_DETERMINISTIC "
     "MLXCEL_SDPA_FALLBACK_MAX_QUERIES MLXCEL_SDPA_PLAN_BUCKET_MAX_QUERIES "
     "MLXCEL_SDPA_PLAN_BUCKET_MAX_MB MLXCEL_SDPA_PLAN_DEBUG MLXCEL_SDPA_VECTOR_LARGE_D "
     "MLXCEL_CUDA_F16_NORMALIZE MLXCEL_CUDA_F16_FRAGILE MLXCEL_SSM_CUDA_KERNEL "
     "MLXCEL_PAGED_DECODE_V2_CHUNK MLXCEL_PAGED_DECODE_V2_TARGET_CTAS MLXCEL_PAGED_DECODE_SPLITS "
     "MLXCEL_AUTOTUNE"},
    {"this build reads no images, sound or video",
     "MLXCEL_ALLOW_PRIVATE_MEDIA_URLS MLXCEL_IMAGE_MAX_PIXELS MLXCEL_VIDEO_DIR_ALLOWLIST "
     "MLXCEL_VIDEO_MAX_PIXELS MLXCEL_VIDEO_MAX_DURATION_SEC MLXCEL_VIDEO_MAX_FRAME_BYTES "
     "MLXCEL_VIDEO_MAX_PNG_FRAME_BYTES MLXCEL_DECODE_MAX_SECONDS"},
    {"this build runs on one device of one host",
     "MLXCEL_CLUSTER_SECRET MLXCEL_DECODE_ALLOWLIST MLXCEL_ROUTER_STATS_VERBOSE"},
    {"this build has no such path; results are the same",
     "MLXCEL_FORCE_SYNC MLXCEL_SAMPLING_GUMBEL MLXCEL_SAMPLING_REJECTION MLXCEL_FUSED_MOE "
     "MLXCEL_FUSED_MOE_SGY MLXCEL_FUSED_MOE_MAX_DFF MLXCEL_FUSED_MOE_RELU2 MLXCEL_FUSED_MOE_PARITY_CHECK "
     "MLXCEL_FUSED_MOE_PARITY_THRESHOLD MLXCEL_SSM_KERNEL MLXCEL_MAMBA1_SCAN_KERNEL MLXCEL_FUSED_QK_NORM "
     "MLXCEL_FUSED_ADD_RMSNORM MLXCEL_FUSED_ROPE_APPEND MLXCEL_FUSED_ADD_NORM MLXCEL_FUSED_XIELU "
     "MLXCEL_COMPILED_QGELU_MLP MLXCEL_NO_PADDED_PREFILL MLXCEL_FORCE_PADDED_PREFILL "
     "MLXCEL_FORCE_PADDED_PREFILL_MASK MLXCEL_KEEP_BF16 MLXCEL_NVFP4_DENSE_REPACK "
     "MLXCEL_NVFP4_NATIVE_REPACK MLXCEL_DISABLE_FUSED_GLOBAL_SCALE MLXCEL_ONE_BIT_KERNEL "
     "MLXCEL_BAILING_LINEAR_CHUNKED_PREFILL MLXCEL_ENABLE_SOFTCAP_GQA_DECODE_GROUPED MLXCEL_V4_FLAT_INDEX "
     "MLXCEL_V4_DENSE MLXCEL_DISABLE_SINGLE_QUERY_MASKLESS MLXCEL_EXPERIMENTAL_BOOL_CAUSAL_MASK "
     "MLXCEL_GEMMA4_ENABLE_FUSED_QKV MLXCEL_ENABLE_FUSED_CAUSAL_PREFILL_ATTENTION "
     "MLXCEL_ENABLE_FUSED_QKV_SPLIT_ROPE MLXCEL_DISABLE_COMPILED_SWITCH_QGEGLU MLXCEL_LOG_NA_ATTENTION "
     "MLXCEL_PIPELINE_GRANULARITY MLXCEL_BENCH_LLC_BYTES MLXCEL_BENCH_PHASE_MARKS MLXCEL_MIXED_STEP "
     "MLXCEL_SPARSE_V_THRESHOLD MLXCEL_SPARSE_V_KERNEL MLXCEL_SPARSE_V_COUNT MLXCEL_TURBO4_DEQUANT_SDPA "
     "MLXCEL_TURBO4_ASYM_DEQUANT_SDPA MLXCEL_TURBO4_DELEGATED_DEQUANT_SDPA MLXCEL_TURBO4_DELEGATED_FUSED "
     "MLXCEL_TURBO4_DELEGATED_FP16_FAST_PATH MLXCEL_TURBO4_DELEGATED_FP16_SIDECARS "
     "MLXCEL_ENABLE_DIRECT_PREFILL_CACHE_STORE MLXCEL_KV_INPLACE_WRITE MLXCEL_DIAG_SKIP_DECODE_KV_WRITE "
     "MLXCEL_MLA_ABSORBED MLXCEL_MLA_SPLIT_KV MLXCEL_CASCADE_ATTENTION MLXCEL_CASCADE_MIN_SHARED_PAGES "
     "MLXCEL_CASCADE_MIN_MEMBERS MLXCEL_PAGED_SLAB_BLOCKS MLXCEL_PAGED_V2_MIN_KV_TOKENS "
     "MLXCEL_PAGED_V2_MIN_KV_TOKENS_PER_REQUEST MLXCEL_PAGED_ATTENTION_NATIVE MLXCEL_PAGED_ATTENTION_V2 "
     "MLXCEL_SPARSE_PAGED_ATTENTION MLXCEL_SPARSE_PAGED_MIN_SPARSITY MLXCEL_SPARSE_PAGED_DUMP "
     "MLXCEL_ATTENTION_CHUNK_BUDGET_MB MLXCEL_CACHE_CLEAR_INTERVAL MLXCEL_QMV_WIDE MLXCEL_GDN_CHAIN_PARITY"},
    {"this build has no switch for it", "MLXCEL_DISABLE_CACHE_WARMUP"},
    {"this build drafts without that choice",
     "MLXCEL_ENABLE_MTP_B1 MLXCEL_ENABLE_MTP_BATCH MLXCEL_ENABLE_MTP_BATCH_RAGGED "
     "MLXCEL_MTP_BLOCK_CONTROLLER MLXCEL_MTP_TICK_SLICE "
     "MLXCEL_MTP_SLICE_GRANT_ROUNDS MLXCEL_MTP_TREE MLXCEL_MTP_QUANTIZE_DRAFTER "
     "MLXCEL_MTP_PROBE_PROMPT_LEN MLXCEL_GLM_MTP_HIDDEN_TAP "
     "MLXCEL_SPECULATIVE_ACCEPT_DIAG MLXCEL_MTP_DRAFT_PROFILE"},
    {"this build makes no such report; see --profile and `mlxcel bench`",
     "MLXCEL_PROFILE_BLOCKS MLXCEL_PROFILE_FORWARD MLXCEL_PROFILE_NEMOTRON_MOE "
     "MLXCEL_PROFILE_QWEN3_MOE_DETAIL MLXCEL_PROFILE_MOE_INNER MLXCEL_PROFILE_PER_LAYER "
     "MLXCEL_PROFILE_LAYER_BUILD MLXCEL_PROFILE_LAYER_SUBOPS "
     "MLXCEL_DEBUG_GEMMA4_LOAD MLXCEL_DIFFUSION_DEBUG_CANVAS MLXCEL_NO_PRECISION_WARNING"},
});

const char* value_of(const char* name) {
  const char* text = std::getenv(name);
  return text && *text ? text : nullptr;
}

void add_device_note(std::vector<std::string>& notes) {
  const char* text = value_of("MLXCEL_DEVICE");
  const std::string_view wanted = text ? text : "";
  const std::string_view backend = MLXCEL_BACKEND_NAME;
  if (wanted.empty() || wanted == "cpu" || wanted == backend) return;
  if (wanted == "gpu") {
    if (backend == "cpu")
      notes.emplace_back("MLXCEL_DEVICE=gpu: this build has no GPU backend; the CPU is used");
  } else if (wanted == "metal" || wanted == "cuda") {
    notes.push_back(
        fmt::format("MLXCEL_DEVICE={}: this build has the {} backend only; that is used", wanted, backend));
  } else {
    notes.push_back(fmt::format("MLXCEL_DEVICE={}: expected gpu, metal, cuda or cpu; the {} backend is used",
                                wanted, backend));
  }
}

}  // namespace

bool variable_is_on(const char* name) {
  const char* text = value_of(name);
  if (!text) return false;
  std::string word(text);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word != "0" && word != "false" && word != "off" && word != "no";
}

void check_environment() {
  try {
    kernels::isa_name();
    kernel_mode();
    available_memory();
    PackedCacheOptions::from_environment();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  const char* text = value_of("MLXCEL_CACHE_LIMIT");
  if (!text) return;
  const auto bytes = parse_limit(text);
  if (!bytes)
    throw UsageError(fmt::format("MLXCEL_CACHE_LIMIT={}: expected bytes such as 512M, or none", text));
  if (*bytes > 0) mx::set_cache_limit(*bytes);
}

std::vector<std::string> environment_notes() {
  std::vector<std::string> notes;
  add_device_note(notes);
  for (const auto& [why, names] : kUnfollowed)
    for (size_t begin = 0; begin < names.size();) {
      const size_t end = std::min(names.find(' ', begin), names.size());
      const std::string name(names.substr(begin, end - begin));
      if (value_of(name.c_str())) notes.push_back(fmt::format("{} is set without effect: {}", name, why));
      begin = end + 1;
    }
  return notes;
}

}  // namespace mlxcel::app
