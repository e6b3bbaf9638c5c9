#include "server/model_pool.h"

#include <algorithm>
#include <set>
#include <utility>

#include "api/json_node.h"
#include "api/json_writer.h"
#include "api/ollama/ollama.h"
#include "api/sse.h"
#include "base/log.h"
#include "server/query.h"
#include "server/stream_log.h"

namespace mlxcel {
namespace {

/// Routes that a router answers itself: lists, its own health, what is kept for every model.
bool is_front_route(const std::string& route) {
  static const std::set<std::string> kRoutes = {"/",
                                                "/health",
                                                "/v1/health",
                                                "/v1/models",
                                                "/v1/models/{model}",
                                                "/models",
                                                "/models/load",
                                                "/models/unload",
                                                "/models/sse",
                                                "/api/tags",
                                                "/api/ps",
                                                "/api/version",
                                                "/api/pull",
                                                "/api/delete",
                                                "/api/push",
                                                "/api/create",
                                                "/api/copy",
                                                "/tools",
                                                "/cors-proxy",
                                                "/v1/stream",
                                                "/v1/streams/lookup",
                                                "/v1/responses/{id}",
                                                "/responses/{id}",
                                                "/v1/responses/{id}/cancel",
                                                "/responses/{id}/cancel",
                                                "/v1/chat/completions/control",
                                                "/chat/completions/control",
                                                "/router/stats",
                                                "/api/blobs/{digest}",
                                                "/v1/internal/mtp-policy",
                                                "/v1/realtime"};
  return kRoutes.contains(route);
}

bool is_vocabulary_route(const std::string& route) { return route == "/tokenize" || route == "/detokenize"; }

/// What a sleeping model answers without waking.
bool is_sleepers_route(const std::string& route, const std::string& method) {
  static const std::set<std::string> kRoutes = {
      "/tokenize",
      "/detokenize",
      "/slots",
      "/v1/cache/stats",
  };
  return is_front_route(route) || route == "/metrics" || route == "/props" ||
         (kRoutes.contains(route) && method != "DELETE");
}

std::string wanted_model(const HttpRequest& request) {
  if (request.method == "POST") {
    const JsonNode body = JsonNode::parse_request(request.body);
    auto name = body.string("model");
    if (!name) name = body.string("name");  // Ollama's older spelling
    return name.value_or("");
  }
  return query_parameter(request, "model").value_or("");
}

}  // namespace

ModelPool::ModelPool(Service& front, PoolOptions options, Scan scan)
    : front_(front), options_(options), scan_(std::move(scan)) {
  rescan();
  front_.set_pool(this);
  thread_ = std::thread([this] { run(); });
}

ModelPool::~ModelPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  front_.set_pool(nullptr);
}

void ModelPool::rescan() {
  auto found = scan_();
  const std::lock_guard lock(mutex_);
  std::set<std::string> seen;
  for (auto& model : found) {
    const std::string id = model.options.model_id;
    if (!seen.insert(id).second) continue;
    auto& entry = entries_[id];
    if (entry) {
      if (entry->status != Status::unloaded) continue;
      retired_.push_back(entry);  // its flags may have changed
    }
    entry = std::make_shared<Entry>();
    entry->idle_seconds = model.idle_seconds;
    entry->service = std::make_unique<Service>(model.options, &front_);
    entry->router = std::make_unique<Router>(*entry->service);
    add_all_routes(*entry->router);
    entry->model = std::move(model);
    if (auto engine = std::exchange(entry->model.engine, nullptr)) {
      entry->service->ready(std::move(engine));
      entry->status = Status::loaded;
      entry->used = Clock::now();
    } else if (entry->model.load_on_startup) {
      entry->stays = true;
      enqueue(entry);
    }
  }
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const bool gone = !seen.contains(entry->first) && entry->second->status == Status::unloaded;
    if (gone) retired_.push_back(entry->second);
    entry = gone ? entries_.erase(entry) : std::next(entry);
  }
  changed_.notify_all();
}

ModelPool::EntryPtr ModelPool::find(const std::string& name) const {
  if (options_.single) return entries_.empty() ? nullptr : entries_.begin()->second;
  if (const auto exact = entries_.find(name); exact != entries_.end()) return exact->second;
  const std::string plain = ollama::plain_model_name(name);
  for (const auto& [id, entry] : entries_) {
    const auto& aliases = entry->model.options.aliases;
    if (id == plain || std::find(aliases.begin(), aliases.end(), name) != aliases.end()) return entry;
  }
  return nullptr;
}

ModelPool::EntryPtr ModelPool::require(const std::string& name) const {
  auto entry = find(name);
  if (!entry) refuse_param(404, "not_found_error", "model", "model \"{}\" not found", name.substr(0, 200));
  return entry;
}

ModelPool::View ModelPool::view(const Entry& entry) const {
  View out;
  out.id = entry.model.options.model_id;
  out.source = entry.model.source;
  out.path = entry.model.options.model_path;
  out.aliases = entry.model.options.aliases;
  out.tags = entry.model.options.tags;
  out.removable = entry.model.removable;
  out.hidden = entry.model.hidden;
  out.failed = !entry.error.empty();
  out.error = entry.error;
  out.service = entry.service.get();
  switch (entry.status) {
    case Status::queued:
    case Status::loading:
      out.status = "loading";
      break;
    case Status::loaded:
    case Status::unloading:
      out.status = "loaded";
      break;
    case Status::unloaded:
      out.status = entry.slept && options_.single ? "sleeping" : "unloaded";
      break;
  }
  return out;
}

std::vector<ModelPool::View> ModelPool::models() const {
  std::vector<View> out;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) out.push_back(view(*entry));
  return out;
}

ModelPool::View ModelPool::model(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return view(*require(name));
}

void ModelPool::enqueue(const EntryPtr& entry) {
  if (entry->status != Status::unloaded) return;
  entry->status = Status::queued;
  entry->error.clear();
  queue_.push_back(entry);
  announce(*entry);
  changed_.notify_all();
}

std::shared_ptr<void> ModelPool::lease(const EntryPtr& entry) {
  ++entry->active;
  entry->used = Clock::now();
  return std::shared_ptr<void>(entry.get(), [this, entry](void*) {
    {
      const std::lock_guard lock(mutex_);
      --entry->active;
      entry->used = Clock::now();
    }
    changed_.notify_all();
  });
}

bool ModelPool::dispatch(const Router& front, const std::shared_ptr<Exchange>& exchange) {
  HttpRequest& request = exchange->request();
  const std::string route = request.route.substr(front_.options().api_prefix.size());
  std::string name;
  if (!options_.single) {
    if (is_front_route(route)) return false;
    const VertexRoutes& vertex = front_.options().vertex;
    if (!vertex.predict.empty() && (route == vertex.predict || route == vertex.health)) return false;
    // /props and /metrics without a model speak of the router.
    name = wanted_model(request);
    if (name.empty() && request.method != "POST" && (route == "/props" || route == "/metrics")) return false;
    if (name.empty()) fail_param("model", "model name is missing from the request");
  }
  bool autoload = options_.autoload;
  if (const auto wish = query_parameter(request, "autoload")) autoload = *wish == "1" || *wish == "true";
  std::unique_lock lock(mutex_);
  front_router_ = &front;
  EntryPtr entry = find(name);
  if (!entry) {
    if (request.dialect == Dialect::ollama)
      refuse(404, "not_found_error", "model \"{}\" not found, try pulling it first", name.substr(0, 200));
    refuse_param(404, "not_found_error", "model", "model \"{}\" not found", name.substr(0, 200));
  }
  const Router* router = entry->router.get();
  const bool asleep = entry->status == Status::unloaded && entry->slept;
  // Looking at a model neither wakes it nor keeps it awake; where models leave for others, tokens of one are
  // a use of it.
  const bool looks = is_sleepers_route(route, request.method) &&
                     (options_.single || !is_vocabulary_route(route)) &&
                     (entry->status == Status::loaded || (asleep && options_.single));
  if (looks || (options_.single && is_front_route(route))) {
    lock.unlock();
    router->handle(exchange);
    return true;
  }
  if (entry->status == Status::loaded) {
    request.lease = lease(entry);
    lock.unlock();
    router->handle(exchange);
    return true;
  }
  if (!autoload && !options_.single && entry->status == Status::unloaded)
    refuse_param(400, "invalid_request_error", "model", "model \"{}\" is not loaded", name.substr(0, 200));
  const auto left = std::make_shared<bool>(false);
  entry->waiters.push_back({exchange, left, std::move(request.body)});
  if (entry->status == Status::unloading)
    entry->wanted = true;
  else
    enqueue(entry);
  lock.unlock();
  const std::string conversation = conversation_of(request);
  const std::weak_ptr weak(exchange);
  exchange->on_abort([this, entry, left, weak, stays = !conversation.empty()](const std::string& reason) {
    const auto waiting = weak.lock();
    if (reason == "shutdown")
      give_up(entry, left, waiting, {503, "unavailable_error", "the server is shutting down", std::nullopt});
    else if (!stays)
      give_up(entry, left, nullptr, {});
  });
  if (conversation.empty()) return true;
  // The stream is to be picked up again: it can be asked after, and ended, before it begins.
  front_.streams().park(conversation, request.key_label, [this, entry, left, weak] {
    const auto waiting = weak.lock();
    if (!waiting) return;
    waiting->post([this, entry, left, waiting] {
      give_up(entry, left, waiting, {400, "invalid_request_error", "cancelled by the client", std::nullopt});
    });
  });
  return true;
}

/// The waiter that `left` marks waits no longer; `waiting` is told why, where it has had no answer.
void ModelPool::give_up(const EntryPtr& entry, const std::shared_ptr<bool>& left,
                        const std::shared_ptr<Exchange>& waiting, const ApiError& error) {
  if (waiting && !waiting->answered())
    waiting->respond(front_router_->error_response(error, waiting->request()));
  const std::lock_guard guard(mutex_);
  *left = true;
  auto& waiters = entry->waiters;
  std::erase_if(waiters, [&](const Waiter& waiter) { return waiter.left == left; });
  // Nobody waits any more: the model that has the place keeps it.
  if (waiters.empty() && entry->status == Status::queued && !entry->stays) {
    std::erase(queue_, entry);
    entry->status = Status::unloaded;
  }
}

void ModelPool::load(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto entry = require(name);
  if (entry->status == Status::loaded || entry->status == Status::loading || entry->status == Status::queued)
    refuse_param(400, "invalid_request_error", "model", "model is already {}",
                 entry->status == Status::loaded ? "loaded" : "loading");
  entry->stays = true;
  if (entry->status == Status::unloading)
    entry->wanted = true;
  else
    enqueue(entry);
}

void ModelPool::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto entry = require(name);
  if (entry->status == Status::queued) {
    std::erase(queue_, entry);
    entry->status = Status::unloaded;
    wake_waiters(entry, std::make_exception_ptr(
                            Refusal({503, "unavailable_error", "the model was unloaded", std::nullopt})));
    return;
  }
  if (entry->status != Status::loaded && entry->status != Status::loading)
    refuse_param(400, "invalid_request_error", "model", "model is not loaded");
  entry->wanted = false;
  entry->drop = entry->status == Status::loading;
  if (entry->status == Status::loaded) entry->status = Status::unloading;
  changed_.notify_all();
}

void ModelPool::keep_alive(const std::string& name, double seconds) {
  const std::lock_guard lock(mutex_);
  require(name)->idle_seconds = seconds;
  changed_.notify_all();
}

bool ModelPool::forget(const std::string& name) {
  std::unique_lock lock(mutex_);
  const auto entry = find(name);
  if (!entry) return false;
  if (entry->status == Status::loaded) entry->status = Status::unloading;
  entry->drop = entry->status == Status::loading;
  entry->wanted = false;
  std::erase(queue_, entry);
  if (entry->status == Status::queued) entry->status = Status::unloaded;
  changed_.notify_all();
  changed_.wait(lock, [&] { return entry->status == Status::unloaded || stopping_; });
  retired_.push_back(entry);
  std::erase_if(entries_, [&](const auto& item) { return item.second == entry; });
  return true;
}

void ModelPool::wake_waiters(const EntryPtr& entry, std::exception_ptr failure) {
  auto waiters = std::move(entry->waiters);
  entry->waiters.clear();
  const auto begun = [this](const std::shared_ptr<Exchange>& exchange) {
    const HttpRequest& request = exchange->request();
    if (const auto id = conversation_of(request); !id.empty()) front_.streams().unpark(id, request.key_label);
  };
  for (auto& waiter : waiters) {
    auto exchange = waiter.exchange;
    if (failure) {
      exchange->post([exchange, failure, begun, router = front_router_] {
        begun(exchange);
        if (exchange->answered()) return;
        try {
          std::rethrow_exception(failure);
        } catch (...) {
          exchange->respond(router->error_response(router->error_in_flight(), exchange->request()));
        }
      });
      continue;
    }
    auto held = lease(entry);
    exchange->post([exchange, begun, held = std::move(held), router = entry->router.get(), left = waiter.left,
                    body = std::move(waiter.body)] {
      if (*left) return;
      exchange->request().lease = held;
      exchange->request().body = body;
      router->handle(exchange);
      begun(exchange);
    });
  }
}

/// True when `wanted` may be loaded now; may let another go, without the lock.
bool ModelPool::make_room(std::unique_lock<std::mutex>& lock, const EntryPtr& wanted) {
  if (options_.max_loaded == 0) return true;
  size_t loaded = 0;
  EntryPtr oldest;
  for (const auto& [id, entry] : entries_) {
    if (entry == wanted || (entry->status != Status::loaded && entry->status != Status::unloading)) continue;
    ++loaded;
    if (entry->active > 0 || entry->status != Status::loaded) continue;
    if (!oldest || entry->used < oldest->used) oldest = entry;
  }
  if (loaded < options_.max_loaded) return true;
  if (!oldest) return false;
  unload_now(lock, oldest, false);
  return true;
}

void ModelPool::load_now(std::unique_lock<std::mutex>& lock, const EntryPtr& entry) {
  entry->status = Status::loading;
  announce(*entry);
  const auto load = entry->model.load;
  lock.unlock();
  std::exception_ptr failure;
  std::string why;
  try {
    log::info("server", "loading {}", entry->model.options.model_id);
    entry->service->ready(load());
  } catch (const std::exception& error) {
    failure = std::current_exception();
    why = error.what();
    log::error("server", "loading {}: {}", entry->model.options.model_id, why);
  }
  lock.lock();
  entry->stays = false;
  entry->used = Clock::now();
  entry->slept = false;
  entry->idle_seconds = entry->model.idle_seconds;
  entry->error = why;
  entry->status = failure ? Status::unloaded : entry->drop ? Status::unloading : Status::loaded;
  entry->drop = false;
  announce(*entry);
  if (failure) {
    failure = std::make_exception_ptr(
        Refusal({500, "server_error", fmt::format("the model could not be loaded: {}", why), std::nullopt}));
  }
  wake_waiters(entry, failure);
  changed_.notify_all();
}

void ModelPool::unload_now(std::unique_lock<std::mutex>& lock, const EntryPtr& entry, bool slept) {
  entry->status = Status::unloading;
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(options_.stop_seconds));
  changed_.wait_until(lock, until, [&] { return entry->active == 0 || stopping_; });
  lock.unlock();
  log::info("server", "letting {} go{}", entry->model.options.model_id, slept ? ": idle" : "");
  entry->service->suspend(slept);
  lock.lock();
  entry->status = Status::unloaded;
  entry->slept = slept;
  announce(*entry);
  if (entry->wanted || !entry->waiters.empty()) {
    entry->wanted = false;
    enqueue(entry);
  }
  changed_.notify_all();
}

ModelPool::EntryPtr ModelPool::next_idle(TimePoint now) const {
  for (const auto& [id, entry] : entries_) {
    if (entry->status == Status::unloading) return entry;
    if (!options_.single && entry->status == Status::loaded && entry->service->failed()) return entry;
    if (entry->status != Status::loaded || entry->active > 0 || entry->idle_seconds < 0) continue;
    if (seconds_between(entry->used, now) >= entry->idle_seconds) return entry;
  }
  return nullptr;
}

void ModelPool::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (const auto idle = next_idle(Clock::now())) {
      unload_now(lock, idle, idle->status == Status::loaded);
      continue;
    }
    if (!queue_.empty()) {
      const EntryPtr entry = queue_.front();
      if (make_room(lock, entry)) {
        // What make_room() waited for may have emptied the queue.
        if (std::erase(queue_, entry) > 0) load_now(lock, entry);
        continue;
      }
    }
    changed_.wait_for(lock, std::chrono::milliseconds(200));
  }
  for (auto& [id, entry] : entries_) {
    if (entry->status != Status::loaded && entry->status != Status::unloading) continue;
    lock.unlock();
    entry->service->release();
    lock.lock();
  }
}

void ModelPool::announce(const Entry& entry) {
  const auto now = view(entry);
  JsonWriter data;
  data.begin_object().field("value", now.status).field("failed", now.failed).end_object();
  // Under the lock already: the subscribers' own executors write.
  JsonWriter out;
  out.begin_object()
      .field("model", now.id)
      .field("event", "model_status")
      .key("data")
      .raw(data.take())
      .end_object();
  const std::string bytes = sse_event(out.take());
  for (const auto& weak : subscribers_) {
    if (const auto exchange = weak.lock())
      exchange->post([exchange, bytes] {
        if (exchange->streaming()) exchange->write(bytes);
      });
  }
}

void ModelPool::subscribe(const std::shared_ptr<Exchange>& exchange) {
  const std::lock_guard lock(mutex_);
  std::erase_if(subscribers_, [](const auto& weak) { return weak.expired(); });
  subscribers_.push_back(exchange);
}

void ModelPool::publish(const std::string& model, const std::string& event, const std::string& data_json) {
  JsonWriter out;
  out.begin_object().field("model", model).field("event", event).key("data").raw(data_json).end_object();
  const std::string bytes = sse_event(out.take());
  const std::lock_guard lock(mutex_);
  for (const auto& weak : subscribers_) {
    if (const auto exchange = weak.lock())
      exchange->post([exchange, bytes] {
        if (exchange->streaming()) exchange->write(bytes);
      });
  }
}

}  // namespace mlxcel
