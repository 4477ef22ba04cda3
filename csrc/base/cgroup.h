// Where the limits of this process's control groups are written.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace npu {

struct CgroupFolder {
  std::string path;
  bool v2;  // which names its files have
};

// The folders of the group that has `controller`, and of those above it, whose
// limits hold too. `groups` is the text of /proc/<pid>/cgroup, `root` where the
// groups are mounted.
//
// A line is "number:controllers:group"; version 2 has number 0 and no
// controllers. Within a container the group may be that of the host, and the
// limit is the mount's own: the walk upwards ends there.
inline std::vector<CgroupFolder> cgroup_folders(const std::string& groups,
                                                const std::string& root,
                                                const std::string& controller) {
  std::vector<CgroupFolder> folders;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second =
        first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers =
        "," + line.substr(first + 1, second - first - 1) + ",";
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find("," + controller + ",") == std::string::npos)
      continue;
    const std::string mount = v2 ? root : root + "/" + controller;
    std::string group = line.substr(second + 1);
    if (group == "/") group.clear();
    for (;;) {
      folders.push_back({mount + group, v2});
      const size_t slash = group.rfind('/');
      if (slash == std::string::npos) break;
      group.resize(slash);
    }
  }
  return folders;
}

// All of a small file; empty where it cannot be read.
inline std::string text_of_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace npu
