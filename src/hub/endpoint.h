// Where models are fetched from: the hub or its mirror (HF_ENDPOINT), the access token, and whether anything
// may be fetched at all.
// Thread: any; go_offline() before the first use. Failure: invalid_request naming the variable.
#pragma once

#include <string>

namespace mlxcel {

struct Endpoint {
  std::string base;   // "https://host[:port][/path]", no slash at the end
  std::string token;  // empty: none, or withheld from a plain-HTTP endpoint
  bool token_withheld = false;
};

/// `token` (a flag) wins over HF_TOKEN and HUGGING_FACE_HUB_TOKEN. A token goes to a plain-HTTP endpoint only
/// with MLXCEL_ALLOW_INSECURE_ENDPOINT.
Endpoint hub_endpoint(const std::string& token);

/// --offline, LLAMA_ARG_OFFLINE (exactly on, enabled, true or 1) or HF_HUB_OFFLINE: nothing in this process
/// uses the network.
bool offline();
void go_offline();

/// "https://host:port" of a URL; empty where it is no http(s) URL.
std::string url_origin(const std::string& url);

}  // namespace mlxcel
