#include "common/storage/shm/boot_id.h"

#include <fstream>

namespace epic::shm {

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace epic::shm
