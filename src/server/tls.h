// The TLS context of the listener, from a certificate chain and a key in PEM files.
// Failure: invalid_request naming the file.
#pragma once

#include <boost/asio/ssl/context.hpp>

#include <memory>
#include <string>

namespace mlxcel {

std::unique_ptr<boost::asio::ssl::context> make_tls_context(const std::string& cert_file,
                                                            const std::string& key_file);

}  // namespace mlxcel
