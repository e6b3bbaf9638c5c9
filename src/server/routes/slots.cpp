// GET /slots and POST /slots/{id}: what runs, and what a slot held, written to a file, read back, forgotten.
#include <algorithm>
#include <filesystem>

#include "api/json_node.h"
#include "api/llama/completion.h"
#include "server/query.h"
#include "server/router.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

/// A name of one file in one folder, on any system: no separators, no spelling of a parent, nothing that a
/// shell or another file system reads as more than a name.
bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name.find("..") != std::string_view::npos) return false;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || std::string_view("/\\:*?\"<>|%").find(c) != std::string_view::npos)
      return false;
  }
  return name.front() != ' ' && name.back() != ' ' && name.front() != '.' && name.back() != '.';
}

fs::path file_of(const Service& service, const JsonNode& body) {
  const auto name = body.string("filename");
  if (!name) fail_param("filename", "filename: expected a string");
  if (!is_plain_file_name(*name))
    fail_param("filename", "filename: expected a plain file name, found \"{}\"", name->substr(0, 80));
  return fs::path(service.options().slot_save_path) / *name;
}

int slot_of(const Service& service, const std::string& path) {
  const std::string text = path.substr(path.rfind('/') + 1);
  const bool number = !text.empty() && text.size() < 6 &&
                      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!number || std::stoi(text) >= service.options().parallel)
    fail_param("id_slot", "Invalid slot ID: expected 0 to {}, found {}", service.options().parallel - 1,
               text.substr(0, 32));
  return std::stoi(text);
}

/// What went wrong, without the folder's name.
ApiError without_folder(ApiError error, const std::string& folder) {
  for (size_t at = 0; !folder.empty() && (at = error.message.find(folder, at)) != std::string::npos;) {
    const size_t slash = at + folder.size();
    error.message.erase(at, folder.size() + (error.message.substr(slash, 1) == "/" ? 1 : 0));
  }
  return error;
}

enum class Action { save, restore, erase };

std::string act(Engine& engine, Action action, int slot, const fs::path& file) {
  JsonWriter out;
  out.begin_object().field("id_slot", slot);
  if (action == Action::erase) {
    out.field("n_erased", engine.erase_slot(slot)).end_object();
    return out.take();
  }
  const bool save = action == Action::save;
  if (!save && !fs::is_regular_file(fs::symlink_status(file)))
    fail_param("filename", "filename: no slot was saved as \"{}\"", file.filename().string());
  const SlotFile done = save ? engine.save_slot(slot, file) : engine.restore_slot(slot, file);
  out.field("filename", file.filename().string()).field(save ? "n_saved" : "n_restored", done.tokens);
  out.field(save ? "n_written" : "n_read", static_cast<int64_t>(done.bytes)).key("timings").begin_object();
  out.field(save ? "save_ms" : "restore_ms", done.ms).end_object().end_object();
  return out.take();
}

void change_slot(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  const HttpRequest& request = exchange->request();
  if (service.options().slot_save_path.empty())
    refuse(501, "not_supported_error",
           "slots are neither saved nor restored; start the server with --slot-save-path");
  const std::string word = query_parameter(request, "action").value_or("");
  if (word != "save" && word != "restore" && word != "erase")
    fail_param("action", "action: expected save, restore or erase, found \"{}\"", word.substr(0, 32));
  auto engine = service.generator();
  const int slot = slot_of(service, request.path);
  const Action action = word == "save" ? Action::save : word == "erase" ? Action::erase : Action::restore;
  fs::path file;
  if (action != Action::erase) file = file_of(service, JsonNode::parse_request(request.body));
  auto work = [&router, exchange, engine = std::move(engine), action, slot, file]() mutable {
    HttpResponse out;
    try {
      out.body = act(*engine, action, slot, file);
    } catch (...) {
      ApiError error = without_folder(router.error_in_flight(), router.service().options().slot_save_path);
      if (error.status == 503) error.message = fmt::format("slot {} is busy", slot);
      out = router.error_response(error, exchange->request());
    }
    engine.reset();
    exchange->post([exchange, out = std::move(out)]() mutable { exchange->respond(std::move(out)); });
  };
  if (!exchange->run_blocking(std::move(work))) refuse(503, "server_busy", "All slots are busy");
}

void print_slot(JsonWriter& out, int id, const SlotState& slot, int64_t window, const Engine* engine) {
  out.begin_object().field("id", id).field("id_task", slot.busy ? static_cast<int64_t>(slot.task) : -1);
  out.field("n_ctx", window).field("speculative", engine && !engine->draft_kind().empty());
  out.field("is_processing", slot.busy);
  if (slot.busy) {
    const int processed = std::max(slot.processed_tokens - slot.cached_tokens, 0);
    out.field("n_prompt_tokens", slot.prompt_tokens).field("n_prompt_tokens_processed", processed);
    out.field("n_prompt_tokens_cache", slot.cached_tokens).key("params");
    llama::Settings settings;
    settings.sampling = slot.params;
    settings.seed = slot.params.seed.value_or(UINT32_MAX);
    settings.n_predict = slot.max_tokens;
    if (engine) settings.kv_mode = engine->kv_label();
    llama::print_settings(out, settings);
    out.key("next_token").begin_array().begin_object().field("has_next_token", true);
    out.field("n_decoded", slot.generated);
    out.field("n_remain", slot.max_tokens < 0 ? -1 : slot.max_tokens - slot.generated);
    out.end_object().end_array();
    if (!slot.prompt.empty()) out.field("prompt", slot.prompt);
  }
  out.end_object();
}

void show_slots(Service& service, const std::shared_ptr<Exchange>& exchange) {
  if (!service.options().slots)
    refuse(501, "not_supported_error", "slots are not shown; start the server without --no-slots");
  const auto engine = service.state() == Service::State::sleeping ? nullptr : service.engine_or_refuse();
  const auto window = service.entry().n_ctx;
  const auto all = service.slots().all();
  const bool full = std::all_of(all.begin(), all.end(), [](const auto& slot) { return slot.busy; });
  if (full && query_parameter(exchange->request(), "fail_on_no_slot") == "1")
    refuse(503, "server_busy", "no slot available");
  JsonWriter out;
  out.begin_array();
  for (size_t i = 0; i < all.size(); ++i) print_slot(out, static_cast<int>(i), all[i], window, engine.get());
  out.end_array();
  HttpResponse response;
  response.body = out.take();
  exchange->respond(std::move(response));
}

}  // namespace

void add_slot_routes(Router& router) {
  Service& service = router.service();
  router.add("GET", "/slots", [&service](const auto& exchange) { show_slots(service, exchange); });
  router.add("POST", "/slots/{id}", [&router](const auto& exchange) { change_slot(router, exchange); });
}

}  // namespace mlxcel
