#include "app/recommend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/estimate.h"
#include "app/terminal.h"
#include "base/memory.h"

namespace mlxcel::app {
namespace {

struct Form {
  const char* name;
  double bits;  // a weight, scales included
};
constexpr std::array<Form, 4> kForms = {{{"16-bit", 16},
                                         {"8-bit (quantize --bits 8)", 8.5},
                                         {"6-bit (--bits 6)", 6.5},
                                         {"4-bit (--bits 4)", 4.5}}};

bool power_of_two(int n) { return n > 0 && (n & (n - 1)) == 0; }

std::string kv_advice(const ModelPlan& plan, int tokens) {
  if (plan.layout.kv().empty()) return "fp16 (the state is recurrent; there is nothing to compress)";
  bool latent = false, powers = true;
  for (const KvSpec& spec : plan.layout.kv()) {
    latent |= spec.latent > 0;
    powers &= power_of_two(spec.key_dim);
  }
  if (tokens <= 4096) return fmt::format("fp16 ({} tokens are few)", tokens);
  if (latent) return "int8 (latent attention)";
  if (tokens <= 32768) return fmt::format("int8 ({} tokens)", tokens);
  if (!powers) return "int8 (the head dimension is no power of two)";
  return fmt::format("turbo4-delegated ({} tokens)", tokens);
}

}  // namespace

std::string recommendation(const std::filesystem::path& model, int tokens) {
  const Checkpoint checkpoint = open_checkpoint(model);
  ModelPlan plan = plan_model(checkpoint.config, checkpoint.source);
  if (tokens <= 0) tokens = plan.info.max_positions > 0 ? plan.info.max_positions : 4096;
  const auto budget = available_memory();
  std::string text = fmt::format(
      "model        {} ({}, {:.1f} M parameters)\nstored as    {}, {}\navailable    {}\n",
      model.filename().string(), plan.info.family, static_cast<double>(plan.info.parameters) / 1e6,
      plan.info.weights_label, human_bytes(plan.info.weight_bytes), human_bytes(budget));
  const char* best = nullptr;
  for (const Form& form : kForms) {
    plan.info.weight_bytes = static_cast<size_t>(static_cast<double>(plan.info.parameters) * form.bits / 8);
    const Estimate e =
        estimate_memory(plan, checkpoint.config, "fp16", static_cast<std::uintmax_t>(tokens), 1, 2048);
    text += fmt::format("  {:<28} {:>10} in all  {}\n", form.name, human_bytes(e.total),
                        e.fits ? "fits" : "does not fit");
    if (e.fits && !best) best = form.name;
  }
  text += fmt::format("weights      {}\nKV mode      {}\n",
                      best ? best : "none of these fits: lower --ctx-size, or take a smaller model",
                      kv_advice(plan, tokens));
  return text;
}

}  // namespace mlxcel::app
