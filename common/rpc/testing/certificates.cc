#include "common/rpc/testing/certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "common/base/check.h"
#include "common/rpc/openssl_handles.h"

namespace epic::testing {
namespace {

using openssl::Bio;
using openssl::Certificate;
using openssl::Key;

std::string TextOf(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

std::string PemOf(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  EPIC_CHECK(PEM_write_bio_X509(bio.get(), certificate) == 1);
  return TextOf(bio.get());
}

std::string PemOf(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  EPIC_CHECK(PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return TextOf(bio.get());
}

void AddExtension(X509* certificate, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, openssl::Free<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str()));
  EPIC_CHECK(extension != nullptr);
  EPIC_CHECK(X509_add_ext(certificate, extension.get(), -1) == 1);
}

Certificate Begin(const std::string& name, EVP_PKEY* key, int64_t begins_in_s, int64_t ends_in_s) {
  Certificate certificate(X509_new());
  X509* const x = certificate.get();
  EPIC_CHECK(X509_set_version(x, 2) == 1);
  uint64_t serial = 0;
  EPIC_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), serial >> 1);
  X509_gmtime_adj(X509_getm_notBefore(x), begins_in_s);
  X509_gmtime_adj(X509_getm_notAfter(x), ends_in_s);
  EPIC_CHECK(X509_set_pubkey(x, key) == 1);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

struct Authority::State {
  Key key;
  Certificate certificate;
};

Authority::Authority(const std::string& name, int64_t ends_in_s) : state_(std::make_unique<State>()) {
  state_->key.reset(EVP_EC_gen("P-256"));
  state_->certificate = Begin(name, state_->key.get(), -7200, ends_in_s);
  X509* const x = state_->certificate.get();
  EPIC_CHECK(X509_set_issuer_name(x, X509_get_subject_name(x)) == 1);
  AddExtension(x, x, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(x, x, NID_subject_key_identifier, "hash");
  EPIC_CHECK(X509_sign(x, state_->key.get(), EVP_sha256()) > 0);
  pem_ = PemOf(x);
}

Authority::~Authority() = default;

Identity Authority::Issue(const CertificateSpec& spec) const {
  const Key key(spec.rsa_bits == 0 ? EVP_EC_gen("P-256") : EVP_RSA_gen(static_cast<unsigned>(spec.rsa_bits)));
  const Certificate certificate = Begin("part", key.get(), spec.begins_in_s, spec.ends_in_s);
  X509* const x = certificate.get();
  EPIC_CHECK(X509_set_issuer_name(x, X509_get_subject_name(state_->certificate.get())) == 1);
  std::string names;
  for (const std::string& dns : spec.dns) names += (names.empty() ? "DNS:" : ",DNS:") + dns;
  for (const std::string& ip : spec.ip) names += (names.empty() ? "IP:" : ",IP:") + ip;
  if (!names.empty()) AddExtension(x, state_->certificate.get(), NID_subject_alt_name, names);
  EPIC_CHECK(X509_sign(x, state_->key.get(), EVP_sha256()) > 0);
  return {.cert_pem = PemOf(x), .key_pem = PemOf(key.get())};
}

std::string Encrypted(const std::string& key_pem) {
  const Bio in(BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size())));
  const Key key(PEM_read_bio_PrivateKey(in.get(), nullptr, nullptr, nullptr));
  EPIC_CHECK(key != nullptr);
  const Bio out(BIO_new(BIO_s_mem()));
  char phrase[] = "phrase";
  EPIC_CHECK(PEM_write_bio_PKCS8PrivateKey(out.get(), key.get(), EVP_aes_128_cbc(), phrase, 6, nullptr,
                                           nullptr) == 1);
  return TextOf(out.get());
}

void WriteFile(const std::string& path, const std::string& text, unsigned mode) {
  const std::string fresh = path + ".new";
  std::ofstream(fresh, std::ios::binary) << text;
  EPIC_CHECK(chmod(fresh.c_str(), mode) == 0);
  EPIC_CHECK(std::rename(fresh.c_str(), path.c_str()) == 0);
}

}  // namespace epic::testing
