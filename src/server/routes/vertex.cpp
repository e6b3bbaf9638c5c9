// Vertex AI's prediction protocol (server.md 5.18): instances that are requests of other routes, answered in
// order.
#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "api/json_node.h"
#include "api/json_writer.h"
#include "server/router.h"

namespace mlxcel {
namespace {

constexpr size_t kMostInstances = 128, kMostAtOnce = 8;
constexpr const char* kFormat = "@requestFormat";

/// "/v1/chat/completions" as "chatCompletions".
std::string camel_case(std::string path) {
  if (path.starts_with("/v1/")) path.erase(0, 3);
  std::string out;
  bool upper = false;
  for (const char c : path.substr(1)) {
    if (c == '/' || c == '-' || c == '_') {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  return out;
}

std::string error_json(const std::string& message) {
  return print_error({400, "invalid_request_error", message, std::nullopt});
}

/// One instance as a request of its own, whose answer goes into a list.
class InstanceExchange final : public Exchange {
 public:
  InstanceExchange(std::shared_ptr<Exchange> outer, HttpRequest request,
                   std::function<void(std::string)> done)
      : outer_(std::move(outer)), request_(std::move(request)), done_(std::move(done)) {}

  HttpRequest& request() override { return request_; }
  void post(std::function<void()> work) override { outer_->post(std::move(work)); }
  bool run_blocking(std::function<void()> work) override { return outer_->run_blocking(std::move(work)); }
  void respond(HttpResponse response) override {
    if (std::exchange(answered_, true)) return;
    std::string body = std::move(response.body);
    try {
      JsonNode::parse(body);
    } catch (const Error&) {
      body = JsonWriter().value(body).take();  // plain text
    }
    done_(std::move(body));
  }
  void open_stream(HttpResponse, int) override {
    respond({.status = 400,
             .content_type = "application/json",
             .headers = {},
             .body = error_json("a prediction cannot be a stream")});
  }
  void write(std::string) override {}
  void close_stream() override {}
  bool answered() const override { return answered_; }
  bool streaming() const override { return false; }
  void on_abort(std::function<void(const std::string&)> handler) override { abort_ = std::move(handler); }
  void watch_progress(double seconds, std::function<void()> handler) override {
    outer_->watch_progress(seconds, std::move(handler));
  }
  void progress() override { outer_->progress(); }
  void abort(const std::string& reason) {
    if (const auto handler = std::exchange(abort_, nullptr)) handler(reason);
  }

 private:
  const std::shared_ptr<Exchange> outer_;
  HttpRequest request_;
  const std::function<void(std::string)> done_;
  std::function<void(const std::string&)> abort_;
  bool answered_ = false;
};

/// All instances of a request. On the exchange's executor only.
struct Batch : std::enable_shared_from_this<Batch> {
  const Router& router;
  std::shared_ptr<Exchange> exchange;
  std::vector<std::pair<std::string, std::string>> asked;  // path and body; no path: the body is the answer
  std::vector<std::string> answers;
  std::vector<std::shared_ptr<InstanceExchange>> running;
  size_t next = 0, open = 0, left = 0;
  bool over = false;

  explicit Batch(const Router& r) : router(r) {}

  void advance() {
    while (!over && open < kMostAtOnce && next < asked.size()) {
      const size_t index = next++;
      auto& [path, body] = asked[index];
      if (path.empty()) {
        take(index, std::move(body));
        continue;
      }
      HttpRequest request;
      const HttpRequest& outer = exchange->request();
      request.method = "POST";
      request.target = request.path = request.route = path;
      request.headers = outer.headers;
      std::erase_if(request.headers, [](const auto& header) { return header.first == "x-conversation-id"; });
      request.body = std::move(body);
      request.id = outer.id + "-" + std::to_string(index);
      request.key_label = outer.key_label;
      request.received = Clock::now();
      ++open;
      auto instance = std::make_shared<InstanceExchange>(
          exchange, std::move(request), [self = shared_from_this(), index](std::string answer) {
            --self->open;
            self->take(index, std::move(answer));
            // Not from inside the handler that has just answered.
            self->exchange->post([self] { self->advance(); });
          });
      running.push_back(instance);
      router.handle(instance);
    }
  }

  void take(size_t index, std::string answer) {
    answers[index] = std::move(answer);
    if (--left > 0 || over) return;
    over = true;
    running.clear();
    JsonWriter out;
    out.begin_object().key("predictions").begin_array();
    for (const auto& each : answers) out.raw(each);
    out.end_array().end_object();
    HttpResponse response;
    response.body = out.take();
    exchange->respond(std::move(response));
  }
};

void predict(const Router& router, const std::shared_ptr<Exchange>& exchange,
             const std::map<std::string, std::string>& paths, const std::string& prefix) {
  const JsonNode body = JsonNode::parse_request(exchange->request().body);
  const auto instances = body.find("instances");
  if (!instances || instances->kind() != JsonKind::array)
    fail_param("instances", "instances: expected an array");
  if (instances->size() > kMostInstances)
    fail_param("instances", "instances: at most {}, found {}", kMostInstances, instances->size());
  const auto batch = std::make_shared<Batch>(router);
  batch->exchange = exchange;
  for (const auto& instance : instances->items()) {
    if (instance.kind() != JsonKind::object || !instance.contains(kFormat)) {
      batch->asked.emplace_back(
          "", error_json(fmt::format("{}: expected an object with a string {}", instance.path(), kFormat)));
      continue;
    }
    JsonWriter own;
    own.begin_object();
    std::string format;
    for (const auto& [name, value] : instance.members()) {
      if (name == kFormat) {
        format = value.kind() == JsonKind::string ? value.string() : "";
      } else if (name != "stream") {
        own.key(name).raw(value.dump());
      }
    }
    // Ollama's routes stream unless they are told not to.
    own.field("stream", false).end_object();
    const auto path = paths.find(format);
    if (path == paths.end())
      batch->asked.emplace_back("", error_json(fmt::format("{}: no route for {} \"{}\"", instance.path(),
                                                           kFormat, format.substr(0, 100))));
    else
      batch->asked.emplace_back(prefix + path->second, own.take());
  }
  batch->answers.resize(batch->asked.size());
  batch->left = batch->asked.size();
  if (batch->left == 0) {
    HttpResponse response;
    response.body = R"({"predictions":[]})";
    return exchange->respond(std::move(response));
  }
  exchange->on_abort([weak = std::weak_ptr(batch)](const std::string& reason) {
    const auto self = weak.lock();
    if (!self) return;
    self->over = true;
    for (const auto& instance : self->running) instance->abort(reason);
    self->running.clear();
  });
  batch->advance();
}

}  // namespace

void add_vertex_routes(Router& router, const VertexRoutes& routes) {
  if (routes.predict.empty()) return;
  const std::string& prefix = router.service().options().api_prefix;
  std::map<std::string, std::string> paths;
  for (const auto& [method, path] : router.table()) {
    const std::string own = path.substr(prefix.size());
    if (own == routes.predict || own == routes.health)
      fail_param("AIP_PREDICT_ROUTE",
                 "AIP_PREDICT_ROUTE, AIP_HEALTH_ROUTE: {} is a route of this server already", own);
    if (method != "POST" || own.find('{') != std::string::npos) continue;
    paths.emplace(own, own);
    // /v1/completions and /completions are both "completions": the first one added stands.
    paths.emplace(camel_case(own), own);
  }
  router.add("POST", routes.predict,
             [&router, paths, prefix](const auto& exchange) { predict(router, exchange, paths, prefix); });
  if (routes.health.empty()) return;
  router.add_public("GET", routes.health, [&router](const auto& exchange) {
    const auto state = router.service().state();
    if (state != Service::State::ready && state != Service::State::sleeping)
      refuse(503, "unavailable_error", "Loading model");
    HttpResponse out;
    out.body = R"({"status":"ok"})";
    exchange->respond(std::move(out));
  });
}

}  // namespace mlxcel
