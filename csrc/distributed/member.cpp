#include "csrc/distributed/member.h"

#include <stdio.h>

#include "csrc/distributed/core/links.h"

namespace npu {
namespace {

// How long a connection of Gloo's may break before the job says why.
constexpr Milliseconds kSoon{300};

std::string name_of(const Agreement& a) {
  return std::string(a.name) + " #" + std::to_string(a.seq);
}

}  // namespace

std::string Member::where() const {
  return "group '" + group + "', rank " + std::to_string(rank) + " of " +
         std::to_string(size);
}

std::string Member::failed(Transport& transport, const Collective& call,
                           const char* why) const {
  std::string text = why;
  int peer = -1;
  size_t digits_end = 0;
  const bool lost = sscanf(why, "lost rank %d%zn", &peer, &digits_end) == 1;
  std::string told = transport.aborted();
  if (told.empty() && lost && link) told = link->await_failure(kSoon);
  if (!told.empty() && (lost || text.find(told) != std::string::npos)) {
    text = told;
  } else if (lost && peer >= 0 && peer < size) {
    // Gloo has named it as the group does.
    const int rank_of_job = global[peer];
    text = "lost rank " + std::to_string(rank_of_job) + text.substr(digits_end);
    // The job hears of it later than a rank of the same host sees it.
    const bool left = text.find(kLeftGroup) != std::string::npos;
    if (left || (link && link->has_left(rank_of_job)))
      text +=
          "; it has left the job: its program ended, or destroyed the group";
  } else if (!text.find("the ranks disagree") && link) {
    // The others find that out themselves, by their own lines.
    link->await_failure(kSoon);
  }
  tell(call, text);
  return text;
}

void Member::dropped(const Collective& call) const {
  tell(call, "its stream had failed before");
}

void Member::tell(const Collective& call, const std::string& why) const {
  if (!link) return;
  const std::string line = launch_line(call.site);
  link->fail("rank " + std::to_string(global[rank]) + " failed in " +
             name_of(call.agreed) + " of group '" + group + "'" +
             (line.empty() ? "" : " (" + line + ")") + ": " + why);
}

}  // namespace npu
