#include "server/tls.h"

#include <openssl/ssl.h>

#include "base/error.h"

namespace mlxcel {

std::unique_ptr<boost::asio::ssl::context> make_tls_context(const std::string& cert_file,
                                                            const std::string& key_file) {
  namespace ssl = boost::asio::ssl;
  auto context = std::make_unique<ssl::context>(ssl::context::tls_server);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                       ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | ssl::context::single_dh_use);
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  boost::system::error_code error;
  context->use_certificate_chain_file(cert_file, error);
  if (error) fail_param("--ssl-cert-file", "--ssl-cert-file {}: {}", cert_file, error.message());
  context->use_private_key_file(key_file, ssl::context::pem, error);
  if (error) fail_param("--ssl-key-file", "--ssl-key-file {}: {}", key_file, error.message());
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    fail_param("--ssl-key-file", "--ssl-key-file {}: the key does not belong to the certificate {}", key_file,
               cert_file);
  }
  return context;
}

}  // namespace mlxcel
