// Owners of what OpenSSL allocates.
#ifndef EPIC_COMMON_RPC_OPENSSL_HANDLES_H_
#define EPIC_COMMON_RPC_OPENSSL_HANDLES_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace epic::openssl {

template <auto free_function>
struct Free {
  template <typename T>
  void operator()(T* pointer) const {
    free_function(pointer);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Context = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Session = std::unique_ptr<SSL, Free<SSL_free>>;

// Reads `text`, which outlives it.
inline Bio Reader(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

}  // namespace epic::openssl

#endif  // EPIC_COMMON_RPC_OPENSSL_HANDLES_H_
