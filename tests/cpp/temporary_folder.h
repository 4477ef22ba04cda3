// A folder of files for a test, removed at its end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace npu::check {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/npu_test_XXXXXX";
    path = mkdtemp(name);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  TemporaryFolder(const TemporaryFolder&) = delete;

  // Writes a file; the folders in its path are made.
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path to = std::filesystem::path(path) / file;
    std::filesystem::create_directories(to.parent_path());
    std::ofstream(to) << text << "\n";
  }

  std::string path;
};

}  // namespace npu::check
