// Model files that somebody changes: while they are read, and afterwards.
#include "services/model/model_file.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/model/model.h"
#include "services/model/testing/tiny_model.h"

namespace epic {
namespace {

using epic::testing::StatusIs;
using epic::testing::TempDir;
using epic::testing::TinyModel;
using epic::testing::TinyModelSpec;
using epic::testing::WriteFileOrDie;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

std::vector<float> FirstAndLastRow(const Tensor& tensor) {
  std::vector<float> values(2 * tensor.cols);
  DequantizeRow(tensor, 0, std::span<float>(values).first(tensor.cols));
  DequantizeRow(tensor, tensor.rows - 1, std::span<float>(values).last(tensor.cols));
  return values;
}

class ModelFileTest : public ::testing::Test {
 protected:
  std::string PathOf(const std::string& name) const { return dir_.path() + "/" + name; }
  static std::string Message(const absl::Status& status) { return std::string(status.message()); }
  TempDir dir_;
};

TEST_F(ModelFileTest, ALoadedModelKeepsItsBytesWhateverBecomesOfTheFile) {
  const std::string path = PathOf("model.gguf");
  TinyModel(TinyModelSpec{}).WriteGguf(path);
  ASSERT_OK_AND_ASSIGN(const auto model, Model::Load(path));
  const std::vector<float> down = FirstAndLastRow(model->layer(1).down);
  const std::vector<float> embedding = FirstAndLastRow(model->embedding());
  WriteFileOrDie(path, std::string(fs::file_size(path), '\xff'));  // in place
  EXPECT_EQ(FirstAndLastRow(model->layer(1).down), down);
  fs::resize_file(path, 0);
  EXPECT_EQ(FirstAndLastRow(model->layer(1).down), down);
  fs::remove(path);
  EXPECT_EQ(FirstAndLastRow(model->embedding()), embedding);
}

TEST_F(ModelFileTest, AFileThatGivesFewerBytesThanItHasIsAClearError) {
  // A file of the kernel says a page and gives a few bytes, as a file does that is cut while it is read.
  const std::string path = "/sys/kernel/mm/transparent_hugepage/enabled";
  std::error_code error;
  if (!fs::is_regular_file(path, error)) GTEST_SKIP() << path << " is not here";
  const auto file = ModelFile::Read(path);
  ASSERT_THAT(file.status(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Message(file.status()), HasSubstr("it was cut; start again"));
}

TEST_F(ModelFileTest, WhatIsNoModelFileIsAClearError) {
  EXPECT_THAT(ModelFile::Read(PathOf("none")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(ModelFile::Read(dir_.path()), StatusIs(absl::StatusCode::kInvalidArgument));
  WriteFileOrDie(PathOf("empty"), "");
  EXPECT_THAT(ModelFile::Read(PathOf("empty")), StatusIs(absl::StatusCode::kInvalidArgument));
  WriteFileOrDie(PathOf("five"), "12345");
  EXPECT_OK(ModelFile::Read(PathOf("five"), 5));
  EXPECT_THAT(Message(ModelFile::Read(PathOf("five"), 4).status()), HasSubstr("has 5 bytes; at most 4"));
}

TEST_F(ModelFileTest, StampsNoticeEveryKindOfChangeOfAFile) {
  const std::string path = PathOf("model.gguf");
  const auto write = [&](const std::string& text) { WriteFileOrDie(path, text); };
  const std::pair<const char*, std::function<void()>> changes[] = {
      {"grown", [&] { write("12345678"); }},
      {"cut", [&] { fs::resize_file(path, 3); }},
      {"replaced by one of the same size and time",
       [&] {
         const auto time = fs::last_write_time(path);
         WriteFileOrDie(PathOf("other"), "87654321");
         fs::last_write_time(PathOf("other"), time);
         fs::rename(PathOf("other"), path);
       }},
      {"written at another time",
       [&] { fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1)); }},
      {"removed", [&] { fs::remove(path); }},
  };
  for (const auto& [what, change] : changes) {
    write("1234");
    const FileStamps stamps = FileStamps::Of(path);
    EXPECT_OK(stamps.CheckUnchanged());
    change();
    const absl::Status changed = stamps.CheckUnchanged();
    EXPECT_THAT(changed, StatusIs(absl::StatusCode::kInvalidArgument)) << what;
    EXPECT_THAT(Message(changed), HasSubstr(path)) << what;
  }
  const FileStamps absent = FileStamps::Of(path);
  EXPECT_OK(absent.CheckUnchanged());
  write("now it is here");
  EXPECT_FALSE(absent.CheckUnchanged().ok());
}

TEST_F(ModelFileTest, StampsOfAFolderSpeakOfTheFilesThatModelsAreReadFrom) {
  const std::string folder = PathOf("model");
  TinyModel(TinyModelSpec{}).WriteHuggingFace(folder, 2);
  const FileStamps stamps = FileStamps::Of(folder);
  WriteFileOrDie(folder + "/notes.txt", "no part of a model");
  EXPECT_OK(stamps.CheckUnchanged());
  WriteFileOrDie(folder + "/tokenizer.json", "{}");
  EXPECT_THAT(Message(stamps.CheckUnchanged()), HasSubstr("tokenizer.json"));
  const FileStamps again = FileStamps::Of(folder);
  WriteFileOrDie(folder + "/chat_template.jinja", "{{ messages }}");
  EXPECT_THAT(Message(again.CheckUnchanged()), HasSubstr("chat_template.jinja"));
}

TEST_F(ModelFileTest, AModelThatIsReplacedDuringItsLoadIsOneOrTheOtherOrAnError) {
  const std::string path = PathOf("model.gguf");
  std::set<std::string> identities;
  for (const uint64_t seed : {1, 2}) {
    TinyModelSpec spec;
    spec.seed = seed;
    TinyModel(spec).WriteGguf(path);
    ASSERT_OK_AND_ASSIGN(const auto model, Model::Load(path));
    identities.insert(model->identity().Hex());
    fs::rename(path, PathOf(std::to_string(seed)));
  }
  fs::copy_file(PathOf("1"), path);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t i = 0; !stop; ++i) {
      fs::copy_file(PathOf(std::to_string(1 + i % 2)), PathOf("next"));
      fs::rename(PathOf("next"), path);
    }
  });
  for (int i = 0; i < 50; ++i) {
    const auto model = Model::Load(path);
    if (model.ok()) {
      EXPECT_TRUE(identities.contains((*model)->identity().Hex()));
    } else {
      EXPECT_THAT(Message(model.status()), HasSubstr("changed or replaced"));
    }
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace epic
