// Writes the tiny models of the golden tests as Hugging Face folders, for make_logits.py:
//   write_tiny_models DIR
#include <cstdio>
#include <string>

#include "services/engine/testing/tiny_engines.h"
#include "services/model/testing/tiny_model.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIR (an existing folder)\n", argv[0]);
    return 2;
  }
  for (const epic::testing::TinyCase& tiny : epic::testing::GoldenCases()) {
    epic::testing::TinyModel(tiny.spec).WriteHuggingFace(std::string(argv[1]) + "/" + tiny.name);
    std::printf("%s/%s\n", argv[1], tiny.name.c_str());
  }
  return 0;
}
