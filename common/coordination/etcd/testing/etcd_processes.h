// Real etcd processes on loopback, on free ports, with their data in a folder that ends with them. Tests
// only; one thread. They end with the test, however it ends.
#ifndef EPIC_COMMON_COORDINATION_ETCD_TESTING_ETCD_PROCESSES_H_
#define EPIC_COMMON_COORDINATION_ETCD_TESTING_ETCD_PROCESSES_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/testing/paths.h"

namespace epic::testing {

class EtcdProcesses {
 public:
  // Files as PEM; empty: plain.
  struct Tls {
    std::string cert_file;
    std::string key_file;
    std::string ca_file;  // of clients, who must have a certificate then
  };

  // Whether etcd is on this machine (package etcd-server).
  static bool Installed();

  // Starts a new cluster; it may take a second until it answers. REQUIRES: Installed.
  explicit EtcdProcesses(size_t members, Tls tls = {});
  ~EtcdProcesses();
  EtcdProcesses(const EtcdProcesses&) = delete;
  EtcdProcesses& operator=(const EtcdProcesses&) = delete;

  size_t size() const { return members_.size(); }
  // HOST:PORT for clients.
  const std::string& address(size_t member) const { return members_[member].address; }
  std::vector<std::string> addresses() const;

  // SIGSTOP, SIGCONT.
  void Signal(size_t member, int signal);
  // SIGKILL, and waits for its end.
  void Kill(size_t member);
  // Starts it again, with what its folder holds.
  void Start(size_t member);
  void KillAll();
  void StartAll();
  // Its folder as it is now, to be put back later. REQUIRES: it does not run.
  void SaveData(size_t member, const std::string& name) const;
  void RestoreData(size_t member, const std::string& name) const;

 private:
  struct Member {
    std::string name;
    std::string address;
    std::string peer_address;
    std::string data_dir;
    pid_t pid = 0;  // 0: does not run
  };

  std::vector<std::string> ArgumentsOf(const Member& member) const;

  const Tls tls_;
  TempDir folder_;
  std::string token_;  // of this cluster alone
  std::vector<Member> members_;
};

}  // namespace epic::testing

#endif  // EPIC_COMMON_COORDINATION_ETCD_TESTING_ETCD_PROCESSES_H_
