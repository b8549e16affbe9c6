#include "common/rpc/tls_material.h"

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <string>

#include <gtest/gtest.h>

#include "common/rpc/testing/certificates.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using ::epic::testing::Authority;
using ::epic::testing::Encrypted;
using ::epic::testing::Identity;
using ::epic::testing::StatusIs;
using ::epic::testing::WriteFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TlsMaterialTest : public ::testing::Test {
 protected:
  TlsMaterialTest() { Write(authority_.Issue()); }

  void Write(const Identity& identity) {
    WriteFile(paths_.cert_file, identity.cert_pem, 0644);
    WriteFile(paths_.key_file, identity.key_pem);
    WriteFile(paths_.ca_file, authority_.pem(), 0644);
  }
  absl::StatusOr<TlsMaterial> Load(int64_t in_s = 0) const {
    return LoadTlsMaterial(paths_, std::time(nullptr) + in_s);
  }
  // It is refused, and the message has these words and no secret.
  void ExpectBad(const std::string& setting, const std::string& words, int64_t in_s = 0) const {
    EXPECT_THAT(Load(in_s),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(setting), HasSubstr(words), Not(HasSubstr("BEGIN PRIVATE KEY-")))));
  }

  testing::TempDir dir_;
  const Authority authority_{"authority"};
  const TlsPaths paths_{dir_.path() + "/cert.pem", dir_.path() + "/key.pem", dir_.path() + "/ca.pem"};
};

TEST_F(TlsMaterialTest, GoodFilesAreTakenWithTheTimeAtWhichTheyExpire) {
  const auto material = Load();
  ASSERT_OK(material);
  EXPECT_EQ(material->ca_pem, authority_.pem());
  EXPECT_NEAR(static_cast<double>(material->expires_unix_s), static_cast<double>(std::time(nullptr)) + 3600,
              60);
}

TEST_F(TlsMaterialTest, AChainMayHaveMoreThanOneCertificate) {
  const Identity identity = authority_.Issue();
  WriteFile(paths_.cert_file, identity.cert_pem + authority_.pem());
  WriteFile(paths_.key_file, identity.key_pem);
  EXPECT_OK(Load());
}

TEST_F(TlsMaterialTest, WhatIsNotThereIsNamedWithItsSetting) {
  unlink(paths_.cert_file.c_str());
  ExpectBad("tls.cert_file", "cannot be read: No such file");
  Write(authority_.Issue());
  unlink(paths_.key_file.c_str());
  ExpectBad("tls.key_file", "cannot be read: No such file");
  Write(authority_.Issue());
  unlink(paths_.ca_file.c_str());
  ExpectBad("tls.ca_file", "cannot be read: No such file");
}

TEST_F(TlsMaterialTest, WhatIsNoPemIsRefused) {
  WriteFile(paths_.cert_file, "");
  ExpectBad("tls.cert_file", "is empty");
  WriteFile(paths_.cert_file, "words\n");
  ExpectBad("tls.cert_file", "has no certificate");
  WriteFile(paths_.cert_file, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  ExpectBad("tls.cert_file", "cannot be read");
  Write(authority_.Issue());
  WriteFile(paths_.key_file, authority_.pem());
  ExpectBad("tls.key_file", "has no private key");
  Write(authority_.Issue());
  WriteFile(paths_.ca_file, std::string(2 << 20, 'x'));
  ExpectBad("tls.ca_file", "is over 1 MiB");
}

TEST_F(TlsMaterialTest, ACertificateThatIsCutInTheMiddleOfTheChainIsRefused) {
  const std::string cut = authority_.pem().substr(0, authority_.pem().size() / 2);
  WriteFile(paths_.cert_file, authority_.Issue().cert_pem + cut);
  ExpectBad("tls.cert_file", "cannot be read");
}

TEST_F(TlsMaterialTest, AKeyOfAnotherCertificateIsRefused) {
  WriteFile(paths_.key_file, authority_.Issue().key_pem);
  ExpectBad("tls.key_file", "is not the key of the first certificate in " + paths_.cert_file);
}

TEST_F(TlsMaterialTest, AKeyThatOthersMayReadIsRefusedAndOneOfTheGroupIsTaken) {
  for (const mode_t mode : {0604, 0602, 0644, 0666}) {
    ASSERT_EQ(chmod(paths_.key_file.c_str(), mode), 0);
    ExpectBad("tls.key_file", "is open to every user of this machine");
  }
  for (const mode_t mode : {0600, 0400, 0440, 0640}) {
    ASSERT_EQ(chmod(paths_.key_file.c_str(), mode), 0);
    EXPECT_OK(Load()) << mode;
  }
}

TEST_F(TlsMaterialTest, AKeyBehindAPassphraseIsRefusedWithoutAskingForIt) {
  const Identity identity = authority_.Issue();
  Write({identity.cert_pem, Encrypted(identity.key_pem)});
  ExpectBad("tls.key_file", "is encrypted");
}

TEST_F(TlsMaterialTest, WhatExpiredOrIsNotYetValidIsRefused) {
  ExpectBad("tls.cert_file", "expired on", 3700);
  ExpectBad("tls.cert_file", "is not valid before", -3700);
  const Authority old("old", -60);
  Write(authority_.Issue());
  WriteFile(paths_.ca_file, old.pem());
  ExpectBad("tls.ca_file", "expired on");
  WriteFile(paths_.ca_file, old.pem() + authority_.pem());
  EXPECT_OK(Load()) << "authorities are replaced by having both for a while";
}

TEST_F(TlsMaterialTest, AKeyTooWeakForTlsIsRefused) {
  Write(authority_.Issue({.rsa_bits = 1024}));
  ExpectBad("tls.cert_file", "is not fit for TLS");
  Write(authority_.Issue({.rsa_bits = 2048}));
  EXPECT_OK(Load());
}

TEST_F(TlsMaterialTest, CertificateAndKeyGoTogether) {
  EXPECT_THAT(LoadTlsMaterial({.cert_file = paths_.cert_file, .key_file = {}, .ca_file = {}}, 0),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("go together")));
  const auto authorities =
      LoadTlsMaterial({.cert_file = {}, .key_file = {}, .ca_file = paths_.ca_file}, std::time(nullptr));
  ASSERT_OK(authorities);
  EXPECT_EQ(authorities->expires_unix_s, 0);
}

}  // namespace
}  // namespace epic
