#include "hub/http.h"

#include <curl/curl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>

#include "base/file.h"

namespace mlxcel {
namespace {

constexpr long kMostRedirects = 8;
constexpr size_t kErrorText = 4096;
constexpr size_t kMostHeaders = 256 * 1024;
constexpr size_t kMostCertificates = size_t{1} << 20;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// MLXCEL_EXTRA_CA_CERTS, read once; a bad bundle is fatal.
const std::string& extra_certificates() {
  static const std::string text = [] {
    const char* path = std::getenv("MLXCEL_EXTRA_CA_CERTS");
    if (!path || !*path) return std::string();
    std::string bundle;
    try {
      bundle = read_file(path, kMostCertificates);
    } catch (const Error& error) {
      fail(ErrorKind::invalid_request, "MLXCEL_EXTRA_CA_CERTS: {}", error.what());
    }
    const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
        BIO_new_mem_buf(bundle.data(), static_cast<int>(bundle.size())), BIO_free);
    X509* first = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr);
    if (!first)
      fail(ErrorKind::invalid_request, "MLXCEL_EXTRA_CA_CERTS={}: expected certificates (PEM)", path);
    X509_free(first);
    return bundle;
  }();
  return text;
}

CURLcode add_certificates(CURL*, void* context, void*) {
  const std::string& bundle = extra_certificates();
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
      BIO_new_mem_buf(bundle.data(), static_cast<int>(bundle.size())), BIO_free);
  X509_STORE* store = SSL_CTX_get_cert_store(static_cast<SSL_CTX*>(context));
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    X509_STORE_add_cert(store, certificate);
    X509_free(certificate);
  }
  ERR_clear_error();
  return CURLE_OK;
}

void start_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

std::atomic<bool> given_up{false};

int on_progress(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) { return given_up ? 1 : 0; }

double retry_after(const HttpReply& reply) {
  const auto found = reply.headers.find("retry-after");
  if (found == reply.headers.end()) return 0;
  char* end = nullptr;
  const double seconds = std::strtod(found->second.c_str(), &end);
  return end != found->second.c_str() && seconds > 0 ? seconds : 0;  // a date is as good as none
}

}  // namespace

struct Http::Call {
  bool head = false;
  bool follow = true;
  uint64_t offset = 0;
  size_t limit = kErrorText;
  std::function<void(const HttpReply&)> begin;
  std::function<void(std::span<const std::byte>)> write;

  CURL* curl = nullptr;
  HttpReply reply;
  size_t header_bytes = 0;
  bool begun = false, too_long = false;
  std::exception_ptr error;

  bool wanted() const { return reply.status == 200 || reply.status == 206; }
  void start() {
    if (begun || !begin) return;
    begun = true;
    begin(reply);
  }

  static size_t on_header(char* data, size_t size, size_t count, void* self) {
    Call& call = *static_cast<Call*>(self);
    const std::string line(data, size * count);
    if ((call.header_bytes += line.size()) > kMostHeaders) return 0;
    if (line.starts_with("HTTP/")) call.reply.headers.clear();
    if (const auto colon = line.find(':'); colon != std::string::npos) {
      const auto first = line.find_first_not_of(" \t", colon + 1);
      const auto last = line.find_last_not_of(" \t\r\n");
      call.reply.headers[lower(line.substr(0, colon))] =
          first == std::string::npos || last < first ? "" : line.substr(first, last - first + 1);
    }
    return size * count;
  }

  static size_t on_body(char* data, size_t size, size_t count, void* self) {
    Call& call = *static_cast<Call*>(self);
    const size_t bytes = size * count;
    curl_easy_getinfo(call.curl, CURLINFO_RESPONSE_CODE, &call.reply.status);
    try {
      if (call.write && call.wanted()) {
        call.start();
        call.write({reinterpret_cast<const std::byte*>(data), bytes});
        return bytes;
      }
    } catch (...) {
      call.error = std::current_exception();
      return 0;
    }
    const size_t room = (call.wanted() ? call.limit : kErrorText);
    if (call.reply.body.size() + bytes > room) {
      if (!call.wanted()) return bytes;  // enough of an error page
      call.too_long = true;
      return 0;
    }
    call.reply.body.append(data, bytes);
    return bytes;
  }
};

Http::Http(Endpoint endpoint) : endpoint_(std::move(endpoint)) {
  start_curl();
  curl_ = curl_easy_init();
  if (!curl_) fail(ErrorKind::internal, "libcurl does not start");
}
Http::~Http() { curl_easy_cleanup(curl_); }

HttpReply Http::perform(const std::string& url, Call& call) {
  CURL* curl = curl_;
  call.curl = curl;
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "mlxcel/" MLXCEL_VERSION);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 20L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 60L);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &on_progress);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  // A mirror reached by TLS cannot send its clients to an open wire.
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, url.starts_with("https:") ? "https" : "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, call.follow ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, kMostRedirects);
  if (call.head) curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  std::string range;
  if (call.offset > 0) {
    range = fmt::format("{}-", call.offset);
    curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  }
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Call::on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &call);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Call::on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &call);
  char problem[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem);
  if (!extra_certificates().empty()) curl_easy_setopt(curl, CURLOPT_SSL_CTX_FUNCTION, &add_certificates);
  curl_slist* headers = nullptr;
  // libcurl drops the header itself when a redirect leaves the host.
  if (!endpoint_.token.empty() && url_origin(url) == url_origin(endpoint_.base))
    headers = curl_slist_append(headers, ("Authorization: Bearer " + endpoint_.token).c_str());
  if (!call.head && !call.write) headers = curl_slist_append(headers, "Accept: application/json");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);

  const CURLcode code = curl_easy_perform(curl);
  curl_slist_free_all(headers);
  if (call.error) std::rethrow_exception(call.error);
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &call.reply.status);
  const char* last = nullptr;
  curl_easy_getinfo(curl, CURLINFO_EFFECTIVE_URL, &last);
  call.reply.url = last ? last : url;
  if (call.too_long)
    throw NetworkError(fmt::format("{}: the answer is over {} bytes long", url, call.limit), false);
  if (code != CURLE_OK) {
    const bool never = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_PEER_FAILED_VERIFICATION ||
                       code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_TOO_MANY_REDIRECTS ||
                       code == CURLE_COULDNT_CONNECT || code == CURLE_URL_MALFORMAT;
    throw NetworkError(fmt::format("{}: {}", url, *problem ? problem : curl_easy_strerror(code)), !never);
  }
  if (call.write && call.wanted()) call.start();  // an empty body
  return call.reply;
}

std::string Http::text(const std::string& url, size_t limit) {
  Call call;
  call.limit = limit;
  HttpReply reply = perform(url, call);
  if (reply.status != 200) fail_status(reply, url, !endpoint_.token.empty());
  return std::move(reply.body);
}

HttpReply Http::head(const std::string& url) {
  std::map<std::string, std::string> joined;
  std::string next = url;
  for (long i = 0; i <= kMostRedirects; ++i) {
    Call call;
    call.head = true;
    call.follow = false;
    HttpReply reply = perform(next, call);
    for (const auto& [name, value] : reply.headers)
      if (name.starts_with("x-")) joined.emplace(name, value);
    const bool redirect = reply.status >= 300 && reply.status < 400;
    const auto location = reply.headers.find("location");
    if (!redirect || location == reply.headers.end()) {
      if (reply.status != 200) fail_status(reply, url, !endpoint_.token.empty());
      for (const auto& [name, value] : reply.headers) joined.emplace(name, value);
      reply.headers = std::move(joined);
      return reply;
    }
    CURLU* base = curl_url();
    char* absolute = nullptr;
    if (curl_url_set(base, CURLUPART_URL, next.c_str(), 0) == CURLUE_OK &&
        curl_url_set(base, CURLUPART_URL, location->second.c_str(), 0) == CURLUE_OK)
      curl_url_get(base, CURLUPART_URL, &absolute, 0);
    const std::string target = absolute ? absolute : "";
    curl_free(absolute);
    curl_url_cleanup(base);
    if (url_origin(target).empty())
      throw NetworkError(fmt::format("{}: redirected to \"{}\"", url, location->second), false);
    if (next.starts_with("https:") && !target.starts_with("https:"))
      throw NetworkError(fmt::format("{}: redirected from HTTPS to {}", url, url_origin(target)), false);
    if (url_origin(target) != url_origin(next) && joined.contains("x-linked-size")) {
      reply.headers = std::move(joined);
      reply.status = 200;
      return reply;
    }
    next = target;
  }
  throw NetworkError(fmt::format("{}: more than {} redirects", url, kMostRedirects), false);
}

void Http::stream(const std::string& url, uint64_t offset, const std::function<void(const HttpReply&)>& begin,
                  const std::function<void(std::span<const std::byte>)>& write) {
  Call call;
  call.offset = offset;
  call.begin = begin;
  call.write = write;
  const HttpReply reply = perform(url, call);
  if (!call.wanted()) fail_status(reply, url, !endpoint_.token.empty());
}

void give_up_transfers() { given_up = true; }

std::string url_path(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '-' || c == '_' ||
                       c == '.' || c == '~';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

void fail_status(const HttpReply& reply, const std::string& what, bool had_token) {
  const auto say = [&](const std::string& text, bool again) {
    throw NetworkError(fmt::format("{}: {}", what, text), again, reply.status, retry_after(reply));
  };
  const auto code = reply.headers.find("x-error-code");
  const std::string hint = code == reply.headers.end() ? "" : code->second;
  if (reply.status == 401 || reply.status == 403) {
    if (hint == "GatedRepo")
      say("the repository is gated: accept its terms on the hub, then give a token (--token or HF_TOKEN)",
          false);
    say(had_token
            ? fmt::format("the hub refuses the access token ({})", reply.status)
            : fmt::format("not there, or private: the hub asks for an access token ({}); give one by --token "
                          "or HF_TOKEN",
                          reply.status),
        false);
  }
  if (reply.status == 404)
    say(hint == "RevisionNotFound" ? "no such revision (404)" : "not found on the hub (404)", false);
  if (reply.status == 429) say("the hub asks to slow down (429)", true);
  if (reply.status == 408 || reply.status >= 500) say(fmt::format("the hub answers {}", reply.status), true);
  if (reply.status == 416) say("the hub has no such range (416)", true);
  say(fmt::format("the hub answers {}", reply.status), false);
  std::abort();  // say() throws
}

}  // namespace mlxcel
