// A rank's place in a group, and what it says when one of its calls fails.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/distributed/job_link.h"
#include "csrc/distributed/transport.h"

namespace npu {

struct Member {
  std::string group;
  int rank, size;
  std::vector<int> global;        // by rank, what the job calls them
  std::shared_ptr<JobLink> link;  // null: the job has no failure channel

  // Names the group and the rank, for the errors of its calls.
  std::string where() const;
  // Returns why the call failed, which was `why` as far as its own connections
  // tell, and tells the job. Any thread.
  std::string failed(Transport& transport, const Collective& call,
                     const char* why) const;
  // The call was dropped, because its stream had failed before.
  void dropped(const Collective& call) const;

 private:
  void tell(const Collective& call, const std::string& why) const;
};

}  // namespace npu
