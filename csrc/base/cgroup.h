// Where the limits of this process's control groups are written.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace npu {

struct CgroupFolder {
  std::string path;
  bool v2;  // the folder's files have the names of version 2
};

// The folders of the process's group of `controller`, and of the groups above
// it, whose limits hold, too. `groups` is the text of /proc/<pid>/cgroup,
// `root` the folder where the groups are mounted.
//
// A line is "number:controllers:group"; version 2 has number 0 and no
// controllers. Within a container the line may name the group as the host sees
// it, while the limit is in the mount's own folder: the walk upwards ends
// there.
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

// The content of a small file; empty where it cannot be read.
inline std::string text_of_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace npu
