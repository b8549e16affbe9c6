// Certificates of a test: an authority of its own that vouches for whatever the test says, as PEM. Tests
// only. Nothing is random but the keys; nothing is kept on disk unless the test writes it.
#ifndef EPIC_COMMON_RPC_TESTING_CERTIFICATES_H_
#define EPIC_COMMON_RPC_TESTING_CERTIFICATES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace epic::testing {

struct CertificateSpec {
  std::vector<std::string> dns = {"localhost"};
  std::vector<std::string> ip = {"127.0.0.1"};
  int64_t begins_in_s = -3600;
  int64_t ends_in_s = 3600;
  int rsa_bits = 0;  // 0: a key on P-256
};

struct Identity {
  std::string cert_pem;
  std::string key_pem;
};

class Authority {
 public:
  explicit Authority(const std::string& name, int64_t ends_in_s = 3600);
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  const std::string& pem() const { return pem_; }
  Identity Issue(const CertificateSpec& spec = {}) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
  std::string pem_;
};

// The same key behind a passphrase.
std::string Encrypted(const std::string& key_pem);

// Replaces the file as a whole; `mode` are its rights.
void WriteFile(const std::string& path, const std::string& text, unsigned mode = 0600);

}  // namespace epic::testing

#endif  // EPIC_COMMON_RPC_TESTING_CERTIFICATES_H_
