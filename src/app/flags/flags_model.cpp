// Rows of the table: what is served, and how it is reached.
#include "app/flags/flag.h"

namespace mlxcel::app {
namespace {

using Kind = Flag::Kind;
using S = FlagState;
constexpr long long kMany = 1ll << 30;

}  // namespace

void add_model_flags(std::vector<Flag>& f) {
  const char* g = "Model";
  f.push_back({"-m,--model", "LLAMA_ARG_MODEL", g, Kind::value, "REF",
               "a folder, a .gguf file, owner/name, owner/name:QUANT, or a name in the store",
               text([](S& s, const auto& v) { s.serve.model.model = v; })});
  f.push_back({"-hf,-hfr,--hf-repo", "LLAMA_ARG_HF_REPO", g, Kind::value, "REPO",
               "owner/name[:QUANT]; wins over -m", text([](S& s, const auto& v) { s.hf_repo = v; })});
  f.push_back({"-hff,--hf-file", "LLAMA_ARG_HF_FILE", g, Kind::value, "FILE",
               "one file of the repository exactly",
               text([](S& s, const auto& v) { s.serve.model.hf_file = v; })});
  f.push_back({"--revision", "", g, Kind::value, "REV", "branch, tag or revision id of the repository",
               text([](S& s, const auto& v) { s.serve.model.revision = v; })});
  f.push_back({"--model-store-root", "", g, Kind::value, "PATH",
               "model store (default: MLXCEL_MODELS_DIR, else the cache root's models)",
               text([](S& s, const auto& v) { s.serve.model.models_dir = v; })});
  f.push_back({"-a,--alias", "LLAMA_ARG_ALIAS", g, Kind::value, "A,B",
               "names that requests may use, comma-separated; the first in order is the id",
               text([](S& s, const auto& v) { s.alias = v; })});
  f.push_back({"--tags", "LLAMA_ARG_TAGS", g, Kind::value, "T,..", "informational, in /v1/models",
               text([](S& s, const auto& v) { s.tags = v; })});
  f.push_back({"--warmup,!--no-warmup", "", g, Kind::toggle, "",
               "a pass before the first request (default: on)",
               onoff([](S& s, bool on) { s.serve.model.no_warmup = !on; })});
  f.push_back({"--surgery", "MLXCEL_SURGERY", g, Kind::value, "FILE",
               "edit weights while loading, by a YAML file",
               text([](S& s, const auto& v) { s.serve.model.surgery = v; })});
  f.push_back({"-cl,--cache-list", "", g, Kind::toggle, "", "list the store and exit",
               onoff([](S& s, bool on) { s.cache_list = on; })});
  f.push_back({"--offline", "LLAMA_ARG_OFFLINE", g, Kind::toggle, "",
               "no network: a model that is not here is not fetched",
               onoff([](S& s, bool on) { s.serve.model.offline = on; })});
  f.push_back({"-hft,--hf-token", "HF_TOKEN,HUGGING_FACE_HUB_TOKEN", "", Kind::value, "T",
               "shown to the hub when the model is fetched",
               text([](S& s, const auto& v) { s.serve.model.hf_token = v; })});
}

void add_router_flags(std::vector<Flag>& f) {
  const char* g = "Several models (without -m: those of the store)";
  f.push_back({"--models-dir", "LLAMA_ARG_MODELS_DIR", g, Kind::value, "DIR",
               "serve the models in this folder as well: folders with a config.json or a GGUF, .gguf files",
               text([](S& s, const auto& v) { s.serve.router.folder = v; })});
  f.push_back({"--models-preset", "LLAMA_ARG_MODELS_PRESET", g, Kind::value, "INI",
               "sections that define models or change their flags; [*] holds for all",
               text([](S& s, const auto& v) { s.serve.router.preset = v; })});
  f.push_back({"--models-max", "LLAMA_ARG_MODELS_MAX", g, Kind::value, "N",
               "models loaded at once (4), the least recently used leaves; 0: any number",
               integer(0, 4096, [](S& s, long long n) { s.serve.router.most = static_cast<size_t>(n); })});
  f.push_back({"--models-autoload,!--no-models-autoload", "LLAMA_ARG_MODELS_AUTOLOAD", g, Kind::toggle, "",
               "a request loads the model that it names (default: on)",
               onoff([](S& s, bool on) { s.serve.router.autoload = on; })});
  f.push_back({"--sleep-idle-seconds", "", g, Kind::value, "N",
               "let a model go when nobody has asked for that long; -1 (default): never",
               real(-1, 1e9, [](S& s, double x) { s.serve.sleep_idle_seconds = x; })});
}

void add_network_flags(std::vector<Flag>& f) {
  const char* g = "Network";
  f.push_back({"--host", "LLAMA_ARG_HOST", g, Kind::value, "ADDR",
               "address to listen on (127.0.0.1); a path ending in .sock is a Unix socket",
               text([](S& s, const auto& v) { s.serve.transport.host = v; })});
  f.push_back({"--port", "LLAMA_ARG_PORT", g, Kind::value, "N",
               "port (8080); 0: a free one, printed when ready",
               integer(0, 65535, [](S& s, long long n) { s.serve.transport.port = static_cast<int>(n); })});
  f.push_back({"--reuse-port", "LLAMA_ARG_REUSE_PORT", g, Kind::toggle, "",
               "let several servers share the port",
               onoff([](S& s, bool on) { s.serve.transport.reuse_port = on; })});
  f.push_back({"-to,--timeout", "LLAMA_ARG_TIMEOUT", g, Kind::value, "S",
               "seconds a read or write may take (3600)",
               real(1, 1e6, [](S& s, double x) { s.timeout = x; })});
  f.push_back({"--decode-timeout", "MLXCEL_DECODE_TIMEOUT", g, Kind::value, "S",
               "seconds without a token that end a request (600); 0: 300, with a warning",
               real(0, 1e6, [](S& s, double x) { s.decode_timeout = x; })});
  f.push_back({"--threads-http", "LLAMA_ARG_THREADS_HTTP", g, Kind::value, "N",
               "threads for clients; -1: automatic",
               integer(-1, 256, [](S& s, long long n) { s.serve.transport.threads = static_cast<int>(n); })});
  f.push_back(
      {"--sse-ping-interval", "LLAMA_ARG_SSE_PING_INTERVAL", g, Kind::value, "S",
       "seconds of silence before a comment in a stream (30); -1: off",
       integer(-1, 86400, [](S& s, long long n) { s.serve.service.ping_seconds = static_cast<int>(n); })});
  f.push_back({"--api-prefix", "LLAMA_ARG_API_PREFIX", g, Kind::value, "P", "put every route under this path",
               text([](S& s, const auto& v) { s.serve.service.api_prefix = v; })});
  f.push_back({"--ssl-cert-file", "LLAMA_ARG_SSL_CERT_FILE", g, Kind::value, "FILE",
               "certificate chain (PEM); with --ssl-key-file: HTTPS",
               text([](S& s, const auto& v) { s.serve.transport.tls_cert_file = v; })});
  f.push_back({"--ssl-key-file", "LLAMA_ARG_SSL_KEY_FILE", g, Kind::value, "FILE", "private key (PEM)",
               text([](S& s, const auto& v) { s.serve.transport.tls_key_file = v; })});
  g = "Access";
  Flag keys{"--api-key",
            "LLAMA_API_KEY,MLXCEL_API_KEY",
            g,
            Kind::list,
            "K",
            "key that requests must show; repeatable, comma lists; the environment adds",
            text([](S& s, const auto& v) { s.api_keys.push_back(v); })};
  keys.env_adds = true;
  f.push_back(std::move(keys));
  Flag files{"--api-key-file",
             "LLAMA_ARG_API_KEY_FILE",
             g,
             Kind::list,
             "FILE",
             "keys, one a line; the environment adds",
             text([](S& s, const auto& v) { s.api_key_files.push_back(v); })};
  files.env_adds = true;
  f.push_back(std::move(files));
  f.push_back({"--cors-origins", "LLAMA_ARG_CORS_ORIGINS", g, Kind::value, "O",
               "* (default) echoes the origin; localhost; or text sent as it is",
               text([](S& s, const auto& v) { s.serve.service.access.cors_origins = v; })});
  f.push_back({"--cors-methods", "LLAMA_ARG_CORS_METHODS", g, Kind::value, "M",
               "methods in the answer to a preflight",
               text([](S& s, const auto& v) { s.serve.service.access.cors_methods = v; })});
  f.push_back({"--cors-headers", "LLAMA_ARG_CORS_HEADERS", g, Kind::value, "H",
               "headers in the answer to a preflight",
               text([](S& s, const auto& v) { s.serve.service.access.cors_headers = v; })});
  f.push_back({"--cors-credentials,!--no-cors-credentials", "LLAMA_ARG_CORS_CREDENTIALS", g, Kind::toggle, "",
               "allow credentials across origins (default: on)",
               onoff([](S& s, bool on) { s.serve.service.access.cors_credentials = on; })});
  f.push_back({"--allowed-hosts", "MLXCEL_ALLOWED_HOSTS", g, Kind::value, "LIST",
               "names in the Host header that a keyless server on a loopback address answers to, besides "
               "localhost and addresses",
               text([](S& s, const auto& v) { s.allowed_hosts = v; })});
  f.push_back({"--allowed-origins", "MLXCEL_ALLOWED_ORIGINS", g, Kind::value, "LIST",
               "scheme://host[:port], comma-separated; others are refused",
               text([](S& s, const auto& v) { s.allowed_origins = v; })});
  (void)kMany;
}

}  // namespace mlxcel::app
