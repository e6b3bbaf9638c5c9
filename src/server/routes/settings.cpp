// GET and PATCH /v1/settings, with --settings.
#include "server/settings.h"

#include "api/json_writer.h"
#include "server/router.h"

namespace mlxcel {
namespace {

std::vector<Settings::Fixed> fixed(const Service& service) {
  const ServiceOptions& options = service.options();
  auto text = [](const std::string& value) { return JsonWriter().value(value).take(); };
  const char* engine = "the engine was started with it";
  std::vector<Settings::Fixed> out = {{"model", text(options.model_id), engine},
                                      {"parallel", std::to_string(options.parallel), engine}};
  if (const auto loaded = service.engine()) {
    out.push_back({"ctx_size", std::to_string(loaded->context()), engine});
    out.push_back({"kv_cache_mode", text(loaded->kv_label()), engine});
    if (loaded->info().diffusion.block == 0)
      for (const char* key :
           {"max_denoising_steps", "diffusion_threshold", "diffusion_sampler", "diffusion_min_canvas_length",
            "diffusion_max_canvas_length", "diffusion_full_canvas"})
        out.push_back({key, "null", "this model writes one token after another"});
  }
  return out;
}

void check_enabled(const Service& service) {
  if (!service.options().settings)
    refuse(501, "not_supported_error", "settings are off; start the server with --settings");
}

}  // namespace

void add_setting_routes(Router& router) {
  Service& service = router.service();
  for (const char* path : {"/v1/settings", "/settings"}) {
    router.add("GET", path, [&service](const auto& exchange) {
      check_enabled(service);
      HttpResponse out;
      out.body = service.settings().print(fixed(service));
      exchange->respond(std::move(out));
    });
    router.add("PATCH", path, [&service](const auto& exchange) {
      check_enabled(service);
      auto outcome = service.settings().patch(exchange->request().body, fixed(service));
      if (outcome.status == 200) service.tune_engines();
      HttpResponse out;
      out.status = outcome.status;
      out.body = std::move(outcome.json);
      exchange->respond(std::move(out));
    });
  }
}

}  // namespace mlxcel
